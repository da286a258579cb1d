package tokens

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// FuzzOpenFile: no three files end in a panic, and what can be opened has documents that lie one after the other and ids that
// the vocabulary has, or says that it has not.
func FuzzOpenFile(f *testing.F) {
	man := Manifest{Format: manifestFormat, Version: manifestVersion, DType: "uint16", NTokens: 3, NDocuments: 2}
	man.Vocab.NTokens = 9
	for _, dtype := range []string{"uint16", "uint32"} {
		man.DType = dtype
		text, err := json.Marshal(man)
		if err != nil {
			f.Fatal(err)
		}
		width := map[string]int{"uint16": 2, "uint32": 4}[dtype]
		f.Add(AppendBinary(nil, []Token{1, 8, 3}, width), binary.LittleEndian.AppendUint64(make([]byte, 8), 1), text)
		f.Add(AppendBinary(nil, []Token{1, 9, 3}, width), binary.LittleEndian.AppendUint64(make([]byte, 8), 3), text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, ids, idx, man []byte) {
		path := filepath.Join(dir, "t.bin")
		for ext, data := range map[string][]byte{"": ids, ".idx": idx, ".json": man} {
			if err := os.WriteFile(path+ext, data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		file, err := OpenFile(path)
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Errorf("not an ErrFile: %v", err)
			}
			return
		}
		defer file.Close()
		next := int64(0)
		for i := range file.Len() {
			start, end := file.Bounds(i)
			if start != next || end < start || end > int64(len(ids)/2) {
				t.Fatalf("document %d is %d to %d of %d bytes, the last ended at %d", i, start, end, len(ids), next)
			}
			next = end
			got := make([]Token, end-start)
			if err := file.Read(got, start); err != nil {
				if !errors.Is(err, ErrFile) {
					t.Errorf("document %d: %v", i, err)
				}
				continue
			}
			for _, id := range got {
				if int64(id) < 0 || int64(id) >= int64(file.Vocab.NTokens) {
					t.Errorf("document %d has token %d of %d", i, id, file.Vocab.NTokens)
				}
			}
		}
		_ = file.Verify() // damaged or not
	})
}

// FuzzVocab: no vocabulary of a file ends in a panic, nor a text encoded with it, and the ids are ids of it.
func FuzzVocab(f *testing.F) {
	texts := "<unk>\n<s>\n</s>\n▁a\nab\nĠa\n<|im_end|>\n##b\n'\\x61'"
	for _, model := range []string{"llama", "gpt2", "bert", "t5", "rwkv", "plamo2", "no_vocab", "other"} {
		for _, pre := range []string{"default", "llama-bpe", "qwen2", "deepseek-llm"} {
			f.Add(model, pre, texts, "\x02\x03\x03\x01\x01\x01\x04\x01\x01", "\x00\x01\x02", "a b\nĠ a", true, uint32(1), []byte("Once ab\n\xffaab <|im_end|>123"))
		}
	}
	var spelled [256]string
	for r, b := range bytesOf() {
		spelled[b] = string(r)
	}
	f.Fuzz(func(t *testing.T, model, pre, texts, types, scores, merges string, whole bool, special uint32, text []byte) {
		list := strings.Split(texts, "\n")
		kinds, weights := make([]int32, len(types)), make([]float32, len(scores))
		for i := range kinds {
			kinds[i] = int32(types[i])
		}
		if whole { // all bytes have tokens, in both spellings
			kinds = append(kinds, make([]int32, max(0, len(list)-len(kinds)))...)
			for b := range 256 {
				list = append(list, spelled[b], fmt.Sprintf("<0x%02X>", b))
				kinds = append(kinds, 1, 6)
			}
			weights = append(weights, make([]float32, max(0, len(list)-len(weights)))...)
		}
		for i := range len(scores) {
			weights[i] = float32(int8(scores[i]))
			if scores[i] == 0x80 {
				weights[i] = float32(math.NaN())
			}
		}
		kvs := gguf.KVs{{Key: "tokenizer.ggml.model", Value: gguf.ValueOf(model)}, {Key: "tokenizer.ggml.pre", Value: gguf.ValueOf(pre)},
			{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(list)}}
		if len(kinds) > 0 {
			kvs = append(kvs, gguf.KV{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(kinds)})
		}
		if len(weights) > 0 {
			kvs = append(kvs, gguf.KV{Key: "tokenizer.ggml.scores", Value: gguf.ValueOf(weights)})
		}
		if merges != "" {
			kvs = append(kvs, gguf.KV{Key: "tokenizer.ggml.merges", Value: gguf.ValueOf(strings.Split(merges, "\n"))})
		}
		for i, name := range []string{"bos", "eos", "unknown", "seperator", "padding", "cls", "mask", "eot"} {
			if special>>(4*i)&15 > 0 {
				kvs = append(kvs, gguf.KV{Key: "tokenizer.ggml." + name + "_token_id", Value: gguf.ValueOf(special >> (4 * i) & 15)})
			}
		}
		v, err := newVocab(kvs)
		if err != nil {
			return
		}
		_ = v.Hash()
		if v.slow != "" {
			return
		}
		tables, err := newTables(v)
		if err != nil {
			return
		}
		m := &Model{Vocab: v, tables: tables}
		for _, parse := range []bool{false, true} {
			ids, err := m.NewEncoder().Encode(nil, text, parse)
			if err != nil {
				continue
			}
			for _, id := range ids {
				if !v.has(id) {
					t.Fatalf("%q becomes token %d of %d", text, id, v.NTokens())
				}
			}
			_ = m.Decode(nil, ids, v.BOS, v.EOS)
		}
	})
}
