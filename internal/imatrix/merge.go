package imatrix

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"gollama/internal/gguf"
)

// ErrTwice is wrapped by the error that a merge would count something twice.
var ErrTwice = errors.New("counts twice")

// ErrTorn is wrapped by the error that a file was saved in the middle of a chunk.
var ErrTorn = errors.New("torn file")

type mergeError struct {
	err  error
	kind error
}

func (e *mergeError) Error() string        { return e.err.Error() }
func (e *mergeError) Unwrap() error        { return e.err }
func (e *mergeError) Is(target error) bool { return target == e.kind }

// Merger adds files up. The result does not depend on their order: sums are added with the rounding error of each
// addition kept, and rounded once.
type Merger struct {
	// Force takes files that count something twice and torn ones.
	Force bool
	// Warnings are what a user should know of, such as files of different models.
	Warnings []string

	entries map[string]*accumulator
	files   int
	out     File
	unknown bool           // a file without ranges was merged
	seen    map[uint64]int // files by the sum of their contents
}

// accumulator is an entry in the making.
type accumulator struct {
	Entry
	low2, low []float64 // what Sum2 and Sum lack
	noSum     bool      // a part has no sums of activations
}

// Add takes in a file, which must not be changed afterwards. The error wraps [ErrTwice] or [ErrTorn] if Force would
// help; nothing was added then.
func (m *Merger) Add(name string, f *File) error {
	if m.entries == nil {
		m.entries, m.seen = map[string]*accumulator{}, map[uint64]int{}
		m.out.Ranges = Ranges{}
	}
	if f.ChunkSize < 1 {
		return fmt.Errorf("%s: the number of tokens in a chunk is not known", name)
	}
	if err := m.allowed(name, f); err != nil {
		return err
	}
	for _, e := range f.Entries {
		if err := m.fits(name, e); err != nil {
			return err
		}
	}
	for _, e := range f.Entries {
		m.add(e)
	}
	m.describe(name, f)
	return nil
}

// allowed checks that nothing counts twice.
func (m *Merger) allowed(name string, f *File) error {
	if torn := f.Torn(); torn != "" && !m.Force {
		return &mergeError{fmt.Errorf("%s: %s", name, torn), ErrTorn}
	}
	sum := f.contentSum()
	if m.seen[sum] > 0 && !m.Force {
		return &mergeError{fmt.Errorf("%s: it is the same as file %d of the merge", name, m.seen[sum]), ErrTwice}
	}
	union := Ranges{}
	for hash, spans := range m.out.Ranges {
		union[hash] = slices.Clone(spans)
	}
	for hash, spans := range f.Ranges {
		for _, s := range spans {
			if err := union.Add(hash, s); err != nil && !m.Force {
				return &mergeError{fmt.Errorf("%s: %w", name, err), ErrTwice}
			}
		}
	}
	m.files++
	m.seen[sum] = m.files
	m.out.Ranges = union
	m.unknown = m.unknown || f.Ranges == nil
	return nil
}

// contentSum stands for what was measured.
func (f *File) contentSum() uint64 {
	h := fnv.New64a()
	for _, e := range f.Entries {
		var sum float64
		for _, v := range e.Sum2 {
			sum += v
		}
		_, _ = fmt.Fprint(h, e.Name, e.Counts, math.Float64bits(sum), math.Float64bits(e.Sum2[0])) // a hash takes all
	}
	return h.Sum64()
}

// fits checks an entry against that of the files before.
func (m *Merger) fits(name string, e *Entry) error {
	a := m.entries[e.Name]
	if a == nil {
		return nil
	}
	if len(a.Sum2) != len(e.Sum2) {
		return formatErrorf("%s: entry %q has %d values, want %d as in the files before it", name, e.Name, len(e.Sum2), len(a.Sum2))
	}
	if len(a.Counts) != len(e.Counts) && len(a.Counts) != 1 && len(e.Counts) != 1 {
		return formatErrorf("%s: entry %q has %d counts, want %d as in the files before it", name, e.Name, len(e.Counts), len(a.Counts))
	}
	return nil
}

func (m *Merger) add(e *Entry) {
	a := m.entries[e.Name]
	if a == nil {
		a = &accumulator{Entry: Entry{Name: e.Name, Sum2: slices.Clone(e.Sum2), Sum: slices.Clone(e.Sum), Counts: slices.Clone(e.Counts)}}
		a.low2, a.noSum = make([]float64, len(e.Sum2)), e.Sum == nil
		if !a.noSum {
			a.low = make([]float64, len(e.Sum2))
		}
		m.entries[e.Name] = a
		return
	}
	// One count of an older file stands for each of the experts, as llama-imatrix takes it.
	if len(a.Counts) < len(e.Counts) {
		a.Counts = slices.Repeat(a.Counts, len(e.Counts))
	}
	for i := range a.Counts {
		a.Counts[i] += e.Counts[min(i, len(e.Counts)-1)]
	}
	addExact(a.Sum2, a.low2, e.Sum2)
	if a.noSum = a.noSum || e.Sum == nil; !a.noSum {
		addExact(a.Sum, a.low, e.Sum)
	}
}

// addExact adds x to high, and the rounding errors to low. Source: Knuth's two-sum, TAOCP 2, 4.2.2, theorem B.
func addExact(high, low, x []float64) {
	low, x = low[:len(high)], x[:len(high)]
	for i, a := range high {
		b := x[i]
		s := a + b
		t := s - a
		low[i] += (a - (s - t)) + (b - t)
		high[i] = s
	}
}

// describe takes over what is known of a file's origin.
func (m *Merger) describe(name string, f *File) {
	for _, d := range f.Datasets {
		if !slices.Contains(m.out.Datasets, d) {
			m.out.Datasets = append(m.out.Datasets, d)
		}
	}
	if m.files == 1 {
		m.out.ChunkSize, m.out.Model = f.ChunkSize, f.Model
		return
	}
	if f.ChunkSize != m.out.ChunkSize {
		m.Warnings = append(m.Warnings, fmt.Sprintf("%s: chunks of %d tokens, those of the first file have %d, by which all are counted", name, f.ChunkSize, m.out.ChunkSize))
	}
	if f.Model != m.out.Model && f.Model != "" && m.out.Model != "" {
		m.Warnings = append(m.Warnings, fmt.Sprintf("%s: it was measured on another model file than the first", name))
	}
	if f.Model != m.out.Model {
		m.out.Model = ""
	}
}

// Result returns the sum of the files. Keys says how it is made.
func (m *Merger) Result(keys gguf.KVs) (*File, error) {
	f := m.out
	if m.unknown {
		if len(f.Ranges) > 0 {
			m.Warnings = append(m.Warnings, "a file does not say what data it was measured on: the result does not, either")
		}
		f.Ranges = nil
	}
	f.Keys = keys
	slices.Sort(f.Datasets)
	for _, a := range m.entries {
		for i := range a.Sum2 {
			a.Sum2[i] += a.low2[i]
		}
		if a.noSum {
			a.Sum = nil
		}
		for i := range a.Sum {
			a.Sum[i] += a.low[i]
		}
		f.Entries = append(f.Entries, &a.Entry)
	}
	if len(f.Entries) == 0 {
		return nil, formatErrorf("nothing was merged")
	}
	if err := f.sort(); err != nil {
		return nil, err
	}
	for _, e := range f.Entries {
		if err := e.check(); err != nil {
			return nil, err
		}
	}
	return &f, nil
}
