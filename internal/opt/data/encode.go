package data

import (
	"fmt"
	"hash/fnv"

	"gollama/internal/engine"
)

// encoded is what becomes of a record: no piece, one, or several where it was too long.
type encoded struct {
	pieces    []piece
	empty     bool
	noLabels  bool
	truncated bool
	cut       int64 // tokens that were left out
	split     bool
}

type piece struct {
	tokens []int32
	runs   []run
	hash   uint64
}

// TooLongError says that a record does not fit into an example.
type TooLongError struct{ Tokens, Most int }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("%d tokens, at most %d fit into an example", e.Tokens, e.Most)
}

// encode tokenizes a record, with weights, and cuts it to length.
func (o *Options) encode(r *record) (encoded, error) {
	var e encoded
	if r.empty() {
		e.empty = true
		return e, nil
	}
	var tokens []int32
	var weights []float32
	var err error
	long := o.TooLong
	switch {
	case r.tokens != nil:
		tokens, long = r.tokens, "split"
	case r.messages != nil:
		tokens, weights, err = o.encodeChat(r)
	case r.hasCompletion:
		tokens, weights, err = o.encodeCompletion(r)
	default:
		tokens, err = o.encodeText(r.text)
		if !r.json {
			long = "split" // no text corpus fits into a context
		}
	}
	if err != nil {
		return e, fmt.Errorf("%s: %w", r.where, err)
	}
	if weights == nil {
		weights = ones(len(tokens))
	}
	if err := o.fit(&e, r, tokens, weights, long); err != nil {
		return e, fmt.Errorf("%s: %w", r.where, err)
	}
	return e, nil
}

func ones(n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = 1
	}
	return w
}

// fit makes the pieces of a record's tokens.
func (o *Options) fit(e *encoded, r *record, tokens []int32, weights []float32, long string) error {
	hash := hashOf(r.content())
	most := o.MaxLen + 1
	if len(tokens) > most {
		switch long {
		case "truncate":
			e.truncated, e.cut = true, int64(len(tokens)-most)
			tokens, weights = tokens[:most], weights[:most]
		case "split":
			e.split = true
		default:
			return &TooLongError{len(tokens), most}
		}
	}
	// A text file's pieces are documents of their own: each is for training or for validation.
	own := e.split && !r.json
	for _, p := range o.cut(tokens, weights, most) {
		if !scored(p.weights) {
			continue
		}
		h := hash
		if own {
			h = hashOf((&record{tokens: p.tokens}).content())
		}
		e.pieces = append(e.pieces, piece{tokens: p.tokens, runs: runsOf(p.weights), hash: h})
	}
	e.noLabels = len(e.pieces) == 0
	return nil
}

type weighted struct {
	tokens  []int32
	weights []float32
}

// cut divides tokens into pieces of at most n. Each begins with BOS if the first does; else with the
// last token of the one before, as what begins a piece is not scored.
func (o *Options) cut(tokens []int32, weights []float32, n int) (out []weighted) {
	out = append(out, weighted{tokens[:min(n, len(tokens))], weights[:min(n, len(tokens))]})
	bos := int32(o.Vocab.BOS())
	withBOS := bos >= 0 && tokens[0] == bos
	for at := n; at < len(tokens); at += n - 1 {
		end := min(at+n-1, len(tokens))
		p := weighted{append([]int32{tokens[at-1]}, tokens[at:end]...), append([]float32{0}, weights[at:end]...)}
		if withBOS {
			p.tokens[0] = bos
		}
		out = append(out, p)
	}
	return out
}

// scored reports whether anything but the first token has weight.
func scored(weights []float32) bool {
	for i, w := range weights {
		if i > 0 && w > 0 {
			return true
		}
	}
	return false
}

func runsOf(weights []float32) (runs []run) {
	for i, w := range weights {
		if i == 0 || w != weights[i-1] {
			runs = append(runs, run{w: w})
		}
		runs[len(runs)-1].n++
	}
	return runs
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b) // it never fails
	// FNV's high bits are poor for short inputs; they are what decides about the split.
	return mix(h.Sum64())
}

// mix is the finalizer of splitmix64, a permutation.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// encodeText returns BOS, where the model wants it, the text, and EOS.
func (o *Options) encodeText(text string) ([]int32, error) {
	body, err := o.Vocab.Tokenize(text, false, o.ParseSpecial)
	if err != nil {
		return nil, err
	}
	return o.close(o.open(body)), nil
}

func (o *Options) open(body []engine.Token) []int32 {
	out := ids(body)
	if bos := o.Vocab.BOS(); o.Vocab.AddBOS() && bos >= 0 && (len(body) == 0 || body[0] != bos) {
		out = append([]int32{int32(bos)}, out...)
	}
	return out
}

func (o *Options) close(tokens []int32) []int32 {
	if eos := o.Vocab.EOS(); eos >= 0 && (len(tokens) == 0 || tokens[len(tokens)-1] != int32(eos)) {
		tokens = append(tokens, int32(eos))
	}
	return tokens
}

// encodeCompletion learns what differs from the prompt alone.
func (o *Options) encodeCompletion(r *record) ([]int32, []float32, error) {
	whole, err := o.encodeText(r.prompt + r.completion)
	if err != nil {
		return nil, nil, err
	}
	prompt, err := o.Vocab.Tokenize(r.prompt, false, o.ParseSpecial)
	if err != nil {
		return nil, nil, err
	}
	weights := ones(len(whole))
	clear(weights[:commonPrefix(whole, o.open(prompt))])
	return whole, weights, nil
}

func commonPrefix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
