// Package imatrix reads, writes, merges, measures and checks importance matrices: for each column of a weight matrix
// the mean square of the activations that it meets, by which quantizers spread their error.
//
// Two formats are read and written, told apart by their first bytes: GGUF with general.type "imatrix", as llama-imatrix
// writes it, and the format before it (.dat). A GGUF file of this package has, beside llama-imatrix's keys and tensors,
// what float32 has no room for: see [File.Write]. Sums are float64 in memory.
//
// Source: tools/imatrix/imatrix.cpp and common/imatrix-loader.cpp of llama.cpp v0.5.0.
package imatrix

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gollama/internal/gguf"
)

// ErrFormat is wrapped by the error that a file is no importance matrix, or a damaged one.
var ErrFormat = errors.New("not an importance matrix")

type formatError struct{ msg string }

func (e *formatError) Error() string        { return e.msg }
func (e *formatError) Is(target error) bool { return target == ErrFormat }

func formatErrorf(format string, args ...any) error {
	return &formatError{"not an importance matrix: " + fmt.Sprintf(format, args...)}
}

// Entry is what was measured at one weight.
type Entry struct {
	Name string
	// Sum2 are the sums of the squares of the activations, by column: Width values for each count, one after the
	// other. A weight of several matrices that all tokens meet (heads) has one count, and a Width of all its columns.
	Sum2 []float64
	// Sum are the sums of the activations themselves, as long as Sum2; nil if the file does not have them.
	Sum []float64
	// Counts are the tokens that were summed: one count, or one for each expert.
	Counts []uint64
}

// Width returns the number of values for each count.
func (e *Entry) Width() int {
	if len(e.Counts) == 0 {
		return 0
	}
	return len(e.Sum2) / len(e.Counts)
}

// Experts returns the number of experts, 0 for a weight that every token meets.
func (e *Entry) Experts() int {
	if len(e.Counts) > 1 {
		return len(e.Counts)
	}
	return 0
}

// Tokens returns the largest count.
func (e *Entry) Tokens() uint64 {
	if len(e.Counts) == 0 {
		return 0
	}
	return slices.Max(e.Counts)
}

// Means returns the mean square of each column; ones for an expert that met no token, as llama-quantize has it.
func (e *Entry) Means() []float32 {
	m := make([]float32, len(e.Sum2))
	width := e.Width()
	for i, v := range e.Sum2 {
		m[i] = 1
		if c := e.Counts[i/width]; c > 0 {
			m[i] = float32(v) / float32(c) // both rounded first, as llama-quantize reads them
		}
	}
	return m
}

// maxCount bounds counts and what they sum to: 2^53, up to which float64 holds every whole number.
const maxCount = 1 << 53

// check returns why the entry cannot be right.
func (e *Entry) check() error {
	switch {
	case e.Name == "":
		return formatErrorf("an entry has no name")
	case len(e.Counts) == 0 || len(e.Sum2) == 0:
		return formatErrorf("entry %q: %d values and %d counts, want 1 or more of both", e.Name, len(e.Sum2), len(e.Counts))
	case len(e.Sum2)%len(e.Counts) != 0:
		return formatErrorf("entry %q: %d values for %d counts, want a multiple", e.Name, len(e.Sum2), len(e.Counts))
	case e.Sum != nil && len(e.Sum) != len(e.Sum2):
		return formatErrorf("entry %q: %d sums for %d squares", e.Name, len(e.Sum), len(e.Sum2))
	}
	width := e.Width()
	for i, v := range e.Sum2 {
		switch {
		case !(v >= 0 && v <= math.MaxFloat32):
			return formatErrorf("entry %q: value %g at position %d, want a finite one of 0 or more", e.Name, v, i)
		case v > 0 && e.Counts[i/width] == 0:
			return formatErrorf("entry %q: value %g at position %d of no token, want 0", e.Name, v, i)
		}
	}
	for i, v := range e.Sum {
		if !(math.Abs(v) <= math.MaxFloat32) {
			return formatErrorf("entry %q: sum %g at position %d, want a finite one", e.Name, v, i)
		}
	}
	for i, c := range e.Counts {
		if c > maxCount {
			return formatErrorf("entry %q: count %d at position %d, want at most %d", e.Name, c, i, uint64(maxCount))
		}
	}
	return nil
}

// File is an importance matrix.
type File struct {
	Entries   []*Entry // by name
	Datasets  []string // names of the texts that were measured
	ChunkSize int      // tokens; 0 if the file does not say: counts are then chunks, and sums are over their means
	Legacy    bool     // read from the format before GGUF
	Model     string   // stands for the model that was measured; "" if the file does not say
	Ranges    Ranges   // what of which data was measured; nil if the file does not say
	Keys      gguf.KVs // further keys of this program: version, command line, settings
}

// Entry returns the entry of a weight, nil if there is none.
func (f *File) Entry(name string) *Entry {
	i, ok := slices.BinarySearchFunc(f.Entries, name, func(e *Entry, name string) int { return cmp.Compare(e.Name, name) })
	if !ok {
		return nil
	}
	return f.Entries[i]
}

// Tokens returns the largest count of all entries.
func (f *File) Tokens() uint64 {
	var n uint64
	for _, e := range f.Entries {
		n = max(n, e.Tokens())
	}
	return n
}

// Chunks returns how many whole chunks the file holds, as llama-imatrix counts them.
func (f *File) Chunks() int {
	return int(min(f.Tokens()/uint64(max(f.ChunkSize, 1)), math.MaxInt32))
}

// Means returns the mean squares by the name of the weight; see [Entry.Means].
func (f *File) Means() map[string][]float32 {
	m := make(map[string][]float32, len(f.Entries))
	for _, e := range f.Entries {
		m[e.Name] = e.Means()
	}
	return m
}

// Torn says that the file was saved in the middle of a chunk, as llama-imatrix does it: weights that every token meets
// have different counts. It returns "" if they have not.
func (f *File) Torn() string {
	counts := map[uint64]int{}
	var dense []*Entry
	for _, e := range f.Entries {
		if e.Experts() == 0 && strings.HasPrefix(e.Name, "blk.") {
			counts[e.Counts[0]]++
			dense = append(dense, e)
		}
	}
	if len(counts) < 2 {
		return ""
	}
	most := uint64(0)
	for c, n := range counts {
		if n > counts[most] || n == counts[most] && c > most {
			most = c
		}
	}
	for _, e := range dense {
		if e.Counts[0] != most {
			return fmt.Sprintf("%q has %d tokens and %d others have %d: the file was saved in the middle of a chunk",
				e.Name, e.Counts[0], counts[most], most)
		}
	}
	return ""
}

// sort puts the entries in order and refuses two of one name.
func (f *File) sort() error {
	slices.SortFunc(f.Entries, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
	for i, e := range f.Entries {
		if i > 0 && f.Entries[i-1].Name == e.Name {
			return formatErrorf("entry %q is there twice", e.Name)
		}
	}
	return nil
}

// SplitName returns the block of a weight, -1 if it is of none, and the name within it: "attn_q" of
// blk.3.attn_q.weight.
func SplitName(name string) (block int, short string) {
	short = strings.TrimSuffix(name, ".weight")
	rest, ok := strings.CutPrefix(short, "blk.")
	if !ok {
		return -1, short
	}
	number, tail, ok := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil {
		return -1, short
	}
	return int(n), tail
}
