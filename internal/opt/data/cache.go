package data

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"

	"gollama/internal/pipeline"
)

// A cache file is: the tokens of all documents as little-endian u32; the documents, each at u64, n
// u32, run u32, source u32, 0 u32, hash u64; the runs, each n u32, w f32; the report as JSON; and
// the footer: the lengths of these four parts in bytes as u64, the CRC-32C of the last three as
// u32, and the magic.
const (
	cacheMagic  = "gollama1"
	footerSize  = 4*8 + 4 + len(cacheMagic)
	docSize     = 32
	runSize     = 8
	tokenSize   = 4
	cacheFormat = 1 // of the tokens too: another one whenever encode changes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// cachePath returns the file for these data and options, or "" where nothing is cached: without a
// folder, and for standard input, which cannot be read twice.
func (o *Options) cachePath(ctx context.Context) (string, error) {
	if o.CacheDir == "" {
		return "", nil
	}
	h := sha256.New()
	template := [2]string{}
	if o.Chat != nil {
		template = [2]string{o.Chat.Source(false), o.Chat.Source(true)}
	}
	h.Write(fmt.Appendf(nil, "%d %d %v ", o.Vocab.BOS(), o.Vocab.EOS(), o.Vocab.AddBOS())) // the hash leaves them out
	h.Write(fmt.Appendf(nil, "%d %q %q %d %q %q %v %v\n", cacheFormat, o.VocabHash, template, o.MaxLen, o.TooLong, o.TrainOn, o.LastOnly, o.ParseSpecial))
	for i := range o.Sources {
		s := &o.Sources[i]
		if s.Path == "-" {
			return "", nil
		}
		h.Write(fmt.Appendf(nil, "%q %q\n", s.Format, formatOf(s.Path)))
		files := []string{s.Path}
		if s.Format == "tokens" || formatOf(s.Path) == "tokens" && (s.Format == "" || s.Format == "auto") {
			files = []string{s.Path, s.Path + ".idx", s.Path + ".json"}
		}
		for _, f := range files {
			if err := hashFile(ctx, h, f); err != nil {
				return "", err
			}
		}
	}
	return filepath.Join(o.CacheDir, fmt.Sprintf("%x.tokens", h.Sum(nil)[:16])), nil
}

func hashFile(ctx context.Context, h hash.Hash, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	buf := make([]byte, 1<<20)
	total := 0
	for {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		total += n
		if err == io.EOF {
			h.Write(fmt.Appendf(nil, "\n%d\n", total))
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// cacheWriter writes the tokens as they come and keeps the rest until the end.
type cacheWriter struct {
	f *pipeline.File
	w *bufio.Writer
	c corpus
	n int64 // tokens
}

func createCache(path string) (*cacheWriter, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	f, err := pipeline.CreateAtomic(path)
	if err != nil {
		return nil, err
	}
	return &cacheWriter{f: f, w: bufio.NewWriterSize(f, 1<<20)}, nil
}

func (w *cacheWriter) abort() { w.f.Abort() }

func (w *cacheWriter) add(tokens []int32, runs []run, d doc) error {
	d.at, d.n, d.run = w.n, int32(len(tokens)), int32(len(w.c.runs))
	w.c.docs, w.c.runs = append(w.c.docs, d), append(w.c.runs, runs...)
	w.n += int64(len(tokens))
	var b [tokenSize]byte
	for _, t := range tokens {
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		if _, err := w.w.Write(b[:]); err != nil {
			return err
		}
	}
	return nil
}

func (w *cacheWriter) commit(rep *Report) error {
	report, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	crc := crc32.New(castagnoli)
	footer := make([]byte, 0, footerSize)
	for _, n := range []int{int(w.n) * tokenSize, len(w.c.docs) * docSize, len(w.c.runs) * runSize, len(report)} {
		footer = le.AppendUint64(footer, uint64(n))
	}
	both := io.MultiWriter(w.w, crc)
	for _, d := range w.c.docs {
		if _, err := both.Write(d.append(nil)); err != nil {
			return err
		}
	}
	for _, r := range w.c.runs {
		if _, err := both.Write(le.AppendUint32(le.AppendUint32(nil, uint32(r.n)), math.Float32bits(r.w))); err != nil {
			return err
		}
	}
	if _, err := both.Write(report); err != nil {
		return err
	}
	footer = append(le.AppendUint32(footer, crc.Sum32()), cacheMagic...)
	if _, err := w.w.Write(footer); err != nil {
		return err
	}
	if err := w.w.Flush(); err != nil {
		return err
	}
	return w.f.Commit()
}

func (d doc) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(le.AppendUint64(b, uint64(d.at)), uint32(d.n))
	b = le.AppendUint32(le.AppendUint32(b, uint32(d.run)), uint32(d.source))
	return le.AppendUint64(le.AppendUint32(b, 0), d.hash)
}

func parseDoc(b []byte) doc {
	le := binary.LittleEndian
	return doc{at: int64(le.Uint64(b)), n: int32(le.Uint32(b[8:])), run: int32(le.Uint32(b[12:])), source: int32(le.Uint32(b[16:])), hash: le.Uint64(b[24:])}
}

// errCache is why a cache file is made anew; the caller does not show it.
var errCache = errors.New("not a cache file of this version, or a damaged one")

// openCache opens a cache file. Ids are checked against nVocab when they are read.
func openCache(path string, nVocab int) (*corpus, *Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil {
		var c *corpus
		var rep *Report
		if c, rep, err = readCache(f, st.Size(), nVocab); err == nil {
			return c, rep, nil
		}
	}
	_ = f.Close() // nothing was written
	return nil, nil, err
}

// cacheFile is what a corpus reads from.
type cacheFile interface {
	io.ReaderAt
	io.Closer
}

func readCache(f cacheFile, size int64, nVocab int) (*corpus, *Report, error) {
	footer := make([]byte, footerSize)
	if size < int64(footerSize) {
		return nil, nil, errCache
	}
	if _, err := f.ReadAt(footer, size-int64(footerSize)); err != nil {
		return nil, nil, err
	}
	le := binary.LittleEndian
	var parts [4]int64
	left := size - int64(footerSize)
	for i := range parts {
		n := le.Uint64(footer[8*i:])
		if n > uint64(left) {
			return nil, nil, errCache
		}
		parts[i] = int64(n)
		left -= parts[i]
	}
	if left != 0 || string(footer[36:]) != cacheMagic || parts[0]%tokenSize != 0 || parts[1]%docSize != 0 || parts[2]%runSize != 0 {
		return nil, nil, errCache
	}
	index := make([]byte, parts[1]+parts[2]+parts[3])
	if _, err := f.ReadAt(index, parts[0]); err != nil && (err != io.EOF || len(index) > 0) {
		return nil, nil, err
	}
	if crc32.Checksum(index, castagnoli) != le.Uint32(footer[32:]) {
		return nil, nil, errCache
	}
	rep := &Report{}
	if err := pipeline.Decode(index[parts[1]+parts[2]:], rep); err != nil {
		return nil, nil, errCache
	}
	c := &corpus{file: f, nVocab: nVocab}
	for b := index[:parts[1]]; len(b) > 0; b = b[docSize:] {
		c.docs = append(c.docs, parseDoc(b))
	}
	for b := index[parts[1]:][:parts[2]]; len(b) > 0; b = b[runSize:] {
		c.runs = append(c.runs, run{n: int32(le.Uint32(b)), w: math.Float32frombits(le.Uint32(b[4:]))})
	}
	if !c.valid(parts[0]/tokenSize, len(rep.Sources)) {
		return nil, nil, errCache
	}
	return c, rep, nil
}

// valid reports whether documents lie within the tokens and their runs cover them.
func (c *corpus) valid(nTokens int64, nSources int) bool {
	for _, d := range c.docs {
		if d.n < 2 || d.at < 0 || d.at > nTokens-int64(d.n) || d.source < 0 || int(d.source) >= nSources {
			return false
		}
		n := int64(0)
		for r := int(d.run); n < int64(d.n); r++ {
			if r < 0 || r >= len(c.runs) || c.runs[r].n < 1 || !(c.runs[r].w >= 0 && c.runs[r].w <= maxWeight) {
				return false
			}
			n += int64(c.runs[r].n)
		}
		if n != int64(d.n) {
			return false
		}
	}
	return true
}

func (c *corpus) close() error {
	if c == nil || c.file == nil {
		return nil
	}
	c.once.Do(func() { c.closeErr = c.file.Close() })
	return c.closeErr
}
