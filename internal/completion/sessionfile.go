package completion

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// A session file is a line of JSON (SessionHeader), Tokens token ids as int32,
// little-endian, and the context's state as engine.Context.SeqState returns it.
// That of a conversation whose context is lost has the first of them alone.

// sessionType and sessionVersion begin the header.
const (
	sessionType    = "gollama-session"
	sessionVersion = 1
	maxHeader      = 1 << 26 // bytes; a conversation may be in it
)

// ErrSession is what errors of a session file that cannot be used wrap.
var ErrSession = errors.New("the session cannot be used")

// SessionHeader says what a session is of.
type SessionHeader struct {
	Type    string            `json:"type"`
	Version int               `json:"version"`
	Program string            `json:"program"`
	Engine  string            `json:"engine"`
	Command []string          `json:"command"`
	Of      map[string]string `json:"of"`    // what must be the same: model, adapters, rope, cache types, template
	Shape   map[string]string `json:"shape"` // how it was computed; with another one it is computed again
	Tokens  int               `json:"tokens"`
	Prompt  int               `json:"prompt"` // of them, the first are a prompt's; the rest was generated one by one
	Cells   int               `json:"cells"`  // of them, the first are in the state
	Exact   int               `json:"exact"`  // of them, the first were computed in whole micro-batches
	State   int               `json:"state"`  // bytes
	SHA256  string            `json:"sha256"` // of the conversation, tokens and state
	// The conversation whose tokens these are, as --messages reads one; empty without.
	Conversation json.RawMessage `json:"conversation,omitempty"`
}

// SavedSession is a session file's content.
type SavedSession struct {
	SessionHeader
	IDs  []engine.Token // Tokens of them
	Data []byte         // the state
}

func sessionErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSession, fmt.Sprintf(format, args...))
}

// DecodeSession reads a session file's bytes, which Data stays part of. It
// checks all that the header says and the sum: what comes after it is as it was
// written. Errors wrap ErrSession.
func DecodeSession(data []byte) (*SavedSession, error) {
	if len(data) == 0 || data[0] != '{' {
		return nil, sessionErrorf("it is not a session file")
	}
	end := bytes.IndexByte(data[:min(len(data), maxHeader)], '\n')
	if end < 0 {
		return nil, sessionErrorf("its header, line 1, has no end in %d bytes: it was cut, or it is not a session file", len(data))
	}
	s := &SavedSession{}
	if err := pipeline.Decode(data[:end], &s.SessionHeader); err != nil {
		return nil, sessionErrorf("its header, line 1: %s", err)
	}
	if s.Type != sessionType {
		return nil, sessionErrorf("its header, line 1: type is %q, want %q: it is not a session file", s.Type, sessionType)
	}
	rest := data[end+1:]
	switch n := len(rest); {
	case s.Version != sessionVersion:
		return nil, sessionErrorf("version %d, want %d", s.Version, sessionVersion)
	case s.Tokens == 0 && len(s.Conversation) > 0 && s.State == 0 && n == 0 && s.Prompt == 0 && s.Cells == 0 && s.Exact == 0:
	case s.Tokens < 1 || s.Tokens > n/4 || s.State != n-4*s.Tokens:
		return nil, sessionErrorf("it is damaged: %d tokens and %d bytes of state in %d bytes", s.Tokens, s.State, n)
	case s.Prompt < 1 || s.Prompt > s.Tokens || s.Cells < s.Tokens-1 || s.Cells > s.Tokens || s.Exact < 0 || s.Exact > min(s.Prompt, s.Cells):
		return nil, sessionErrorf("it is damaged: %d tokens, %d of a prompt, %d evaluated, %d in whole batches", s.Tokens, s.Prompt, s.Cells, s.Exact)
	}
	h := sha256.New()
	_, _ = h.Write(s.Conversation) // a hash takes all
	_, _ = h.Write(rest)
	if hex.EncodeToString(h.Sum(nil)) != s.SHA256 {
		return nil, sessionErrorf("it is damaged: its sum is not what it says")
	}
	s.IDs = make([]engine.Token, s.Tokens)
	for i := range s.IDs {
		s.IDs[i] = engine.Token(binary.LittleEndian.Uint32(rest[4*i:]))
	}
	s.Data = rest[4*s.Tokens:]
	return s, nil
}

// Encode writes the session, whose sizes and sum it sets.
func (s *SavedSession) Encode(w io.Writer) error {
	ids := make([]byte, 0, 4*len(s.IDs))
	for _, t := range s.IDs {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(t))
	}
	h := sha256.New()
	_, _ = h.Write(s.Conversation) // a hash takes all
	_, _ = h.Write(ids)
	_, _ = h.Write(s.Data)
	s.Type, s.Version, s.Tokens, s.State, s.SHA256 = sessionType, sessionVersion, len(s.IDs), len(s.Data), hex.EncodeToString(h.Sum(nil))
	head, err := json.Marshal(s.SessionHeader)
	if err != nil {
		return err
	}
	for _, part := range [][]byte{append(head, '\n'), ids, s.Data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error that names the first field in which the session is of something else than of.
func (s *SavedSession) Check(of map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if have := s.Of[name]; have != of[name] {
			return sessionErrorf("%s: it was made with %q, and this run has %q", name, have, of[name])
		}
	}
	return nil
}

// Reusable is how many tokens of prompt the session spares: its cells are what
// evaluating the prompt anew would give, bit for bit, only where that has the
// same batches, for kernels round by the shape of a batch. So they are taken up
// to the end of the last whole micro-batch, of step tokens, that session and
// prompt share; the last token, whose logits are needed, is always evaluated.
func (s *SavedSession) Reusable(prompt []engine.Token, step int) int {
	n := min(commonPrefix(s.IDs, prompt), s.Exact, len(prompt)-1)
	return n - n%step
}

// Common is how many tokens of prompt the session spares a conversation that
// goes on with it as if it had not been left: all that both begin with. The last
// token, whose logits are needed, is always evaluated.
func (s *SavedSession) Common(prompt []engine.Token) int {
	return min(commonPrefix(s.IDs, prompt), s.Cells, len(prompt)-1)
}

// Continued is how many of the session's own tokens it spares a run that goes on with its text: all but the last,
// which the uncut run would evaluate alone, too, if it was generated; and what Reusable says if it is a prompt's.
func (s *SavedSession) Continued(step int) int {
	if s.Tokens > s.Prompt {
		return s.Tokens - 1
	}
	return s.Reusable(s.IDs, step)
}
