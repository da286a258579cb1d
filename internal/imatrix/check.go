package imatrix

import (
	"fmt"
	"slices"
	"strings"

	"gollama/internal/gguf"
)

// Problem is something that quantizing a model with a file would stumble over.
type Problem struct {
	Kind   string `json:"kind"` // a word for programs: see the Kind constants
	Tensor string `json:"tensor,omitempty"`
	Text   string `json:"text"`
	Fatal  bool   `json:"fatal"` // false for what is well to know and changes nothing
}

// Kinds of problems.
const (
	KindMissing    = "missing"       // a weight that is quantized has no entry
	KindShape      = "shape"         // its entry is of another size
	KindDead       = "dead_experts"  // experts of it met no token
	KindFew        = "few_tokens"    // experts of it met fewer tokens than asked for
	KindZero       = "zero_channels" // columns of it have a mean square of 0
	KindUnmeasured = "unmeasured"    // a head or embedding has no entry, which quantizers do without
	KindExtra      = "extra"         // an entry belongs to no weight of the model
	KindTorn       = "torn"          // the file was saved in the middle of a chunk
	KindModel      = "model"         // it was measured on another file
	KindOldNames   = "old_names"     // experts are entries of their own, as in old models
)

// CheckOptions is what Check compares with.
type CheckOptions struct {
	Model     string // identity of the model, "" if it is not known
	ExpertMin uint64 // tokens that each expert should have met
}

// Report is the result of Check.
type Report struct {
	Weights  int       `json:"weights"`  // of the model that quantizers change, within its blocks
	Covered  int       `json:"covered"`  // of them, those with a whole entry
	Experts  int       `json:"experts"`  // experts of all weights
	Reached  int       `json:"reached"`  // of them, those that met ExpertMin tokens
	Problems []Problem `json:"problems"` // fatal ones first
}

// OK reports whether no problem is fatal.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Fatal })
}

// Coverage is the share of experts that met enough tokens, 1 if there are none.
func (r *Report) Coverage() float64 {
	if r.Experts == 0 {
		return 1
	}
	return float64(r.Reached) / float64(r.Experts)
}

// measured reports whether a weight can have an entry: one of a block. The embedding, and the head but with
// --process-output, have none.
func measured(name string) bool { return strings.HasPrefix(name, "blk.") }

// Check says what a quantizer would miss that reads f for a model, of which it needs the descriptions of the tensors
// only.
func (f *File) Check(tensors []gguf.TensorInfo, opt CheckOptions) *Report {
	r := &Report{Problems: []Problem{}}
	known := map[string]bool{}
	for _, t := range tensors {
		known[t.Name] = true
		if t.Quantizable() {
			r.weight(f, t, opt)
		}
	}
	add := func(kind, name string, fatal bool, format string, args ...any) {
		r.Problems = append(r.Problems, Problem{kind, name, fmt.Sprintf(format, args...), fatal})
	}
	old := 0
	for _, e := range f.Entries {
		if known[e.Name] {
			continue
		}
		if merged := mergedExpertName(e.Name); merged != "" && known[merged] {
			if old++; old == 1 {
				add(KindOldNames, e.Name, false, "it is of one expert, as in models before %s held all of them", merged)
			}
			continue
		}
		add(KindExtra, e.Name, false, "the model has no such weight")
	}
	if torn := f.Torn(); torn != "" {
		add(KindTorn, "", true, "%s", torn)
	}
	if opt.Model != "" && f.Model != "" && opt.Model != f.Model {
		add(KindModel, "", false, "it was measured on another file than this model, which may be of another type")
	}
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		switch {
		case a.Fatal && !b.Fatal:
			return -1
		case b.Fatal && !a.Fatal:
			return 1
		}
		return 0
	})
	return r
}

// mergedExpertName returns the name of the weight of all experts that one's is part of now: blk.0.ffn_up_exps.weight
// for blk.0.ffn_up.3.weight. It is "" for other names.
func mergedExpertName(name string) string {
	parts := strings.Split(name, ".")
	if len(parts) != 5 || parts[0] != "blk" || parts[4] != "weight" || !strings.HasPrefix(parts[2], "ffn_") {
		return ""
	}
	return fmt.Sprintf("blk.%s.%s_exps.weight", parts[1], parts[2])
}

// weight checks the entry of one weight.
func (r *Report) weight(f *File, t gguf.TensorInfo, opt CheckOptions) {
	e := f.Entry(t.Name)
	add := func(kind string, fatal bool, format string, args ...any) {
		r.Problems = append(r.Problems, Problem{kind, t.Name, fmt.Sprintf(format, args...), fatal})
	}
	if !measured(t.Name) {
		if e == nil {
			add(KindUnmeasured, false, "it has no entry, and is quantized without")
		}
		return
	}
	r.Weights++
	want, experts := t.Shape[0], uint64(1)
	if len(t.Shape) > 2 {
		experts = t.Shape[2]
		want *= experts
	}
	switch {
	case e == nil:
		add(KindMissing, true, "it has no entry")
		return
	case uint64(len(e.Sum2)) != want:
		add(KindShape, true, "its entry has %d values, want %d", len(e.Sum2), want)
		return
	case e.Experts() > 0 && uint64(e.Experts()) != experts:
		add(KindShape, true, "its entry has counts of %d experts, want %d", e.Experts(), experts)
		return
	case e.Tokens() == 0:
		add(KindMissing, true, "its entry has no token")
		return
	}
	r.Covered++
	r.experts(e, opt, add)
	zero := 0
	e.means(func(_ int, m float64) {
		if m == 0 {
			zero++
		}
	})
	if zero > 0 {
		add(KindZero, false, "%d of %d columns have a mean square of 0", zero, len(e.Sum2))
	}
}

// experts counts those that met enough tokens.
func (r *Report) experts(e *Entry, opt CheckOptions, add func(kind string, fatal bool, format string, args ...any)) {
	var dead, few []string
	for i, c := range e.Counts {
		if e.Experts() == 0 {
			break
		}
		r.Experts++
		switch {
		case c >= max(opt.ExpertMin, 1):
			r.Reached++
		case c == 0:
			dead = append(dead, itoa(i))
		default:
			few = append(few, itoa(i))
		}
	}
	if len(dead) > 0 {
		add(KindDead, true, "%d of %d experts met no token: %s", len(dead), len(e.Counts), list(dead))
	}
	if len(few) > 0 {
		add(KindFew, true, "%d of %d experts met fewer than %d tokens: %s", len(few), len(e.Counts), opt.ExpertMin, list(few))
	}
}

// list joins the first few names.
func list(names []string) string {
	const most = 16
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
