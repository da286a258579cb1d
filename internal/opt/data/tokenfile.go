package data

import (
	"errors"
	"fmt"

	"gollama/internal/engine"
	"gollama/internal/tokens"
)

// VocabHash returns the hash of the vocabulary of a model file, as token files have it.
func VocabHash(path string) (string, error) {
	v, err := tokens.ReadVocab(path)
	if err != nil {
		return "", err
	}
	return v.Hash(), nil
}

// readTokenFile emits the documents of a token file, in parts where they are very long. One that was
// made with another vocabulary than o's is an error.
func (o *Options) readTokenFile(path string, emit func(record) error) error {
	if path == "-" {
		return errors.New("standard input: a token file is three files, give its name")
	}
	f, err := tokens.OpenFile(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	if o.VocabHash != "" && f.Vocab.SHA256 != o.VocabHash || f.Vocab.NTokens > o.Vocab.NTokens() {
		return fmt.Errorf("%s: it was made with another vocabulary: %d tokens, hash %.16s, the model has %d, %.16s",
			path, f.Vocab.NTokens, f.Vocab.SHA256, o.Vocab.NTokens(), o.VocabHash)
	}
	for i := range f.Len() {
		for start, end := f.Bounds(i); start < end; {
			part := make([]engine.Token, min(end-start, maxText))
			if err := f.Read(part, start); err != nil {
				return err
			}
			if err := emit(record{tokens: ids(part), where: fmt.Sprintf("%s: document %d", path, i+1)}); err != nil {
				return err
			}
			start += int64(len(part))
		}
	}
	return nil
}
