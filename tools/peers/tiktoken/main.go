// Command tiktoken times github.com/tiktoken-go/tokenizer on a file, one call
// on one core, with its own vocabulary: the fastest tokenizer in Go to compare
// with. Usage: tiktoken FILE
package main

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/tiktoken-go/tokenizer"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: tiktoken FILE")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for _, enc := range []tokenizer.Encoding{tokenizer.Cl100kBase, tokenizer.O200kBase} {
		codec, err := tokenizer.Get(enc)
		if err != nil {
			log.Fatal(err)
		}
		best, n := time.Duration(0), 0
		for range 3 {
			begin := time.Now()
			ids, _, err := codec.Encode(string(text))
			if err != nil {
				log.Fatal(err)
			}
			if d := time.Since(begin); best == 0 || d < best {
				best, n = d, len(ids)
			}
		}
		fmt.Printf("tiktoken-go %s: %d tokens, %.2f MB/s\n", enc, n, float64(len(text))/best.Seconds()/1e6)
	}
}
