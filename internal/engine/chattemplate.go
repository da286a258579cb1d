//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"gollama/internal/pipeline"
)

// ChatTemplate makes prompts of conversations. Its methods may be called from several goroutines.
type ChatTemplate struct {
	mu      sync.RWMutex // write: closing
	ptr     *C.gl_chat
	vocab   *Vocab // nil without a model
	source  string
	tools   string // the source used with tools, if it is another one
	builtin bool
}

// BuiltinChatTemplates lists the names of the templates that llama.cpp brings along. They know
// neither tools nor reasoning; chatml, which is Jinja, does.
func BuiltinChatTemplates() []string {
	n := int(C.gl_chat_builtin(nil, 0))
	list := make([]*C.char, n)
	C.gl_chat_builtin(&list[0], C.int(n))
	names := make([]string, n)
	for i, p := range list {
		names[i] = C.GoString(p)
	}
	return names
}

// NewChatTemplate compiles a chat template for m, whose vocabulary gives it the texts of BOS and
// EOS and Tokenize its tokens; m may be nil if o.Source is set. m must be open until the template
// is closed. A template that cannot be read is an error that names the line.
func NewChatTemplate(m *Model, o ChatTemplateOptions) (*ChatTemplate, error) {
	initEngine()
	t := &ChatTemplate{}
	if err := t.choose(m, o); err != nil {
		return nil, err
	}
	if strings.ContainsRune(t.source+t.tools, 0) {
		return nil, errors.New("chat template: it has a NUL byte")
	}
	t.builtin = t.source != "chatml" && slices.Contains(BuiltinChatTemplates(), t.source)
	var model *C.struct_llama_model
	if m != nil {
		if !m.rlock() {
			return nil, ErrClosed
		}
		defer m.mu.RUnlock()
		if m.vocab.typ != vocabNone {
			t.vocab, model = m.vocab, m.ptr
		}
	}
	var a arena
	defer a.free()
	var e C.gl_err
	t.ptr = C.gl_chat_new(model, a.str(t.source), a.str(t.tools), C.bool(t.builtin), a.str(o.BOS), a.str(o.EOS), C.size_t(compileSteps(len(t.source)+len(t.tools))), &e)
	if t.ptr == nil {
		return nil, templateError(&e, clocked(t.source))
	}
	live.Add(1)
	return t, nil
}

// clocked reports whether gl_chat_new puts a line before the template.
func clocked(source string) bool { return strings.Contains(source, "strftime_now") }

// choose sets source and tools.
func (t *ChatTemplate) choose(m *Model, o ChatTemplateOptions) error {
	switch {
	case o.Source != "" && o.Name != "":
		return errors.New("chat template: a name and a source exclude each other")
	case o.Source != "":
		t.source = o.Source
		return nil
	case m == nil:
		return errors.New("chat template: there is neither a model nor a source")
	case o.Name != "":
		t.source = m.ChatTemplate(o.Name)
		if t.source == "" {
			return fmt.Errorf("chat template: the model has none named %q, %s", o.Name, m.templateNames())
		}
		return nil
	}
	// As common_chat_templates_init chooses.
	t.source, t.tools = m.ChatTemplate(""), m.ChatTemplate("tool_use")
	if t.source == "" || t.source == "chatml" {
		t.source, t.tools = t.tools, ""
	}
	if t.source == "" {
		t.source = "chatml"
	}
	return nil
}

func (m *Model) templateNames() string {
	var names []string
	for _, k := range m.MetaKeys() {
		if name, ok := strings.CutPrefix(k, "tokenizer.chat_template."); ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "and no named ones"
	}
	return "only " + strings.Join(names, ", ")
}

// Source returns the text of the template, or of the one that is used where there are tools.
func (t *ChatTemplate) Source(tools bool) string {
	if tools && t.tools != "" {
		return t.tools
	}
	return t.source
}

// Close frees the template. It may be called twice and on nil.
func (t *ChatTemplate) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ptr != nil {
		C.gl_chat_free(t.ptr)
		t.ptr = nil
		live.Add(-1)
	}
	return nil
}

// Caps returns what the template is able to do, by the names of llama.cpp, such as supports_tools
// and supports_system_role; nothing for one of BuiltinChatTemplates.
func (t *ChatTemplate) Caps() (map[string]bool, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return nil, ErrClosed
	}
	if t.builtin {
		return nil, nil
	}
	var e C.gl_err
	p := C.gl_chat_caps(t.ptr, &e)
	defer C.free(unsafe.Pointer(p))
	if p == nil {
		return nil, templateError(&e, clocked(t.source))
	}
	var caps map[string]bool
	return caps, pipeline.Decode([]byte(C.GoString(p)), &caps)
}

// Apply makes the prompt of a conversation. It is llama.cpp's own, byte for byte, with one
// exception: where a template looks in a message for the text of a control token, it does not find
// it, unless in.ParseSpecial is set.
//
// A conversation that the template refuses, or cannot express, is an error of one line.
func (t *ChatTemplate) Apply(in *ChatInput) (*ChatPrompt, error) { return t.apply(in, false) }

// Render is Apply for when no answer is to be read: it sets Text and Segments and nothing else, in
// a tenth of the time.
func (t *ChatTemplate) Render(in *ChatInput) (*ChatPrompt, error) { return t.apply(in, true) }

func (t *ChatTemplate) apply(in *ChatInput, promptOnly bool) (*ChatPrompt, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if t.builtin {
		if err := in.checkBuiltin(); err != nil {
			return nil, fmt.Errorf("chat template %s: %w", t.source, err)
		}
	}
	out, err := t.render(in, promptOnly)
	if err != nil {
		return nil, err
	}
	if promptOnly {
		*out = wirePrompt{Prompt: out.Prompt}
	}
	p := out.prompt(in)
	p.Segments = []ChatSegment{{Text: p.Text}}
	if t.vocab == nil || in.ParseSpecial {
		return p, nil
	}
	if err := t.separate(in, p, t.vocab.specials()); err != nil {
		return nil, err
	}
	return p, nil
}

// separate sets the segments of p where messages have the texts of control tokens.
func (t *ChatTemplate) separate(in *ChatInput, p *ChatPrompt, sp *specials) error {
	wire, err := in.wire(true)
	if err != nil {
		return err
	}
	marker, err := chooseMarker(wire, []byte(t.source), []byte(t.tools))
	if err != nil {
		return err
	}
	marked, changed, whole := sp.marked(in, marker)
	if !changed {
		return nil
	}
	out, err := t.render(marked, true)
	if err != nil && whole {
		return err
	}
	text := ""
	if err == nil {
		text = strings.ReplaceAll(out.Prompt, string(marker), "")
	}
	if text != p.Text && !whole {
		// The template saw a marker at the end of a text, where a token could only have come to
		// be together with the template's own text: keep what it writes without.
		return nil
	}
	p.Text, p.Segments = text, sp.segments(out.Prompt, marker)
	return nil
}

// checkBuiltin returns what the built-in templates cannot express.
func (in *ChatInput) checkBuiltin() error {
	if len(in.Tools) > 0 {
		return errors.New("it knows no tools")
	}
	for i, m := range in.Messages {
		switch {
		case len(m.ToolCalls) > 0:
			return fmt.Errorf("message %d: it knows no tool calls", i+1)
		case m.Reasoning != "":
			return fmt.Errorf("message %d: it knows no reasoning", i+1)
		case strings.ContainsRune(m.Role+m.Content, 0):
			return fmt.Errorf("message %d: it has a NUL byte", i+1)
		}
	}
	return nil
}

// render applies the template. The prompt of a built-in one is continued here: llama.cpp's code for
// those knows no continuation.
func (t *ChatTemplate) render(in *ChatInput, promptOnly bool) (*wirePrompt, error) {
	prefill := ""
	if t.builtin && in.Continue != ContinueNone {
		c := *in
		n := len(c.Messages) - 1
		prefill = c.Messages[n].Content
		for _, p := range c.Messages[n].Parts {
			prefill += p.Text
		}
		c.Messages, c.Continue, c.AddGenerationPrompt = c.Messages[:n], ContinueNone, true
		in = &c
	}
	wire, err := in.wire(promptOnly)
	if err != nil {
		return nil, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.ptr == nil {
		return nil, ErrClosed
	}
	var a arena
	defer a.free()
	var e C.gl_err
	p := C.gl_chat_apply(t.ptr, a.str(string(wire)), C.size_t(in.steps(len(wire))), &e)
	defer C.free(unsafe.Pointer(p))
	if p == nil {
		return nil, templateError(&e, clocked(t.Source(len(in.Tools) > 0)))
	}
	var out wirePrompt
	if err := pipeline.Decode([]byte(C.GoString(p)), &out); err != nil {
		return nil, err
	}
	out.Prompt += prefill
	if in.Grammar == "" { // else it is in.Grammar itself
		out.Grammar = exactGrammar(out.Grammar)
	}
	return &out, nil
}

// templateSteps returns the steps that the template applied last took, and how many it might have; see shim_budget.cpp.
func templateSteps() (taken, allowed int) {
	var n C.size_t
	taken = int(C.gl_template_steps(&n))
	return taken, int(n)
}

// Tokenize returns the tokens of a prompt: BOS once where the model wants it, the template's control
// tokens as such, and those of messages as text. EOS follows where the model wants it and no answer
// is to follow.
func (t *ChatTemplate) Tokenize(p *ChatPrompt) ([]Token, error) {
	v := t.vocab
	if v == nil {
		return nil, errNoVocab
	}
	if err := v.checkSpecials(); err != nil {
		return nil, err
	}
	var out []Token
	for i, s := range p.Segments {
		tokens, err := v.Tokenize(s.Text, false, !s.Literal)
		if err != nil {
			return nil, err
		}
		if i == 0 && v.AddBOS() && (len(tokens) == 0 || tokens[0] != v.BOS()) {
			out = append(out, v.BOS())
		}
		out = append(out, tokens...)
	}
	if v.AddEOS() && !p.generation && (len(out) == 0 || out[len(out)-1] != v.EOS()) {
		out = append(out, v.EOS())
	}
	return out, nil
}

// ChatParser reads the answers to a prompt.
type ChatParser struct {
	mu  sync.Mutex
	ptr *C.gl_chat_parser
}

// NewChatParser returns a parser for the answers to p.
func NewChatParser(p *ChatPrompt) (*ChatParser, error) {
	in, err := marshal(wireParser{Format: p.format, GenerationPrompt: p.GenerationPrompt, ReasoningFormat: p.reasoning, Parser: p.parser})
	if err != nil {
		return nil, err
	}
	var a arena
	defer a.free()
	var e C.gl_err
	ptr := C.gl_chat_parser_new(a.str(string(in)), &e)
	if ptr == nil {
		return nil, templateError(&e, false)
	}
	live.Add(1)
	return &ChatParser{ptr: ptr}, nil
}

// Parse takes an answer, the model's output after the prompt, apart: content, reasoning and tool
// calls. partial says that more is to come: what is there so far is returned. An answer that does
// not have the form that the template asks for is an error.
func (c *ChatParser) Parse(output string, partial bool) (ChatMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ptr == nil {
		return ChatMessage{}, ErrClosed
	}
	var e C.gl_err
	p := C.gl_chat_parse(c.ptr, (*C.char)(unsafe.Pointer(unsafe.StringData(output))), C.size_t(len(output)), C.bool(partial), &e)
	defer C.free(unsafe.Pointer(p))
	runtime.KeepAlive(output)
	if p == nil {
		return ChatMessage{}, errors.New("parse the answer: " + shorten(errText(&e)))
	}
	var m ChatMessage
	err := pipeline.Decode([]byte(C.GoString(p)), &m)
	return m, err
}

// Close frees the parser. It may be called twice and on nil.
func (c *ChatParser) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ptr != nil {
		C.gl_chat_parser_free(c.ptr)
		c.ptr = nil
		live.Add(-1)
	}
	return nil
}

// templateError makes one line of what C++ says about a template.
func templateError(e *C.gl_err, clocked bool) error {
	return errors.New("chat template: " + templateCause(C.GoString(&e.msg[0]), clocked))
}
