package completion

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gollama/internal/engine"
)

func TestGenerateReasons(t *testing.T) {
	for _, tt := range []struct {
		name   string
		nCtx   int
		script []engine.Token
		loop   bool
		opt    Options
		want   string // text
		reason string
		stop   string
		n      int // tokens sampled
	}{
		{name: "eos", script: script("hello"), opt: Options{NPredict: -1}, want: "hello", reason: FinishEOS, n: 6},
		{name: "eos cut rune is the model's", script: script("a\xe6\x97"), opt: Options{NPredict: -1}, want: "a\xe6\x97", reason: FinishEOS, n: 4},
		{name: "length", script: script("hello"), opt: Options{NPredict: 3}, want: "hel", reason: FinishLength, n: 3},
		{name: "length 0", script: script("hello"), reason: FinishLength},
		{name: "length in a rune", script: script("a日b"), opt: Options{NPredict: 2}, want: "a日", reason: FinishLength, n: 4},
		{name: "length in a long rune", script: script("😀b"), opt: Options{NPredict: 1}, want: "😀", reason: FinishLength, n: 4},
		{name: "length in runes that never end", script: script("a\xe6\xe6\xe6\xe6\xe6\xe6"), opt: Options{NPredict: 2}, want: "a\xe6\xe6\xe6", reason: FinishLength, n: 5},
		{name: "length with invalid bytes", script: script("\xff\xff\xff"), opt: Options{NPredict: 2}, want: "\xff\xff", reason: FinishLength, n: 2},
		{name: "length with a stop held back", script: script("a Lilac"), opt: Options{NPredict: 4, Stop: []string{"Lily"}}, want: "a Li", reason: FinishLength, n: 4},
		{name: "stop", script: script("named Lily. She"), opt: Options{NPredict: -1, Stop: []string{"zz", "Lily"}}, want: "named ", reason: FinishStop, stop: "Lily", n: 10},
		{name: "stop at once", script: script("named Lily"), opt: Options{NPredict: -1, Stop: []string{"named Lily"}}, reason: FinishStop, stop: "named Lily", n: 10},
		{name: "stop partial at eos", script: script("a Lil"), opt: Options{NPredict: -1, Stop: []string{"Lily"}}, want: "a Lil", reason: FinishEOS, n: 6},
		{name: "stop waiting at length", script: script("abcx"), opt: Options{NPredict: 3, Stop: []string{"bc", "abcd"}}, want: "a", reason: FinishStop, stop: "bc", n: 3},
		{name: "stop waiting at eos", script: script("abc"), opt: Options{NPredict: -1, Stop: []string{"bc", "abcd"}}, want: "a", reason: FinishStop, stop: "bc", n: 4},
		{name: "prompt's tail does not count", script: script(" x time."), opt: Options{Prompt: "a time.", NPredict: -1, Stop: []string{"time."}}, want: " x ", reason: FinishStop, stop: "time.", n: 8},
		{name: "prompt's part does not count", script: script("ly"), opt: Options{Prompt: "Li", NPredict: -1, Stop: []string{"Lily"}}, want: "ly", reason: FinishEOS, n: 3},
		{name: "stop token", script: script("ab", tool, 'c'), opt: Options{NPredict: -1, StopTokens: []engine.Token{tool}}, want: "ab", reason: FinishStop, stop: "<tool>", n: 3},
		{name: "special", script: script("ab", tool, 'c'), opt: Options{NPredict: -1, Special: true}, want: "ab<tool>c", reason: FinishEOS, n: 5},
		{name: "not special", script: script("ab", tool, 'c'), opt: Options{NPredict: -1}, want: "abc", reason: FinishEOS, n: 5},
		{name: "context", nCtx: 256, script: script("x"), loop: true, opt: Options{Prompt: "Once", NPredict: -1}, want: strings.Repeat("x", 251), reason: FinishContext, n: 251},
		{name: "context and length", nCtx: 256, script: script("x"), loop: true, opt: Options{Prompt: "Once", NPredict: 251}, want: strings.Repeat("x", 251), reason: FinishLength, n: 251},
		{name: "context in a rune", nCtx: 16, script: script("日"), loop: true, opt: Options{Prompt: "Once", NPredict: -1}, want: "日日日", reason: FinishContext, n: 11},
		{name: "context after the length in a rune", nCtx: 16, script: script("日"), loop: true, opt: Options{Prompt: "Once", NPredict: 11}, want: "日日日", reason: FinishLength, n: 11},
		{name: "context with truncate", nCtx: 256, script: script("x"), loop: true, opt: Options{Prompt: "Once", NPredict: -1, Overflow: OverflowTruncate}, want: strings.Repeat("x", 251), reason: FinishContext, n: 251},
		{name: "shift until the length", nCtx: 64, script: script("x"), loop: true, opt: Options{Prompt: "Once", NPredict: 200, Overflow: OverflowShift}, want: strings.Repeat("x", 200), reason: FinishLength, n: 200},
		{name: "shift, until full", nCtx: 64, script: script("x"), loop: true, opt: Options{Prompt: "Once", NPredict: -2, Overflow: OverflowShift}, want: strings.Repeat("x", 59), reason: FinishContext, n: 59},
		{name: "grammar", script: script("yes"), opt: Options{NPredict: -1, Grammar: true}, want: "yes", reason: FinishGrammar, n: 4},
		{name: "echo", script: script("b"), opt: Options{NPredict: -1, Prompt: "a\xff<tool>\x00", Echo: true, ParseSpecial: true}, want: "a\xff<tool>\x00b", reason: FinishEOS, n: 2},
		{name: "echo of tokens", script: script("b"), opt: Options{NPredict: -1, Tokens: []engine.Token{bos, 'a', tool}, Echo: true}, want: "<s>a<tool>b", reason: FinishEOS, n: 2},
		{name: "stop after echo of a stop", script: script("Lilyx"), opt: Options{NPredict: -1, Prompt: "Lily", Echo: true, Stop: []string{"Lily"}}, want: "Lily", reason: FinishStop, stop: "Lily", n: 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.nCtx == 0 {
				tt.nCtx = 256
			}
			e, c, s := fake(t, tt.nCtx, tt.script, tt.loop)
			var deltas strings.Builder
			r, err := Generate(t.Context(), e, tt.opt, func(d Delta) error {
				if utf8.ValidString(tt.want) && !utf8.ValidString(d.Text) {
					t.Errorf("delta %q is cut inside a rune", d.Text)
				}
				if d.Text == "" || d.Type != "delta" {
					t.Errorf("delta %+v", d)
				}
				deltas.WriteString(d.Text)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Text != tt.want || r.FinishReason != tt.reason || r.Stop != tt.stop || r.Usage.CompletionTokens != tt.n {
				t.Errorf("got %q, %s, %q, %d tokens, want %q, %s, %q, %d tokens",
					r.Text, r.FinishReason, r.Stop, r.Usage.CompletionTokens, tt.want, tt.reason, tt.stop, tt.n)
			}
			if deltas.String() != r.Text {
				t.Errorf("deltas are %q, the text is %q", deltas.String(), r.Text)
			}
			if want := 1 + max(0, tt.n-1); c.decodes != want {
				t.Errorf("%d evaluations, want %d: the last token needs none", c.decodes, want)
			}
			if s.prompt != r.Usage.PromptTokens || len(s.accepted) != s.prompt+tt.n {
				t.Errorf("sampler accepted %d tokens, %d of the prompt, want %d and %d", len(s.accepted), s.prompt, r.Usage.PromptTokens+tt.n, r.Usage.PromptTokens)
			}
			if r.Seed != 42 || r.NCtx != tt.nCtx || r.Model.Arch != "llama" || r.Timings.LoadMS != 3 || !strings.HasPrefix(r.ID, "cmpl-") {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestGenerateGrammarEndedByModel(t *testing.T) {
	e, c, _ := fake(t, 256, script("yes"), false)
	c.best = eos
	r, err := Generate(t.Context(), e, Options{NPredict: -1, Grammar: true}, nil)
	if err != nil || r.FinishReason != FinishEOS {
		t.Errorf("got %s, %v, want %s", r.FinishReason, err, FinishEOS)
	}
}

func TestGenerateErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		opt   Options
		spoil func(c *fakeContext, s *fakeSampler[*fakeContext])
		want  error // nil: any that contains text
		text  string
	}{
		{name: "prompt too long", opt: Options{Prompt: strings.Repeat("a", 252)}, text: "253 tokens, limit 252"},
		{name: "prompt too long to shift", opt: Options{Prompt: strings.Repeat("a", 252), Overflow: OverflowShift}, text: "253 tokens, limit 252"},
		{name: "empty stop", opt: Options{Stop: []string{""}}, want: ErrEmptyStop},
		{name: "no prompt", opt: Options{Tokens: []engine.Token{}}, text: ""},
		{name: "token", opt: Options{Tokens: []engine.Token{1, nVocab}}, text: "token 259: want 0 to 258"},
		{name: "negative token", opt: Options{Tokens: []engine.Token{-1}}, text: "token -1"},
		{name: "stop token", opt: Options{StopTokens: []engine.Token{nVocab}}, text: "token 259"},
		{name: "n", opt: Options{NPredict: -3}, text: "-3"},
		{name: "probs", opt: Options{NProbs: -1}, text: "-1"},
		{name: "tokenize", opt: Options{Prompt: "bad"}, want: errFake},
		{name: "no shift", opt: Options{Overflow: OverflowShift}, spoil: func(c *fakeContext, _ *fakeSampler[*fakeContext]) { c.noShift = true }, want: ErrNoShift},
		{name: "prompt fails", spoil: func(c *fakeContext, _ *fakeSampler[*fakeContext]) {
			c.onDecode = func(int) error { return errFake }
		}, want: errFake},
		{name: "decode fails", opt: Options{NPredict: -1}, spoil: func(c *fakeContext, _ *fakeSampler[*fakeContext]) {
			c.onDecode = func(n int) error {
				if n == 3 {
					return errFake
				}
				return nil
			}
		}, want: errFake},
		{name: "shift fails", opt: Options{NPredict: -1, Overflow: OverflowShift}, spoil: func(c *fakeContext, s *fakeSampler[*fakeContext]) {
			c.shiftFails, s.loop = true, true
		}, want: ErrNoShift},
		{name: "sample fails", opt: Options{NPredict: -1}, spoil: func(_ *fakeContext, s *fakeSampler[*fakeContext]) {
			s.onSample = func(int) error { return errFake }
		}, want: errFake},
		{name: "nan", opt: Options{NPredict: -1, NProbs: 1}, spoil: func(c *fakeContext, _ *fakeSampler[*fakeContext]) { c.nan = true }, want: ErrNaN},
		{name: "prompt nan", opt: Options{Prompt: "ab", PromptLogprobs: true}, spoil: func(c *fakeContext, _ *fakeSampler[*fakeContext]) { c.nan = true }, want: ErrNaN},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, c, s := fake(t, 256, script("hello"), false)
			if tt.spoil != nil {
				tt.spoil(c, s)
			}
			r, err := Generate(t.Context(), e, tt.opt, nil)
			if tt.name == "no prompt" { // a model with BOS has always something to read
				if err != nil {
					t.Fatal(err)
				}
				e.Vocab = fakeVocab{noBOS: true}
				r, err = Generate(t.Context(), e, tt.opt, nil)
				tt.want = ErrEmptyPrompt
			}
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v %q", err, tt.want, tt.text)
			}
			if r.FinishReason != FinishError {
				t.Errorf("reason %q, want %q", r.FinishReason, FinishError)
			}
		})
	}
	e, _, _ := fake(t, 256, script("hello"), false)
	_, err := Generate(t.Context(), e, Options{Prompt: strings.Repeat("a", 601)}, nil)
	var long *PromptTooLongError
	if !errors.As(err, &long) || *long != (PromptTooLongError{602, 252}) {
		t.Errorf("got %v, want 602 tokens, limit 252", err)
	}
	_, err = Generate(t.Context(), e, Options{NPredict: -1}, func(Delta) error { return errFake })
	if !errors.Is(err, errFake) {
		t.Errorf("emit: got %v, want %v", err, errFake)
	}
}

func TestGenerateCancelled(t *testing.T) {
	cancelAt := func(t *testing.T, prepare func(c *fakeContext, s *fakeSampler[*fakeContext], cancel func())) Result {
		t.Helper()
		e, c, s := fake(t, 256, script("ab日"), true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		prepare(c, s, cancel)
		r, err := Generate(ctx, e, Options{NPredict: -1, Stop: []string{"bx"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.FinishReason != FinishCancelled {
			t.Errorf("reason %q", r.FinishReason)
		}
		return r
	}
	for n, want := range map[int]string{1: "", 2: "a", 3: "ab", 4: "ab", 5: "ab", 6: "ab日"} {
		r := cancelAt(t, func(c *fakeContext, _ *fakeSampler[*fakeContext], cancel func()) {
			c.onDecode = func(at int) error {
				if at == n {
					cancel()
					return errAborted
				}
				return nil
			}
		})
		if r.Text != want {
			t.Errorf("cancelled in evaluation %d: got %q, want %q", n, r.Text, want)
		}
	}
	r := cancelAt(t, func(_ *fakeContext, s *fakeSampler[*fakeContext], cancel func()) {
		s.onSample = func(n int) error {
			if n == 2 {
				cancel()
			}
			return nil
		}
	})
	if r.Text != "ab" {
		t.Errorf("cancelled while sampling: got %q, want ab", r.Text)
	}
}

var errAborted = errors.New("aborted") // what the engine says does not matter

// TestTruncate: of n tokens, as many are left as llama.rn leaves (truncatePrompt).
func TestTruncate(t *testing.T) {
	for _, tt := range []struct{ nCtx, keep, n, want int }{
		{512, 0, 512, 256}, {512, 0, 767, 511}, {512, 0, 768, 256}, {512, 0, 1023, 511}, {512, 0, 1024, 256},
		{512, 1, 512, 257}, {512, 508, 512, 510}, {8, 4, 100, 6},
	} {
		prompt := make([]engine.Token, tt.n)
		for i := range prompt {
			prompt[i] = engine.Token(i)
		}
		got := truncate(prompt, tt.nCtx, tt.keep)
		if len(got) != tt.want {
			t.Errorf("%+v: got %d tokens", tt, len(got))
		}
		tail := tt.want - tt.keep
		if !slices.Equal(got, slices.Concat(prompt[:tt.keep], prompt[tt.n-tail:])) {
			t.Errorf("%+v: not the first and the newest tokens", tt)
		}
	}
}

func TestGenerateTruncate(t *testing.T) {
	prompt := "KEEP" + strings.Repeat("x", 300) + "newest"
	for _, keep := range []int{0, 4, -1, 1000} {
		e, c, _ := fake(t, 64, script("hello"), false)
		r, err := Generate(t.Context(), e, Options{Prompt: prompt, Keep: keep, Overflow: OverflowTruncate}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := string(detokenize(fakeVocab{}, c.cells))
		want := "<s>" + prompt[:max(0, min(4, keep))]
		if !strings.HasPrefix(got, want) || len(c.cells) >= 64 || !r.Truncated || r.Usage.PromptTokens != len(c.cells) {
			t.Errorf("keep %d: got %q, %d tokens, truncated %v", keep, got, len(c.cells), r.Truncated)
		}
		if tail := got[len(got)-2:]; tail != "st" {
			t.Errorf("keep %d: the newest is gone: %q", keep, got)
		}
	}
	e, c, _ := fake(t, 64, nil, false)
	r, err := Generate(t.Context(), e, Options{Prompt: strings.Repeat("x", 62), Overflow: OverflowTruncate}, nil)
	if err != nil || r.Truncated || len(c.cells) != 63 {
		t.Errorf("a prompt that fits: %v, truncated %v, %d tokens", err, r.Truncated, len(c.cells))
	}
}

func TestGenerateShift(t *testing.T) {
	for _, tt := range []struct {
		keep int
		want string
	}{{0, "<s>"}, {2, "<s>On"}, {-1, "<s>Once"}, {100, "<s>Once"}} {
		e, c, _ := fake(t, 64, script("xyz"), true)
		r, err := Generate(t.Context(), e, Options{Prompt: "Once", Keep: tt.keep, NPredict: 300, Overflow: OverflowShift}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := string(detokenize(fakeVocab{}, c.cells))
		rest, ok := strings.CutPrefix(got, tt.want)
		if !ok || !r.Truncated || r.Usage.CompletionTokens != 300 {
			t.Errorf("keep %d: context %q, truncated %v, %d tokens", tt.keep, got, r.Truncated, r.Usage.CompletionTokens)
		}
		// What follows the kept is the end of the text but for its last token, which is not evaluated.
		if text := "Once" + r.Text; !strings.HasSuffix(text[:len(text)-1], rest) {
			t.Errorf("keep %d: context ends in %q, the text in %q", tt.keep, rest, text[len(text)-20:])
		}
	}
}

func TestGenerateEncoder(t *testing.T) {
	c := &encContext{fakeContext{t: t, nCtx: 64}}
	e := Engine[*encContext]{Vocab: fakeVocab{}, Context: c, Sampler: &fakeSampler[*encContext]{script: script("hi")},
		HasEncoder: true, DecoderStart: engine.TokenNull}
	r, err := Generate(t.Context(), e, Options{Prompt: "ab", NPredict: -1}, nil)
	if err != nil || r.Text != "hi" || !slices.Equal(c.encoded, []engine.Token{bos, 'a', 'b'}) || !slices.Equal(c.cells, []engine.Token{bos, 'h', 'i'}) {
		t.Errorf("got %q, %v, encoded %v, decoded %v", r.Text, err, c.encoded, c.cells)
	}
	e.DecoderStart = tool
	e.Sampler = &fakeSampler[*encContext]{script: script("hi")}
	if _, err := Generate(t.Context(), e, Options{Prompt: "ab", NPredict: -1}, nil); err != nil || c.cells[0] != tool {
		t.Errorf("decoder starts with %v, %v, want %v", c.cells, err, tool)
	}
	if _, err := Generate(t.Context(), e, Options{Prompt: "ab", PromptLogprobs: true}, nil); err == nil {
		t.Error("prompt log-probabilities of an encoder")
	}
	plain, _, _ := fake(t, 64, nil, false)
	plain.HasEncoder = true
	if _, err := Generate(t.Context(), plain, Options{Prompt: "ab"}, nil); err == nil {
		t.Error("an encoder without Encode")
	}
}

func TestGenerateLogprobs(t *testing.T) {
	e, c, _ := fake(t, 64, script("hé"), false)
	c.best = 0xff
	var carried []TokenLogprob
	r, err := Generate(t.Context(), e, Options{Prompt: "ab", NPredict: -1, NProbs: 2, PromptLogprobs: true}, func(d Delta) error {
		carried = append(carried, d.Logprobs...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Logprobs) != 4 || len(r.PromptLogprobs) != 3 || len(carried) != 3 {
		t.Fatalf("%d, %d and %d log-probabilities, want 4, 3 and 3", len(r.Logprobs), len(r.PromptLogprobs), len(carried))
	}
	norm := math.Log(float64(nVocab-1) + math.E)
	lp := r.Logprobs[0]
	// 1e-12: a few hundred additions of float64 near 1.
	if lp.ID != 'h' || lp.Text != "h" || math.Abs(*lp.Logprob+norm) > 1e-12 || len(lp.Top) != 2 ||
		lp.Top[0].ID != 0xff || math.Abs(*lp.Top[0].Logprob-(1-norm)) > 1e-12 || lp.Top[1].ID != 0 {
		t.Errorf("got %+v", lp)
	}
	if p := r.PromptLogprobs; p[0].ID != bos || p[0].Logprob != nil || p[1].ID != 'a' || p[1].Logprob == nil || p[2].Top[0].ID != 0xff {
		t.Errorf("prompt: got %+v", p)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`"id":255,"text":"\ufffd","text_base64":%q`, base64.StdEncoding.EncodeToString([]byte{0xff}))
	if !strings.Contains(string(b), want) {
		t.Errorf("got %s, want %s in it", b, want)
	}
}

func TestResultJSON(t *testing.T) {
	e, _, _ := fake(t, 64, script("a\xff"), false)
	r, err := Generate(t.Context(), e, Options{ID: "7", Prompt: "ab", NPredict: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Timings = Timings{}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"completion","id":"7","text":"a\ufffd","text_base64":"Yf8=","finish_reason":"eos","stop":"","truncated":false,` +
		`"usage":{"prompt_tokens":3,"completion_tokens":3,"cached_tokens":0},"seed":42,"n_ctx":64,` +
		`"model":{"path":"m.gguf","arch":"llama","size":7},"timings":{"load_ms":0,"prompt_n":0,"prompt_ms":0,` +
		`"prompt_per_second":0,"predicted_n":0,"predicted_ms":0,"predicted_per_second":0}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestProgress(t *testing.T) {
	e, _, _ := fake(t, 64, nil, false)
	for _, logprobs := range []bool{false, true} {
		last := 0
		opt := Options{Prompt: "abc", PromptLogprobs: logprobs, Progress: func(done, total int) {
			if last = done; total != 4 {
				t.Errorf("total %d, want 4", total)
			}
		}}
		if _, err := Generate(t.Context(), e, opt, nil); err != nil || last != 4 {
			t.Errorf("progress ends at %d, %v, want 4", last, err)
		}
	}
}

func TestParseOverflow(t *testing.T) {
	for _, o := range []Overflow{OverflowError, OverflowShift, OverflowTruncate} {
		if got, err := ParseOverflow(o.String()); got != o || err != nil {
			t.Errorf("%v: got %v, %v", o, got, err)
		}
	}
	if _, err := ParseOverflow("x"); err == nil || !strings.Contains(err.Error(), "error, shift, truncate") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkGenerate(b *testing.B) {
	c := &fakeContext{nCtx: 1 << 30}
	s := &fakeSampler[*fakeContext]{script: script("hello, world"), loop: true}
	e := Engine[*fakeContext]{Vocab: fakeVocab{}, Context: c, Sampler: s}
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := Generate(context.Background(), e, Options{NPredict: b.N, Stop: []string{"xyz"}}, func(Delta) error { return nil }); err != nil {
		b.Fatal(err)
	}
}
