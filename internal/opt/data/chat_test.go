//go:build cgo

package data

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
)

const pinned = "../../../.engine/src/models/"

func openVocab(t testing.TB, name string) *engine.Model {
	t.Helper()
	p := engine.DefaultParams()
	p.Model, p.VocabOnly = pinned+"ggml-vocab-"+name+".gguf", true
	if _, err := os.Stat(p.Model); err != nil {
		t.Skipf("the engine's vocabularies are not there: %v", err)
	}
	m, err := engine.LoadModel(context.Background(), &p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func openChat(t testing.TB, m *engine.Model, name string) *engine.ChatTemplate {
	t.Helper()
	src, err := os.ReadFile(pinned + "templates/" + name + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	ct, err := engine.NewChatTemplate(m, engine.ChatTemplateOptions{Source: string(src)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ct.Close() })
	return ct
}

// learned returns the text of each stretch of tokens with weight.
func learned(v *engine.Vocab, tokens []int32, weights []float32) (out []string) {
	var part []engine.Token
	for i, id := range tokens {
		if weights[i] > 0 {
			part = append(part, engine.Token(id))
		}
		if len(part) > 0 && (weights[i] == 0 || i == len(tokens)-1) {
			out = append(out, string(v.Detokenize(part, true)))
			part = nil
		}
	}
	return out
}

// The conversations of TestChatMasks.
const (
	plainTalk  = `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Bye"},{"role":"assistant","content":"See you."}]}`
	thinkTalk  = `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","reasoning_content":"Hm.","content":"Hello."},{"role":"user","content":"Bye"},{"role":"assistant","reasoning_content":"So.","content":"See you."}]}`
	weatherFor = `{"tools":[{"type":"function","function":{"name":"get_weather","description":"Get the weather.","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}],"messages":[` +
		`{"role":"user","content":"Rome?"},{"role":"assistant","content":"","tool_calls":[{"id":"abc123456","type":"function","function":{"name":"get_weather","arguments":{"city":"Rome"}}}]},` +
		`{"role":"tool","name":"get_weather","tool_call_id":"abc123456","content":"21"},{"role":"assistant","content":"Warm."}]}`
)

// What is learned, to the token, by the templates of the pinned source with their vocabularies, or
// one that lacks their control tokens: those are then written as text, and nothing ends a turn.
var chatMasks = []struct {
	vocab, template, talk string
	want                  []string
}{
	{"llama-bpe", "meta-llama-Llama-3.1-8B-Instruct", plainTalk, []string{"Hello.<|eot_id|>", "See you.<|eot_id|>"}},
	{"llama-bpe", "meta-llama-Llama-3.2-3B-Instruct", plainTalk, []string{"Hello.<|eot_id|>", "See you.<|eot_id|>"}},
	{"llama-bpe", "meta-llama-Llama-3.3-70B-Instruct", weatherFor,
		[]string{`{"name": "get_weather", "parameters": {"city": "Rome"}}<|eot_id|>`, "Warm.<|eot_id|>"}},
	// The generation prompt ends in ">>>", one token, and the answer's begin is another: ">>>" and "all".
	{"llama-bpe", "meetkai-functionary-medium-v3.2", plainTalk, []string{"all\nHello.<|eot_id|>", "all\nSee you.<|eot_id|>"}},
	{"llama-bpe", "fireworks-ai-llama-3-firefunction-v2", plainTalk, []string{"Hello.<|eot_id|>", "See you.<|eot_id|>"}},
	{"qwen2", "Qwen-Qwen2.5-7B-Instruct", plainTalk, []string{"Hello.<|im_end|>", "See you.<|im_end|>"}},
	{"qwen2", "Qwen-Qwen2.5-7B-Instruct", weatherFor,
		[]string{"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call><|im_end|>", "Warm.<|im_end|>"}},
	// The generation prompt ends in "<think>\n", and no message begins so.
	{"qwen2", "Qwen-QwQ-32B", plainTalk, []string{"Hello.<|im_end|>", "See you.<|im_end|>"}},
	// Only the last answer has its reasoning, and it has one even where there is none.
	{"qwen2", "Qwen-Qwen3-0.6B", plainTalk, []string{"Hello.<|im_end|>", "<think>\n\n</think>\n\nSee you.<|im_end|>"}},
	{"qwen2", "Qwen-Qwen3-0.6B", thinkTalk, []string{"Hello.<|im_end|>", "<think>\nSo.\n</think>\n\nSee you.<|im_end|>"}},
	// The generation prompt is "<think>\n"; before an empty thought another token stands there.
	{"qwen35", "Qwen3.5-4B", plainTalk, []string{"Hello.<|im_end|>", ">\n\n</think>\n\nSee you.<|im_end|>"}},
	{"qwen35", "Qwen3.5-4B", thinkTalk, []string{"Hello.<|im_end|>", "So.\n</think>\n\nSee you.<|im_end|>"}},
	{"qwen2", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", plainTalk, []string{"Hello.<|im_end|>", "See you.<|im_end|>"}},
	{"gemma-4", "google-gemma-4-31B-it", plainTalk, []string{"Hello.<turn|>", "See you.<turn|>"}},
	{"gemma-4", "google-gemma-4-31B-it-interleaved", thinkTalk, []string{"Hello.<turn|>", "See you.<turn|>"}},
	{"gemma-4", "google-gemma-2-2b-it", plainTalk, []string{"Hello.<end_of_turn>\n", "See you.<end_of_turn>\n"}},
	// The conversation's end has an <|endoftext|> that the model never comes to write.
	{"phi-3", "microsoft-Phi-3.5-mini-instruct", plainTalk, []string{" Hello.<|end|>", " See you.<|end|>"}},
	// An instruction for the next answer follows the last one.
	{"command-r", "CohereForAI-c4ai-command-r-plus-tool_use", plainTalk,
		[]string{"<|CHATBOT_TOKEN|>Hello.<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>See you.<|END_OF_TURN_TOKEN|>"}},
	{"command-r", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", plainTalk,
		[]string{"<|START_RESPONSE|>Hello.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "<|START_RESPONSE|>See you.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"}},
	// The tools stand before the last message of the user: elsewhere in each part of the conversation.
	// "][" is one token of this vocabulary, which has no [/INST].
	{"llama-spm", "mistralai-Mistral-Nemo-Instruct-2407", plainTalk, []string{"Hello.</s>", "See you.</s>"}},
	{"llama-spm", "mistralai-Mistral-Nemo-Instruct-2407", weatherFor,
		[]string{`][TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}, "id": "abc123456"}]</s>`, "Warm.</s>"}},
	{"deepseek-llm", "deepseek-ai-DeepSeek-V3.1", plainTalk, []string{"></think>Hello.<｜end▁of▁sentence｜>", "></think>See you.<｜end▁of▁sentence｜>"}},
	{"qwen2", "HuggingFaceTB-SmolLM3-3B", plainTalk, []string{"Hello.<|im_end|>", "See you.<|im_end|>"}},
	{"refact", "ibm-granite-granite-3.3-2B-Instruct", plainTalk, []string{"Hello.<|end_of_text|>\n", "See you.<|end_of_text|>\n"}},
	{"qwen2", "openai-gpt-oss-120b", thinkTalk, []string{"<|channel|>final<|message|>Hello.<|end|",
		"<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>See you.<|end|>"}},
	{"qwen2", "Kimi-K2-Thinking", thinkTalk, []string{"><think></think>Hello.<|im_end|>", "><think>So.</think>See you.<|im_end|>"}},
}

func TestChatMasks(t *testing.T) {
	models := map[string]*engine.Model{}
	for _, tt := range chatMasks {
		m := models[tt.vocab]
		if m == nil {
			m = openVocab(t, tt.vocab)
			models[tt.vocab] = m
		}
		v := m.Vocab()
		o := &Options{Vocab: v, Chat: openChat(t, m, tt.template)}
		r, err := parseRecord([]byte(tt.talk))
		if err != nil {
			t.Fatal(err)
		}
		tokens, weights, err := o.encodeChat(&r)
		if got := learned(v, tokens, weights); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v, want %q", tt.template, got, err, tt.want)
		}
		bos := 0
		for _, id := range tokens {
			if engine.Token(id) == v.BOS() {
				bos++
			}
		}
		if want := map[bool]int{true: 1}[v.AddBOS()]; bos != want && v.BOS() != v.EOS() {
			t.Errorf("%s: BOS %d times, want %d", tt.template, bos, want)
		}
	}
}

func TestChatMaskOptions(t *testing.T) {
	m := openVocab(t, "qwen2")
	base := Options{Vocab: m.Vocab(), Chat: openChat(t, m, "Qwen-Qwen2.5-7B-Instruct")}
	check := func(o Options, talk string, want ...string) {
		t.Helper()
		r, err := parseRecord([]byte(talk))
		if err != nil {
			t.Fatal(err)
		}
		tokens, weights, err := o.encodeChat(&r)
		if got := learned(m.Vocab(), tokens, weights); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: %q, %v, want %q", o.TrainOn, got, err, want)
		}
	}
	o := base
	o.LastOnly = true
	check(o, plainTalk, "See you.<|im_end|>")
	o = base
	o.TrainOn = []string{"user"}
	check(o, plainTalk, "Hi", "Bye")
	o.TrainOn = []string{"system", "user", "assistant"}
	check(o, plainTalk, "Be brief.", "Hi", "Hello.<|im_end|>", "Bye", "See you.<|im_end|>")
	o.TrainOn = []string{"tool"}
	check(o, weatherFor, "21")
	check(base, strings.Replace(plainTalk, `"Hello."`, `"Hello.","weight":0`, 1), "See you.<|im_end|>")
	check(base, strings.Replace(plainTalk, `"Hi"`, `"Hi","weight":0.5`, 1), "Hi", "Hello.<|im_end|>", "See you.<|im_end|>")
	// Control tokens that a message writes are text and end no turn.
	check(base, strings.Replace(plainTalk, `"Hello."`, `"I say <|im_end|>."`, 1), "I say <|im_end|>.<|im_end|>", "See you.<|im_end|>")
	// This template drops an answer that has a reasoning.
	m = openVocab(t, "llama-spm")
	o = Options{Vocab: m.Vocab(), Chat: openChat(t, m, "unsloth-mistral-Devstral-Small-2507")}
	r, err := parseRecord([]byte(thinkTalk))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.encodeChat(&r); !errors.Is(err, errUnwritten) {
		t.Errorf("encodeChat = %v", err)
	}
}

func BenchmarkEncodeChat(b *testing.B) {
	m := openVocab(b, "qwen2")
	for _, name := range []string{"Qwen-Qwen2.5-7B-Instruct", "Qwen-QwQ-32B"} { // all parts nested, and not
		o := &Options{Vocab: m.Vocab(), Chat: openChat(b, m, name)}
		r, err := parseRecord([]byte(plainTalk))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := o.encodeChat(&r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
