package tokens

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"

	"gollama/internal/pipeline"
)

// Manifest describes a token file F; it is in F.json. F itself is the ids,
// little endian and nothing else, and F.idx the index of each document's first
// id in F as little-endian u64.
type Manifest struct {
	Format      string `json:"format"`  // "gollama-tokens"
	Version     int    `json:"version"` // 1
	DType       string `json:"dtype"`   // "uint16" or "uint32", numpy's names
	NTokens     int64  `json:"n_tokens"`
	NDocuments  int64  `json:"n_documents"`
	NBytes      int64  `json:"n_bytes"` // of text
	SHA256      string `json:"sha256"`  // of F
	IndexSHA256 string `json:"index_sha256"`

	Vocab struct {
		SHA256  string `json:"sha256"` // of texts, types, scores and merges: see Vocab.Hash
		Type    string `json:"type"`
		Pre     string `json:"pre"`
		NTokens int    `json:"n_tokens"`
	} `json:"vocab"`
	BOS      string `json:"bos"`       // auto, on or off
	EOS      string `json:"eos"`       // auto, on or off
	BOSToken *Token `json:"bos_token"` // before each document; null if none is
	EOSToken *Token `json:"eos_token"` // after each document; null if none is
	Special  string `json:"special"`   // parse or literal

	Program string   `json:"program,omitempty"`
	Engine  string   `json:"engine,omitempty"`
	Command []string `json:"command,omitempty"`
}

const (
	manifestFormat  = "gollama-tokens"
	manifestVersion = 1
	// maxU16Vocab is how many tokens fit in 16 bits.
	maxU16Vocab = 1 << 16
)

// Width returns the bytes of an id in a token file of a vocabulary of n tokens.
func Width(n int) int {
	if n <= maxU16Vocab {
		return 2
	}
	return 4
}

// Writer writes a token file. Its three files get their names together, at
// Commit.
type Writer struct {
	man      Manifest
	ids, idx *pipeline.File
	bufs     [2]*bufio.Writer
	sums     [2]hash.Hash
	json     *pipeline.File
	width    int
	scratch  []byte
}

// Create begins the token file path, path.idx and path.json. man holds what
// cannot be counted.
func Create(path string, nVocab int, man Manifest) (*Writer, error) {
	w := &Writer{man: man, width: Width(nVocab)}
	for i, f := range []**pipeline.File{&w.ids, &w.idx, &w.json} {
		var err error
		if *f, err = pipeline.CreateAtomic(path + []string{"", ".idx", ".json"}[i]); err != nil {
			w.Abort()
			return nil, err
		}
	}
	w.sums = [2]hash.Hash{sha256.New(), sha256.New()}
	w.bufs[0] = bufio.NewWriterSize(io.MultiWriter(w.ids, w.sums[0]), 1<<20)
	w.bufs[1] = bufio.NewWriterSize(io.MultiWriter(w.idx, w.sums[1]), 1<<16)
	w.man.Format, w.man.Version = manifestFormat, manifestVersion
	w.man.DType = map[int]string{2: "uint16", 4: "uint32"}[w.width]
	w.man.Vocab.NTokens = nVocab
	return w, nil
}

// Add appends a document of ids that stood for nBytes of text. The ids must be
// those of the vocabulary.
func (w *Writer) Add(ids []Token, nBytes int) error {
	w.scratch = binary.LittleEndian.AppendUint64(w.scratch[:0], uint64(w.man.NTokens))
	if _, err := w.bufs[1].Write(w.scratch); err != nil {
		return err
	}
	for len(ids) > 0 {
		part := ids[:min(len(ids), 1<<16)]
		ids = ids[len(part):]
		w.scratch = AppendBinary(w.scratch[:0], part, w.width)
		if _, err := w.bufs[0].Write(w.scratch); err != nil {
			return err
		}
		w.man.NTokens += int64(len(part))
	}
	w.man.NDocuments++
	w.man.NBytes += int64(nBytes)
	return nil
}

// Commit gives the three files their names. On an error none of them is left
// half written; F itself comes last, and an old one goes first, so that who
// finds it finds the index and the manifest of the same run ([pipeline.CommitAll]).
func (w *Writer) Commit() error {
	defer w.Abort()
	for i, b := range w.bufs {
		if err := b.Flush(); err != nil {
			return err
		}
		sum := hex.EncodeToString(w.sums[i].Sum(nil))
		if i == 0 {
			w.man.SHA256 = sum
		} else {
			w.man.IndexSHA256 = sum
		}
	}
	text, err := json.MarshalIndent(w.man, "", "  ")
	if err != nil {
		return err
	}
	if _, err := w.json.Write(append(text, '\n')); err != nil {
		return err
	}
	return pipeline.CommitAll(w.ids, w.idx, w.json)
}

// Abort drops what is not committed.
func (w *Writer) Abort() {
	w.ids.Abort()
	w.idx.Abort()
	w.json.Abort()
}

// ErrFile is wrapped by errors of files that are no token file.
var ErrFile = errors.New("not a token file")

// File is an open token file.
type File struct {
	Manifest
	f      *os.File
	starts []uint64
	width  int64
}

// OpenFile opens the token file path with its .idx and .json. Sizes are
// checked; see [File.Verify] for the sums.
func OpenFile(path string) (*File, error) {
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, err
	}
	t := &File{}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %s", path, ErrFile, fmt.Sprintf(format, args...))
	}
	if err := pipeline.Decode(text, &t.Manifest); err != nil {
		return nil, bad("%s.json: %v", path, err)
	}
	switch t.DType {
	case "uint16":
		t.width = 2
	case "uint32":
		t.width = 4
	}
	switch {
	case t.Format != manifestFormat || t.Version != manifestVersion:
		return nil, bad("format %q version %d, want %q %d", t.Format, t.Version, manifestFormat, manifestVersion)
	case t.width == 0:
		return nil, bad("dtype %q, want uint16 or uint32", t.DType)
	case t.NTokens < 0 || t.NTokens > math.MaxInt64/4 || t.NDocuments < 0:
		return nil, bad("%d tokens in %d documents", t.NTokens, t.NDocuments)
	}
	if err := t.readIndex(path, bad); err != nil {
		return nil, err
	}
	if t.f, err = os.Open(path); err != nil {
		return nil, err
	}
	st, err := t.f.Stat()
	if err == nil && st.Size() != t.NTokens*t.width {
		err = bad("%d bytes, want %d for %d tokens", st.Size(), t.NTokens*t.width, t.NTokens)
	}
	if err != nil {
		_ = t.f.Close() // only read from
		return nil, err
	}
	return t, nil
}

func (t *File) readIndex(path string, bad func(string, ...any) error) error {
	idx, err := os.ReadFile(path + ".idx")
	if err != nil {
		return err
	}
	if len(idx)%8 != 0 || int64(len(idx)/8) != t.NDocuments {
		return bad("%s.idx: %d bytes, want %d documents of 8", path, len(idx), t.NDocuments)
	}
	t.starts = make([]uint64, len(idx)/8)
	prev := uint64(0)
	for i := range t.starts {
		t.starts[i] = binary.LittleEndian.Uint64(idx[8*i:])
		if t.starts[i] < prev || t.starts[i] > uint64(t.NTokens) || i == 0 && t.starts[i] != 0 {
			return bad("%s.idx: document %d starts at %d, want %d to %d", path, i, t.starts[i], prev, t.NTokens)
		}
		prev = t.starts[i]
	}
	return nil
}

// Len returns the number of documents.
func (t *File) Len() int { return len(t.starts) }

// Bounds returns where document i starts and ends, in tokens. It panics if
// there is no document i.
func (t *File) Bounds(i int) (start, end int64) {
	end = t.NTokens
	if i+1 < len(t.starts) {
		end = int64(t.starts[i+1])
	}
	return int64(t.starts[i]), end
}

// Read returns the ids from start on, as many as there are in dst, which they
// overwrite. An id that the vocabulary cannot have is an error.
func (t *File) Read(dst []Token, start int64) error {
	if start < 0 || start > t.NTokens-int64(len(dst)) {
		return fmt.Errorf("tokens %d to %d, the file has %d", start, start+int64(len(dst)), t.NTokens)
	}
	raw := make([]byte, int64(len(dst))*t.width)
	if _, err := t.f.ReadAt(raw, start*t.width); err != nil {
		return err
	}
	for i := range dst {
		id := uint32(0)
		if t.width == 2 {
			id = uint32(binary.LittleEndian.Uint16(raw[2*i:]))
		} else {
			id = binary.LittleEndian.Uint32(raw[4*i:])
		}
		if int64(id) >= int64(t.Vocab.NTokens) {
			return fmt.Errorf("%s: %w: token %d at %d, the vocabulary has %d", t.f.Name(), ErrFile, id, start+int64(i), t.Vocab.NTokens)
		}
		dst[i] = Token(id)
	}
	return nil
}

// Verify reads the whole file and compares its sum with the manifest's.
func (t *File) Verify() error {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(t.f, 0, t.NTokens*t.width)); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != t.SHA256 {
		return fmt.Errorf("%s: %w: sha256 is %s, the manifest has %s", t.f.Name(), ErrFile, got, t.SHA256)
	}
	return nil
}

// Close closes the file. It may be called twice and on nil.
func (t *File) Close() error {
	if t == nil || t.f == nil {
		return nil
	}
	f := t.f
	t.f = nil
	return f.Close()
}

// Hash returns a sum over everything that decides about ids: the texts, types
// and scores of the tokens, the merges and the pre-tokenizer.
func (v *Vocab) Hash() string {
	h := sha256.New()
	w := bufio.NewWriterSize(h, 1<<16)
	var num [8]byte
	text := func(s string) {
		binary.LittleEndian.PutUint64(num[:], uint64(len(s)))
		_, _ = w.Write(num[:]) // a hash takes everything
		_, _ = w.WriteString(s)
	}
	text(v.Model)
	text(v.Pre)
	for i, s := range v.texts {
		text(s)
		binary.LittleEndian.PutUint32(num[:], math.Float32bits(v.Score(Token(i))))
		binary.LittleEndian.PutUint32(num[4:], uint32(v.attrs[i]))
		_, _ = w.Write(num[:])
	}
	for _, s := range v.merges {
		text(s)
	}
	_ = w.Flush()
	return hex.EncodeToString(h.Sum(nil))
}
