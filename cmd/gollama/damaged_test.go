package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gollama/internal/gguf"
)

// Sizes of the model that small makes.
const (
	smallEmbd, smallHead, smallFF, smallLayers, smallCtx = 32, 2, 64, 2, 128
	smallVocab                                           = 3 + 256 + 27
)

// smallKeys are the keys of a llama model whose vocabulary is <unk>, <s>, </s>, the 256 bytes, the letters and the
// space.
func smallKeys() gguf.KVs {
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for i := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", i)), append(types, 6)
	}
	for _, c := range "abcdefghijklmnopqrstuvwxyz▁" {
		tokens, types = append(tokens, string(c)), append(types, 1)
	}
	u := func(k string, v uint32) gguf.KV { return gguf.KV{Key: k, Value: gguf.ValueOf(v)} }
	return gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("llama")},
		u("llama.context_length", smallCtx), u("llama.embedding_length", smallEmbd), u("llama.block_count", smallLayers),
		u("llama.feed_forward_length", smallFF), u("llama.attention.head_count", smallHead),
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: gguf.ValueOf(float32(1e-5))},
		{Key: "tokenizer.ggml.model", Value: gguf.ValueOf("llama")},
		{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(tokens)},
		{Key: "tokenizer.ggml.scores", Value: gguf.ValueOf(make([]float32, smallVocab))},
		{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(types)},
	}
}

func smallTensors() (list []gguf.TensorInfo) {
	add := func(name string, shape ...uint64) {
		list = append(list, gguf.TensorInfo{Name: name + ".weight", Type: gguf.TypeF32, Shape: shape})
	}
	add("token_embd", smallEmbd, smallVocab)
	add("output_norm", smallEmbd)
	for i := range smallLayers {
		for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			add(fmt.Sprintf("blk.%d.%s", i, name), smallEmbd, smallEmbd)
		}
		add(fmt.Sprintf("blk.%d.attn_norm", i), smallEmbd)
		add(fmt.Sprintf("blk.%d.ffn_norm", i), smallEmbd)
		add(fmt.Sprintf("blk.%d.ffn_gate", i), smallEmbd, smallFF)
		add(fmt.Sprintf("blk.%d.ffn_up", i), smallEmbd, smallFF)
		add(fmt.Sprintf("blk.%d.ffn_down", i), smallFF, smallEmbd)
	}
	return list
}

// writeSmall writes a model with the keys kvs and random weights.
func writeSmall(t *testing.T, path string, kvs gguf.KVs) {
	t.Helper()
	tensors := smallTensors()
	var file bytes.Buffer // not gguf.Create, which waits for the disk
	w, err := gguf.NewWriter(&file, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, ti := range tensors {
		var b []byte
		for range ti.Elements() {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(rnd.NormFloat64())))
		}
		if err := w.WriteTensor(ti.Name, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(path, file.Bytes(), 0o666)); err != nil {
		t.Fatal(err)
	}
}

// damagedKeys are the keys that llama.cpp reads of a model of this architecture.
var damagedKeys = strings.Fields(`general.architecture general.name general.file_type general.type split.count split.no
	llama.context_length llama.embedding_length llama.embedding_length_out llama.block_count llama.nextn_predict_layers
	llama.vocab_size llama.pooling_type llama.feed_forward_length llama.expert_count llama.expert_used_count
	llama.expert_group_count llama.expert_group_used_count llama.attention.head_count llama.attention.head_count_kv
	llama.attention.key_length llama.attention.value_length llama.attention.key_length_swa
	llama.attention.value_length_swa llama.attention.causal llama.attention.layer_norm_rms_epsilon
	llama.rope.dimension_count llama.rope.dimension_count_swa llama.rope.freq_base llama.rope.scale_linear
	llama.rope.scaling.type llama.rope.scaling.factor llama.rope.scaling.attn_factor llama.rope.scaling.alpha
	llama.rope.scaling.finetuned llama.rope.scaling.original_context_length llama.classifier.output_labels
	tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.scores tokenizer.ggml.token_type
	tokenizer.ggml.token_type_count tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id
	tokenizer.ggml.unknown_token_id tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token
	tokenizer.ggml.add_sep_token tokenizer.ggml.add_space_prefix tokenizer.ggml.remove_extra_whitespaces
	tokenizer.ggml.suppress_tokens tokenizer.chat_template`)

var damagedValues = map[string]gguf.Value{
	"missing": {},
	"u32 0":   gguf.ValueOf(uint32(0)), "u32 7": gguf.ValueOf(uint32(7)),
	"u32 max": gguf.ValueOf(uint32(math.MaxUint32)), "i32 max as u32": gguf.ValueOf(uint32(math.MaxInt32)),
	"i32 -1": gguf.ValueOf(int32(-1)),
	"f32 0":  gguf.ValueOf(float32(0)), "f32 -1": gguf.ValueOf(float32(-1)), "f32 nan": gguf.ValueOf(float32(math.NaN())),
	"f32 inf": gguf.ValueOf(float32(math.Inf(1))),
	"str":     gguf.ValueOf("bogus"), "bool": gguf.ValueOf(true),
	"[u32]": gguf.ValueOf([]uint32{1, 1}), "[i32]": gguf.ValueOf([]int32{-1, 1}),
}

// TestDamagedKeys gives every key every kind of wrong value. The program must run the model or refuse it in one line
// that names the file and is not an assertion's, soon and without much memory.
func TestDamagedKeys(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	for _, key := range damagedKeys {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "m.gguf")
			for name, v := range damagedValues {
				kvs := smallKeys()
				if v.Kind() == gguf.KindUint8 { // the zero Value
					kvs = kvs.Without(key)
				} else {
					kvs = kvs.With(key, v)
				}
				writeSmall(t, path, kvs)
				checkDamaged(t, name, path)
			}
		})
	}
}

// checkDamaged runs the model at path, which may be damaged, and returns what it wrote to standard error.
func checkDamaged(t *testing.T, name, path string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, append([]string{"run", "-m", path, "-p", "a", "-n", "2", "-t", "1", "-lv", "1"}, args...)...)
	cmd.Args[0] = "gollama" // what testscript.Main looks at
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	text := msg.String()
	switch code := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		t.Errorf("%s: no end after 20 s", name)
	case code == 0:
	case code != exitFailed || out.Len() > 0 || !strings.Contains(text, path) || strings.Count(text, "\n") != 1 || strings.Contains(text, "internal engine error"):
		t.Errorf("%s: status %d, stdout %q, stderr %q", name, code, out.String(), text)
	}
	if use, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && runtime.GOOS == "linux" && use.Maxrss > 300<<10 {
		t.Errorf("%s: %d KiB of memory", name, use.Maxrss)
	}
	return text
}

// TestDamagedMessages looks at what is said, for values in the file and for those of --override-kv.
func TestDamagedMessages(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	for _, tt := range []struct {
		override string // KEY=TYPE:VALUE
		keys     gguf.KVs
		want     string
	}{
		{"llama.block_count=int:0", nil, "llama.block_count: got 0, want 1 to 512"},
		{"llama.block_count=int:-1", nil, "llama.block_count: got 4294967295, want 1 to 512"},
		{"llama.block_count=int:99999", nil, "llama.block_count: got 99999, want 1 to 512"},
		{"llama.block_count=int:3", nil, "tensor 'blk.2.attn_norm.weight' not found"},
		{"llama.block_count=str:x", nil, ""}, // of the wrong type: llama.cpp warns and ignores it
		{"llama.context_length=int:0", nil, "--ctx-size must be given"},
		{"llama.context_length=int:2147483647", nil, "llama.context_length: got 2147483647, want 0 to 1073741824"},
		{"llama.attention.layer_norm_rms_epsilon=float:-1", nil, "layer_norm_rms_epsilon: got -1, want a number above 0"},
		{"llama.rope.freq_base=float:0", nil, "llama.rope.freq_base: got 0, want a number above 0"},
		{"llama.rope.scaling.type=str:bogus", nil, `llama.rope.scaling.type: got "bogus", want one of none, linear, yarn, longrope`},
		{"tokenizer.ggml.model=str:bert", nil, `tokenizer.ggml.model: got "bert", but the vocabulary is not one of BERT: token "<0x00>" is a byte`},
		{"llama.expert_count=int:4", nil, "llama.expert_used_count: got 0, want 1 to the 4 of llama.expert_count"},
		{"llama.expert_count=int:2000", nil, "llama.expert_count: got 2000, want 0 to 1024"},
		{"llama.expert_group_count=int:1", nil, "llama.expert_group_count: got 1, want less than the 0 of llama.expert_count"},
		{"llama.nextn_predict_layers=int:3", nil, "llama.nextn_predict_layers: got 3, want at most the 2 of llama.block_count"},
		{"llama.attention.head_count_kv=int:3", gguf.KVs{{Key: "llama.attention.head_count", Value: gguf.ValueOf(uint32(4))}}, "llama.attention.head_count_kv: got 3, want a divisor of the 4"},
		{"llama.embedding_length=int:64", nil, "tensor 'token_embd.weight' has wrong shape; expected 64, 286, got 32, 286"},
		{"tokenizer.ggml.add_sep_token=bool:true", nil, "the model wants a SEP token and has none"},
		{"llama.rope.scaling.attn_factor=float:1e30", nil, "the model's output has NaN values"},
		{"", gguf.KVs{
			{Key: "llama.expert_count", Value: gguf.ValueOf(uint32(6))}, {Key: "llama.expert_used_count", Value: gguf.ValueOf([]int32{1, -1})},
		}, "llama.expert_used_count: got 4294967295, want 1 to the 6"},
		{"", gguf.KVs{
			{Key: "llama.expert_count", Value: gguf.ValueOf(uint32(6))}, {Key: "llama.expert_used_count", Value: gguf.ValueOf(uint32(2))},
			{Key: "llama.expert_group_count", Value: gguf.ValueOf(uint32(4))},
		}, "llama.expert_group_count: got 4, want a divisor of the 6"},
		{"", gguf.KVs{
			{Key: "llama.expert_count", Value: gguf.ValueOf(uint32(6))}, {Key: "llama.expert_used_count", Value: gguf.ValueOf(uint32(2))},
			{Key: "llama.expert_group_count", Value: gguf.ValueOf(uint32(3))}, {Key: "llama.expert_group_used_count", Value: gguf.ValueOf(uint32(3))},
		}, "llama.expert_group_used_count: got 3, want 1 to 2"},
	} {
		kvs := smallKeys()
		for _, kv := range tt.keys {
			kvs = kvs.With(kv.Key, kv.Value)
		}
		writeSmall(t, path, kvs)
		var args []string
		if tt.override != "" {
			args = []string{"--override-kv", tt.override}
		}
		msg := checkDamaged(t, tt.override, path, args...)
		if !strings.Contains(msg, tt.want) || (tt.want == "") != (msg == "") {
			t.Errorf("%s: got %q, want one with %q", tt.override, msg, tt.want)
		}
	}
}

// TestDivisionByZero runs into one of the engine's divisions that no check covers: the last words must name the file.
func TestDivisionByZero(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	kvs := smallKeys().With("general.architecture", gguf.ValueOf("olmo2"))
	for i := range kvs {
		kvs[i].Key = strings.Replace(kvs[i].Key, "llama.", "olmo2.", 1)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	writeSmall(t, path, kvs.With("olmo2.attention.head_count", gguf.ValueOf(uint32(0))))
	out, msg, code := gollama(t, "run", "-m", path, "-p", "a")
	if want := "gollama: error: internal engine error: division by zero (model " + path + ")\n"; code != exitFailed || out != "" || msg != want {
		t.Errorf("status %d, stdout %q, stderr %q, want %q", code, out, msg, want)
	}
}
