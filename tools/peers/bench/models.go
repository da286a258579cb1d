package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// synthetic returns the models that the speed targets speak of, making those that are not in dir yet.
func synthetic(ctx context.Context, dir, peers string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var models []string
	for _, m := range []struct{ preset, vocab string }{
		{"135m", "starcoder"}, // 49k tokens
		{"0.5b", "qwen2"},     // 151k tokens
	} {
		vocab := filepath.Join("..", ".engine", "src", "models", "ggml-vocab-"+m.vocab+".gguf")
		f16 := filepath.Join(dir, m.preset+"-f16.gguf")
		err := make1(ctx, f16, "go", "run", "./peers/synth", "-preset", m.preset, "-vocab", vocab, "-out", f16)
		if err != nil {
			return nil, err
		}
		models = append(models, f16)
		for _, q := range []string{"Q8_0", "Q4_K_M"} {
			out := filepath.Join(dir, m.preset+"-"+strings.ToLower(q)+".gguf")
			part := out + ".part" // llama-quantize leaves half a file when it is stopped
			err := make1(ctx, out, filepath.Join(peers, "llama-quantize"), f16, part, q)
			if err != nil {
				return nil, err
			}
			if _, err := os.Stat(part); err == nil {
				if err := os.Rename(part, out); err != nil {
					return nil, err
				}
			}
			models = append(models, out)
		}
	}
	return models, nil
}

// make1 runs a command that makes file, if file is not there.
func make1(ctx context.Context, file, name string, args ...string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	fmt.Fprintln(os.Stderr, "bench: making", file)
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w\n%s", file, err, tail(out, 600))
	}
	return nil
}
