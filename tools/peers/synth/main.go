// Command synth writes a llama model with random weights and the vocabulary of another GGUF file: a model of any size
// to measure with, where nothing is to be downloaded. Its text is noise; its arithmetic is that of a real model.
//
//	go run ./peers/synth -preset 135m -vocab ../.engine/src/models/ggml-vocab-starcoder.gguf -out /tmp/135m-f16.gguf
//	go run ./peers/synth -preset 135m -vocab ../.engine/src/models/ggml-vocab-starcoder.gguf -lora /tmp/135m-lora.gguf
//	go run ./peers/synth -embd 576 -mmproj /tmp/mmproj.gguf
//
// Weights are normal with standard deviation 0.02 (those that write to the residual stream are divided by
// sqrt(2*layers)), norms are near 1, as a model is before training. The same seed writes the same bytes.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"gollama/internal/gguf"
)

// shape is the size of a model: of its embedding, its layers, its heads for queries and for keys and values, and its
// feed-forward part.
type shape struct {
	embd, layers, heads, kvHeads, ff uint64
}

var presets = map[string]shape{
	"25m":  {256, 6, 8, 8, 1024},
	"135m": {576, 30, 9, 3, 1536},
	"0.5b": {896, 24, 14, 2, 4864},
}

type options struct {
	shape
	vocab, out string
	lora       string // adapter to write; empty: none
	mmproj     string // projector to write, alone; empty: none
	tower      vision
	rank       uint64 // of the adapter
	f32        bool
	tied       bool // the output matrix is the token embedding
	ctx        uint64
	seed       uint64
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "synth: error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.mmproj != "" {
		return o.writeProjector(o.mmproj)
	}
	vocab, err := gguf.Open(o.vocab)
	if err != nil {
		return err
	}
	defer vocab.Close() //nolint:errcheck // only read from
	tokens, ok := vocab.KVs.Get("tokenizer.ggml.tokens")
	if !ok {
		return fmt.Errorf("%s: no tokenizer.ggml.tokens", o.vocab)
	}
	if o.out != "" {
		if err := o.writeModel(vocab.KVs, uint64(tokens.Len())); err != nil {
			return err
		}
	}
	if o.lora == "" {
		return nil
	}
	return o.writeLoRA(o.lora, o.rank)
}

func (o *options) writeModel(vocab gguf.KVs, nVocab uint64) error {
	tensors := o.tensors(nVocab)
	w, err := gguf.Create(o.out, o.keys(vocab, nVocab), tensors)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.seed, 0))
	for _, t := range tensors {
		if err := writeRandom(w, t, o.std(t), rng); err != nil {
			w.Abort()
			return err
		}
	}
	return w.Close()
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("synth", flag.ContinueOnError)
	preset := f.String("preset", "", "25m, 135m or 0.5b; the sizes below override it")
	f.StringVar(&o.vocab, "vocab", "", "GGUF file to take the vocabulary from")
	f.StringVar(&o.out, "out", "", "file to write")
	f.Uint64Var(&o.embd, "embd", 0, "embedding length")
	f.Uint64Var(&o.layers, "layers", 0, "number of layers")
	f.Uint64Var(&o.heads, "heads", 0, "number of heads")
	f.Uint64Var(&o.kvHeads, "kv-heads", 0, "number of key and value heads")
	f.Uint64Var(&o.ff, "ff", 0, "feed-forward length")
	f.Uint64Var(&o.ctx, "ctx", 4096, "context length of the model")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the weights")
	f.StringVar(&o.lora, "lora", "", "LoRA adapter to write, for all linears of the layers; with -out or without")
	f.Uint64Var(&o.rank, "rank", 16, "rank of the adapter")
	f.BoolVar(&o.tied, "tied", true, "use the token embedding as output matrix")
	f.BoolVar(&o.f32, "f32", false, "write the matrices as F32, not F16")
	f.StringVar(&o.mmproj, "mmproj", "", "projector of images to write, for a model of -embd; needs no other flag")
	o.tower.flags(f)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.mmproj != "" {
		return o, o.tower.check(o.embd)
	}
	p, ok := presets[*preset]
	if *preset != "" && !ok {
		return o, fmt.Errorf("preset %q: want 25m, 135m or 0.5b", *preset)
	}
	for _, v := range []struct{ got, def *uint64 }{
		{&o.embd, &p.embd}, {&o.layers, &p.layers}, {&o.heads, &p.heads}, {&o.kvHeads, &p.kvHeads}, {&o.ff, &p.ff},
	} {
		if *v.got == 0 {
			*v.got = *v.def
		}
		if *v.got == 0 {
			return o, errors.New("give -preset or all of -embd -layers -heads -kv-heads -ff")
		}
	}
	if o.vocab == "" || o.out == "" && o.lora == "" || f.NArg() != 0 {
		return o, errors.New("want -vocab FILE, -out FILE or -lora FILE, and no arguments")
	}
	if o.embd%o.heads != 0 || o.heads%o.kvHeads != 0 || o.embd/o.heads%2 != 0 {
		return o, fmt.Errorf("%d embd, %d heads, %d kv heads: want whole groups and an even head size", o.embd, o.heads, o.kvHeads)
	}
	return o, nil
}

// keys returns the keys of the model: those of the tokenizer as they are, the others from the options.
func (o *options) keys(vocab gguf.KVs, nVocab uint64) gguf.KVs {
	u := func(v uint64) gguf.Value { return gguf.ValueOf(uint32(v)) }
	fileType := uint32(1) // mostly F16
	if o.f32 {
		fileType = 0
	}
	kvs := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("llama")},
		{Key: "general.type", Value: gguf.ValueOf("model")},
		{Key: "general.name", Value: gguf.ValueOf("synthetic")},
		{Key: "general.file_type", Value: gguf.ValueOf(fileType)},
		{Key: "general.quantization_version", Value: u(2)},
		{Key: "llama.block_count", Value: u(o.layers)},
		{Key: "llama.context_length", Value: u(o.ctx)},
		{Key: "llama.embedding_length", Value: u(o.embd)},
		{Key: "llama.feed_forward_length", Value: u(o.ff)},
		{Key: "llama.attention.head_count", Value: u(o.heads)},
		{Key: "llama.attention.head_count_kv", Value: u(o.kvHeads)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: gguf.ValueOf(float32(1e-5))},
		{Key: "llama.rope.dimension_count", Value: u(o.embd / o.heads)},
		{Key: "llama.rope.freq_base", Value: gguf.ValueOf(float32(10000))},
		{Key: "llama.vocab_size", Value: u(nVocab)},
	}
	for _, kv := range vocab {
		if strings.HasPrefix(kv.Key, "tokenizer.") {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

// tensors lists the tensors of a llama model in the order in which they are written.
func (o *options) tensors(nVocab uint64) []gguf.TensorInfo {
	matrix := gguf.TypeF16
	if o.f32 {
		matrix = gguf.TypeF32
	}
	var ts []gguf.TensorInfo
	add := func(name string, ne ...uint64) {
		t := gguf.TensorInfo{Name: name + ".weight", Type: matrix, Shape: ne}
		if len(ne) == 1 {
			t.Type = gguf.TypeF32
		}
		ts = append(ts, t)
	}
	kv := o.embd / o.heads * o.kvHeads
	add("token_embd", o.embd, nVocab)
	for l := range o.layers {
		b := fmt.Sprintf("blk.%d.", l)
		add(b+"attn_norm", o.embd)
		add(b+"attn_q", o.embd, o.embd)
		add(b+"attn_k", o.embd, kv)
		add(b+"attn_v", o.embd, kv)
		add(b+"attn_output", o.embd, o.embd)
		add(b+"ffn_norm", o.embd)
		add(b+"ffn_gate", o.embd, o.ff)
		add(b+"ffn_up", o.embd, o.ff)
		add(b+"ffn_down", o.ff, o.embd)
	}
	add("output_norm", o.embd)
	if !o.tied {
		add("output", o.embd, nVocab)
	}
	return ts
}

// std returns the standard deviation of the weights of t.
func (o *options) std(t gguf.TensorInfo) float64 {
	const std = 0.02
	if strings.HasSuffix(t.Name, "attn_output.weight") || strings.HasSuffix(t.Name, "ffn_down.weight") {
		return std / math.Sqrt(2*float64(o.layers))
	}
	return std
}

// writeRandom writes the data of t: for a matrix normal numbers around 0, for a norm around 1.
func writeRandom(w *gguf.Writer, t gguf.TensorInfo, std float64, rng *rand.Rand) error {
	if err := w.Next(t.Name); err != nil {
		return err
	}
	mean := 0.0
	if len(t.Shape) == 1 {
		mean, std = 1, 0.05
	}
	const piece = 1 << 16 // elements
	buf := make([]byte, 0, 4*piece)
	for left := t.Elements(); left > 0; {
		n := min(left, piece)
		buf = buf[:0]
		for range n {
			x := float32(mean + std*rng.NormFloat64())
			if t.Type == gguf.TypeF32 {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
			} else {
				buf = binary.LittleEndian.AppendUint16(buf, half(x))
			}
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// half returns x as IEEE 754 binary16, rounded to nearest even. |x| must be below 65504.
func half(x float32) uint16 {
	const (
		minNormal = 0x1p-14
		step      = 0x1p-24 // between subnormal halves
	)
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	if abs := math.Abs(float64(x)); abs < minNormal {
		return sign | uint16(math.RoundToEven(abs/step))
	}
	b &= 0x7fffffff
	b -= (127 - 15) << 23       // the exponent's bias
	b += 0xfff + (b >> 13 & 1)  // round at the 13 bits that go
	return sign | uint16(b>>13) // exponent and mantissa are adjacent: a carry is right
}
