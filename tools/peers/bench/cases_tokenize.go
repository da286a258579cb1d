package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// tokenizeCases compares the encoder with llama_tokenize, called on the same text without its load, and with
// tiktoken-go. Their time is a process's own, so that what else the machine does counts little in processor time.
func tokenizeCases(b *bench) []contest {
	var list []contest
	for _, v := range []struct {
		name string
		want float64
	}{{"llama-bpe", 8}, {"qwen2", 15}, {"llama-spm", 10}} {
		list = append(list, contest{name: "tokenize/" + v.name + "/one-document", quick: true, about: "one text of 3.2 MB on one core, load excluded",
			setup: func(context.Context) (*trial, error) {
				text, err := b.textFile(book)
				const peer = "llama_tokenize"
				return turns([]measure{faster(peer, v.want)},
					within(ours, "tokenize", "-m", b.vocab(v.name), "-n", "5", text),
					within(peer, "tokenize", "-m", b.vocab(v.name), "-mode", "engine", text)), err
			}})
		list = append(list, contest{name: "tokenize/" + v.name + "/two-cores", quick: v.name == "llama-bpe", about: fmt.Sprintf("the lines of %d MB as documents", b.size(8, 2)*book/1_000_000),
			setup: func(context.Context) (*trial, error) {
				text, err := b.textFile(b.size(8, 2) * book)
				const one = "gollama, one core"
				return turns([]measure{faster(one, 1.8)},
					within(ours, "tokenize", "-m", b.vocab(v.name), "-jobs", "2", text),
					within(one, "tokenize", "-m", b.vocab(v.name), "-jobs", "1", text)), err
			}})
	}
	return append(list, b.tiktokenCase(), b.smallFilesCase(), b.linesCase())
}

// book is the length of a long text in bytes.
const book = 3_200_000

func (b *bench) tiktokenCase() contest {
	return contest{name: "tokenize/tiktoken-go", quick: true, about: "one text of 3.2 MB on one core; llama-bpe against cl100k_base",
		setup: func(context.Context) (*trial, error) {
			text, err := b.textFile(book)
			const peer = "tiktoken-go"
			return turns([]measure{faster(peer, 1)},
				within(ours, "tokenize", "-m", b.vocab("llama-bpe"), "-n", "5", text),
				within(peer, "tokenize", "-m", "cl100k_base", "-mode", "tiktoken", text)), err
		}}
}

// smallFilesCase asks what a file costs beside its tokens.
func (b *bench) smallFilesCase() contest {
	return contest{name: "tokenize/1000-files", quick: true, about: "1,000 files of 1 KB, against one of 1 MB",
		setup: func(context.Context) (*trial, error) {
			text, err := b.firstBytes(1_000_000)
			if err != nil {
				return nil, err
			}
			one, dir := b.tmp("one.txt"), b.tmp("files")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			args := []string{"tokenize", "-q", "-m", b.vocab("llama-bpe"), "--format", "bin", "-o", b.tmp("tokens.bin")}
			many := args
			for i := range 1000 {
				path := filepath.Join(dir, fmt.Sprintf("%03d.txt", i))
				if err := os.WriteFile(path, text[i*len(text)/1000:(i+1)*len(text)/1000], 0o644); err != nil {
					return nil, err
				}
				many = append(many, path)
			}
			const peer = "gollama, one file"
			return turns([]measure{compare("time", wall, "s", amount, peer, 3)}, b.own(many...), command(peer, b.gollama, append(args, one)...)),
				os.WriteFile(one, text, 0o644)
		}}
}

func (b *bench) linesCase() contest {
	n := b.size(100, 20)
	return contest{name: "tokenize/lines-memory", quick: true, rounds: 1, about: fmt.Sprintf("%d MB of lines to a token file", n),
		setup: func(context.Context) (*trial, error) {
			text, err := b.textFile(n * 1_000_000)
			return turns([]measure{smaller("limit", 1)},
				b.own("tokenize", "-q", "-m", b.vocab("llama-bpe"), "--lines", "--format", "bin", "-o", b.tmp("tokens.bin"), text),
				limit(memory, 300)), err
		}}
}
