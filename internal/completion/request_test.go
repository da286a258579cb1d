package completion

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

func testRequests() *Requests {
	d := Request{Sampling: engine.DefaultSamplingParams()}
	d.NPredict, d.Stop, d.Sampling.Seed = 16, []string{"run"}, 9
	return &Requests{Default: d, Model: "tiny", Key: func(r *pipeline.Record) string { return fmt.Sprintf("%016x", r.Line) }}
}

func TestParse(t *testing.T) {
	q := testRequests()
	for _, tt := range []struct {
		raw  string
		get  func(r *Request) any
		want any
	}{
		{`{"prompt":"x"}`, func(r *Request) any { return []any{r.ID, r.Prompt, r.N, r.NPredict, r.Stop, r.Sampling.Seed} }, []any{"1", "x", 0, 16, []string{"run"}, uint32(9)}},
		{`{"id":"a","prompt":""}`, func(r *Request) any { return []any{r.ID, r.Prompt} }, []any{`"a"`, ""}},
		{`{"prompt":[1,2]}`, func(r *Request) any { return r.Tokens }, []engine.Token{1, 2}},
		{`{"prompt":"x","prefill":"y"}`, func(r *Request) any { return r.Prompt }, "xy"},
		{`{"prompt":"x","n":3,"seed":4294967295,"max_tokens":0}`, func(r *Request) any { return []any{r.N, r.Sampling.Seed, r.NPredict} }, []any{3, uint32(4294967295), 0}},
		{`{"prompt":"x","temp":0.5,"top_k":3,"top_p":0.5,"min_p":0.25}`, func(r *Request) any {
			s := r.Sampling
			return []any{s.Temp, s.TopK, s.TopP, s.MinP, s.UserSamplingConfig}
		}, []any{float32(0.5), 3, float32(0.5), float32(0.25), engine.ConfigTemp | engine.ConfigTopK | engine.ConfigTopP | engine.ConfigMinP}},
		{`{"prompt":"x","stop":"a"}`, func(r *Request) any { return r.Stop }, []string{"a"}},
		{`{"prompt":"x","stop":["a","b"]}`, func(r *Request) any { return r.Stop }, []string{"a", "b"}},
		{`{"prompt":"x","stop":null}`, func(r *Request) any { return r.Stop }, []string{"run"}},
		{`{"prompt":"x","logprobs":2,"prompt_logprobs":true,"echo":true}`, func(r *Request) any { return []any{r.NProbs, r.Sampling.NProbs, r.PromptLogprobs, r.Echo} }, []any{2, 2, true, true}},
		{`{"prompt":"x","logit_bias":{"7":-100,"3":1.5}}`, func(r *Request) any { return r.Sampling.LogitBias }, []engine.LogitBias{{Token: 3, Bias: 1.5}, {Token: 7, Bias: -100}}},
		{`{"custom_id":"c","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"x","max_tokens":3,"user":"u","stream":false}}`,
			func(r *Request) any { return []any{r.ID, r.Prompt, r.NPredict} }, []any{`"c"`, "x", 3}},
	} {
		r, err := q.Parse(pipeline.ParseRecord(1, []byte(tt.raw)))
		if err != nil {
			t.Errorf("%s: %v", tt.raw, err)
			continue
		}
		if got, want := fmt.Sprintf("%#v", tt.get(r)), fmt.Sprintf("%#v", tt.want); got != want {
			t.Errorf("%s: got %s, want %s", tt.raw, got, want)
		}
	}
	if d := q.Default; d.N != 0 || len(d.Sampling.LogitBias) != 0 || d.Stop[0] != "run" {
		t.Errorf("the defaults have changed: %+v", d)
	}
}

func TestParseErrors(t *testing.T) {
	q := testRequests()
	open := func(body string) string {
		return `{"custom_id":"c","method":"POST","url":"/v1/completions","body":` + body + `}`
	}
	for _, tt := range []struct{ raw, code, text string }{
		{`{}`, CodeInvalidValue, "neither a prompt nor messages"},
		{`{"prompt":1}`, CodeInvalidValue, "prompt: want a string, got a number"},
		{`{"prompt":null}`, CodeInvalidValue, "prompt: want a string, got null"},
		{`{"prompt":["a"]}`, CodeInvalidValue, "prompt[0]: got a string, want a whole number"},
		{`{"prompt":[1,null]}`, CodeInvalidValue, "prompt[1]: got null, want a token id"},
		{`{"prompt":[]}`, CodeEmptyPrompt, ""},
		{`{"prompt":"\ud800"}`, CodeInvalidValue, "half of a character"},
		{`{"prompt":"x","Temp":1}`, CodeUnknownField, `unknown field "Temp"`},
		{`{"prompt":"x","temp":"1"}`, CodeInvalidValue, `temp: want a number, got "1"`},
		{`{"prompt":"x","temp":-1}`, CodeInvalidValue, "temp: -1, want 0 to"},
		{`{"prompt":"x","n":0}`, CodeInvalidValue, "n: 0, want 1 to 1024"},
		{`{"prompt":"x","n":1.5}`, CodeInvalidValue, "n: want a whole number, got 1.5"},
		{`{"prompt":"x","seed":-1}`, CodeInvalidValue, "seed: -1"},
		{`{"prompt":"x","stop":[""]}`, CodeInvalidValue, "stop: an empty"},
		{`{"prompt":"x","logit_bias":{"x":1}}`, CodeInvalidValue, `"x" is no token id`},
		{`{"prompt":"x","messages":[]}`, CodeInvalidValue, "give one of them"},
		{`{"messages":[]}`, CodeUnsupported, "no chat template"},
		{`{"prompt":"x","tools":[]}`, CodeInvalidValue, "they go with messages"},
		{`{"prompt":[1],"prefill":"x"}`, CodeInvalidValue, "token ids"},
		{`{"prompt":"x","grammar":"root ::= \"a\"","json_schema":{}}`, CodeInvalidValue, ""},
		{`{"prompt":"x","top_logprobs":3}`, CodeInvalidValue, "top_logprobs"},
		{`{"prompt":"x","response_format":{"type":"x"}}`, CodeInvalidValue, `type "x"`},
		{`{"prompt":"x","stream":true}`, CodeInvalidValue, "stream"},
		{`{"prompt":"x","user":"u"}`, CodeUnknownField, "user"},
		{open(`{"prompt":"x","best_of":2}`), CodeUnknownField, "best_of"},
		{open(`{"prompt":"x","prompt":"y"}`), CodeInvalidValue, "twice"},
		{open(`3`), CodeInvalidValue, "body"},
		{open(`{"messages":[]}`), CodeInvalidValue, "takes a prompt"},
		{`{"custom_id":"c","method":"GET","url":"/v1/completions","body":{}}`, CodeInvalidValue, `method: "GET", want POST`},
		{`{"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{}}`, CodeInvalidValue, "url"},
		{`{"custom_id":"c","method":"POST","body":{}}`, CodeInvalidValue, "url: want a string, got nothing"},
		{`{"custom_id":"c","prompt":"x"}`, CodeUnknownField, "prompt"},
	} {
		rec := pipeline.ParseRecord(1, []byte(tt.raw))
		if rec.Err != nil {
			t.Fatalf("%s: %v", tt.raw, rec.Err)
		}
		_, err := q.Parse(rec)
		var e *pipeline.RecordError
		if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Msg, tt.text) || strings.Contains(e.Msg, "\n") {
			t.Errorf("%s: got %#v, want %s, %q", tt.raw, err, tt.code, tt.text)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"prompt":"x","n":2,"stop":["a"],"logit_bias":{"1":2}}`, `{"prompt":[1,2,3]}`, `{"prompt":"x","response_format":{"type":"text"}}`,
		`{"custom_id":"c","method":"POST","url":"/v1/completions","body":{"prompt":"x","logprobs":1}}`, `{"messages":[{"role":"user","content":"x"}]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		rec := pipeline.ParseRecord(1, []byte(raw))
		if rec.Err != nil {
			return
		}
		q := testRequests()
		r, err := q.Parse(rec)
		var e *pipeline.RecordError
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%q: %v is no error of the record", raw, err)
		}
		if err == nil && (r.N < 0 || r.N > maxTexts || r.NPredict < -2 || len(r.Tokens) > 0 && r.Prompt != "") {
			t.Errorf("%q: got %+v", raw, r)
		}
		if line, err := q.ErrorLine(rec, errors.New("x")); err != nil || !json.Valid(line) {
			t.Errorf("%q: error line %s, %v", raw, line, err)
		}
	})
}

// reply makes the reply of a request with texts.
func reply(t *testing.T, q *Requests, raw string, texts ...string) Reply {
	t.Helper()
	r, err := q.Parse(pipeline.ParseRecord(3, []byte(raw)))
	if err != nil {
		t.Fatal(err)
	}
	rep := Reply{Request: r}
	for i, text := range texts {
		res := Result{FinishReason: FinishEOS, Seed: uint32(i), NCtx: 64, Usage: Usage{PromptTokens: 4, CompletionTokens: 2, CachedTokens: i}}
		res.Text, res.TextBase64 = jsonText([]byte(text))
		if r.NProbs > 0 {
			lp := -0.5
			c := Candidate{ID: 7, Text: text, Logprob: &lp}
			res.Logprobs = []TokenLogprob{{Candidate: c, Top: []Candidate{c}}}
		}
		rep.Results = append(rep.Results, res)
	}
	return rep
}

func TestLine(t *testing.T) {
	q := testRequests()
	for _, tt := range []struct {
		reply Reply
		want  string
	}{
		{reply(t, q, `{"id":"a","prompt":"x"}`, "b<\xff"),
			`{"type":"completion","id":"a","text":"b<\ufffd","text_base64":"Yjz/","finish_reason":"eos","stop":"","truncated":false,"seed":0,` +
				`"usage":{"prompt_tokens":4,"completion_tokens":2,"cached_tokens":0},"n_ctx":64,"fingerprint":"0000000000000003"}`},
		{reply(t, q, `{"prompt":"x","n":2}`, "b", "c"),
			`{"type":"completion","id":3,"choices":[{"text":"b","finish_reason":"eos","stop":"","truncated":false,"seed":0},` +
				`{"text":"c","finish_reason":"eos","stop":"","truncated":false,"seed":1}],"usage":{"prompt_tokens":4,"completion_tokens":4,"cached_tokens":0},` +
				`"n_ctx":64,"fingerprint":"0000000000000003"}`},
		{reply(t, q, `{"custom_id":"c","method":"POST","url":"/v1/completions","body":{"prompt":"x","logprobs":1}}`, "b"),
			`{"id":"batch_req_0000000000000003","custom_id":"c","response":{"status_code":200,"request_id":"req_0000000000000003",` +
				`"body":{"id":"cmpl-0000000000000003","object":"text_completion","created":0,"model":"tiny","choices":[{"index":0,"text":"b",` +
				`"logprobs":{"tokens":["b"],"token_logprobs":[-0.5],"top_logprobs":[{"b":-0.5}],"text_offset":[0]},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":0}}}},"error":null}`},
	} {
		got, err := q.Line(tt.reply)
		if err != nil || string(got) != tt.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
		}
		p, err := ParseLine(got)
		if err != nil || p.ID != tt.reply.ID || p.Key != "0000000000000003" || p.Failed {
			t.Errorf("%s: read back %+v, %v", got, p, err)
		}
	}
	for raw, want := range map[string]string{
		"{x":                `{"type":"error","id":5,"line":5,"error":{"code":"failed","message":"it fails"},"fingerprint":"0000000000000005"}`,
		`{"custom_id":"c"}`: `{"id":"batch_req_0000000000000005","custom_id":"c","response":null,"error":{"code":"failed","message":"it fails"}}`,
	} {
		rec := pipeline.ParseRecord(5, []byte(raw))
		got, err := q.ErrorLine(rec, errors.New("it fails"))
		if err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
		if p, err := ParseLine(got); err != nil || p.ID != rec.ID || p.Key != "0000000000000005" || !p.Failed {
			t.Errorf("%s: read back %+v, %v", got, p, err)
		}
	}
	for _, bad := range []string{"", "{}", `{"id":"a"}`, `[]`, `{"custom_id":"c"}`} {
		if p, err := ParseLine([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, p)
		}
	}
}

func TestCountTokens(t *testing.T) {
	q := testRequests()
	for _, tt := range []struct {
		raw       string
		tokens    int
		truncated bool
		overflow  bool
		err       bool
	}{
		{`{"prompt":"abc","max_tokens":50}`, 7, false, false, false},
		{`{"prompt":"abc","max_tokens":58}`, 7, false, true, false},
		{`{"prompt":"` + strings.Repeat("x", 56) + `"}`, 60, false, true, false},
		{`{"prompt":"` + strings.Repeat("x", 57) + `"}`, 61, false, false, true},
		{`{"prompt":"bad"}`, 7, false, false, false}, // "pppbad"
	} {
		r, err := q.Parse(pipeline.ParseRecord(1, []byte(tt.raw)))
		if err != nil {
			t.Fatal(err)
		}
		c, err := CountTokens(fakeVocab{}, 64, "ppp", r)
		if (err != nil) != tt.err || c.PromptTokens != tt.tokens || c.Truncated != tt.truncated || c.Overflow != tt.overflow {
			t.Errorf("%.40s: got %+v, %v", tt.raw, c, err)
		}
		r.Overflow = OverflowTruncate
		if c, err := CountTokens(fakeVocab{}, 64, "ppp", r); err != nil || c.Truncated != (tt.tokens >= 64) {
			t.Errorf("%.40s, truncate: got %+v, %v", tt.raw, c, err)
		}
	}
}

func TestSampleSeed(t *testing.T) {
	seen := map[uint32]string{}
	for _, seed := range []uint32{0, 1, engine.RandomSeed} {
		for _, id := range []string{"1", "2", `"1"`, ""} {
			for k := range 3 {
				s := SampleSeed(seed, id, k)
				what := fmt.Sprint(seed, id, k)
				if old, ok := seen[s]; ok || s == engine.RandomSeed {
					t.Errorf("%s and %s have the seed %d", what, old, s)
				}
				seen[s] = what
			}
		}
	}
	// It is part of what a user can rely on: the same answers from the next version.
	if got := SampleSeed(7, "x", 1); got != 0x180f8386 {
		t.Errorf("SampleSeed(7, x, 1) = %#x", got)
	}
}
