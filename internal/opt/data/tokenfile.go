package data

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// tokenManifest is what F.json must say of the token file F.
type tokenManifest struct {
	DType string `json:"dtype"` // of the ids in F: u16 or u32, little-endian
}

// readTokenFile reads the token file path: raw ids, with the starts of the documents as u64 in
// path.idx and a manifest in path.json. Ids are checked against nVocab.
func readTokenFile(path string, nVocab int, emit func(record) error) error {
	if path == "-" {
		return errors.New("standard input: a token file is three files, give its name")
	}
	width, err := tokenWidth(path + ".json")
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size()%width != 0 {
		return fmt.Errorf("%s: %d bytes are no whole number of tokens of %d bytes", path, st.Size(), width)
	}
	index, err := os.Open(path + ".idx")
	if err != nil {
		return err
	}
	defer func() { _ = index.Close() }() // nothing was written
	t := &tokenReader{path: path, r: bufio.NewReaderSize(f, 1<<16), width: width, total: uint64(st.Size() / width), nVocab: nVocab, emit: emit}
	return t.readAll(bufio.NewReader(index))
}

func tokenWidth(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var m tokenManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return 0, fmt.Errorf("%s: %w", path, jsonError(err))
	}
	switch m.DType {
	case "u16", "uint16":
		return 2, nil
	case "u32", "uint32":
		return 4, nil
	}
	return 0, fmt.Errorf("%s: dtype %q, want u16 or u32", path, m.DType)
}

type tokenReader struct {
	path   string
	r      *bufio.Reader
	width  int64
	at     uint64 // tokens read
	total  uint64
	nVocab int
	emit   func(record) error
}

func (t *tokenReader) readAll(index io.Reader) error {
	for n := 0; ; n++ {
		var b [8]byte
		_, err := io.ReadFull(index, b[:])
		start := binary.LittleEndian.Uint64(b[:])
		switch {
		case err == io.EOF && n == 0 && t.total > 0:
			return fmt.Errorf("%s.idx: it has no documents, the file has %d tokens", t.path, t.total)
		case err == io.EOF:
			return t.document(n-1, t.total)
		case err != nil:
			return fmt.Errorf("%s.idx: %w", t.path, err)
		case start > t.total || start < t.at || n == 0 && start != 0:
			return fmt.Errorf("%s.idx: document %d starts at token %d of %d, the one before at %d", t.path, n, start, t.total, t.at)
		case n > 0:
			if err := t.document(n-1, start); err != nil {
				return err
			}
		}
	}
}

// document emits the tokens up to end, in parts where they are very many.
func (t *tokenReader) document(n int, end uint64) error {
	for t.at < end {
		tokens := make([]int32, min(end-t.at, maxText))
		buf := make([]byte, int64(len(tokens))*t.width)
		if _, err := io.ReadFull(t.r, buf); err != nil {
			return fmt.Errorf("read %s: %w", t.path, err)
		}
		for i := range tokens {
			id := uint32(binary.LittleEndian.Uint16(buf[int64(i)*t.width:]))
			if t.width == 4 {
				id = binary.LittleEndian.Uint32(buf[4*i:])
			}
			if int64(id) >= int64(t.nVocab) {
				return fmt.Errorf("%s: token %d is %d, the vocabulary has %d", t.path, t.at+uint64(i), id, t.nVocab)
			}
			tokens[i] = int32(id)
		}
		t.at += uint64(len(tokens))
		if err := t.emit(record{tokens: tokens, where: fmt.Sprintf("%s: document %d", t.path, n)}); err != nil {
			return err
		}
	}
	return nil
}
