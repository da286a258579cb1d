package lora

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// random returns n values, normal with standard deviation std, the same for the same seed.
func random(seed uint64, n int, std float64) []float32 {
	rnd := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rnd.NormFloat64() * std)
	}
	return x
}

// matrix makes a random matrix of an adapter.
func matrix(seed uint64, shape ...uint64) *Matrix {
	m := &Matrix{Shape: shape}
	m.Data = random(seed, m.elements(), 0.1)
	return m
}

// pair makes a random pair for a tensor [in, out] or [in, out, n].
func pair(seed uint64, base string, rank, in, out uint64, n ...uint64) Tensor {
	if IsEmbedding(base) {
		return Tensor{Base: base, A: matrix(seed, rank, out), B: matrix(seed+1, rank, in)}
	}
	return Tensor{Base: base, A: matrix(seed, append([]uint64{in, rank}, n...)...), B: matrix(seed+1, append([]uint64{rank, out}, n...)...)}
}

// sample is an adapter with every kind of part that both formats hold, for a llama with 4 heads of 8 and 2 of keys.
func sample() *Adapter {
	return &Adapter{
		Arch: "llama", Alpha: 16, Heads: 4, KVHeads: 2,
		Tensors: []Tensor{
			pair(1, "blk.0.attn_q.weight", 4, 32, 32),
			pair(3, "blk.0.attn_k.weight", 4, 32, 16),
			{Base: "blk.1.ffn_down.weight", A: matrix(5, 48, 2), B: matrix(6, 2, 32), Scale: 0.75},
			pair(7, "token_embd.weight", 4, 32, 50),
			{Base: "blk.1.attn_norm.weight", Whole: matrix(9, 32)},
			{Base: "output.weight", Whole: matrix(10, 32, 50)},
		},
	}
}

// equal compares two adapters. Scales may be folded into B: scale * B is compared, to the rounding of one product.
func equal(t *testing.T, got, want *Adapter) {
	t.Helper()
	if got.Arch != want.Arch || len(got.Tensors) != len(want.Tensors) {
		t.Fatalf("got architecture %q with %d tensors, want %q with %d", got.Arch, len(got.Tensors), want.Arch, len(want.Tensors))
	}
	for i := range want.Tensors {
		w := &want.Tensors[i]
		at := slices.IndexFunc(got.Tensors, func(t Tensor) bool { return t.Base == w.Base })
		if at < 0 {
			t.Errorf("tensor %q is missing", w.Base)
			continue
		}
		g := &got.Tensors[at]
		for _, m := range []struct {
			part string
			g, w *Matrix
			s, q float64
		}{{"A", g.A, w.A, 1, 1}, {"B", g.B, w.B, got.scale(g), want.scale(w)}, {"whole", g.Whole, w.Whole, 1, 1}} {
			if m.g == nil && m.w == nil {
				continue
			}
			if m.g == nil || m.w == nil || !slices.Equal(m.g.Shape, m.w.Shape) {
				t.Errorf("%s of %q: got %v, want %v", m.part, w.Base, m.g, m.w)
				continue
			}
			x, err := m.g.Floats()
			if err != nil {
				t.Fatal(err)
			}
			y, _ := m.w.Floats()
			for k := range y {
				if a, b := float64(x[k])*m.s, float64(y[k])*m.q; math.Abs(a-b) > 1.2e-7*math.Abs(b) {
					t.Errorf("%s of %q: value %d is %g, want %g", m.part, w.Base, k, a, b)
					break
				}
			}
		}
	}
}

func TestGGUFRoundTrip(t *testing.T) {
	a := sample()
	a.Name, a.TaskName, a.PromptPrefix = "n", "classify", "p: "
	a.InvocationTokens = []uint32{1, 2, 3}
	a.Keys = gguf.KVs{{Key: "gollama.seed", Value: gguf.ValueOf(uint32(5))}}
	a.Tensors = append(a.Tensors, pair(20, "blk.0.ffn_up_exps.weight", 3, 32, 16, 5))
	path := filepath.Join(t.TempDir(), "a.gguf")
	if err := WriteGGUF(path, a); err != nil {
		t.Fatal(err)
	}
	got, err := Open(path, Base{})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	equal(t, got, a)
	if got.Alpha != 16 || got.Name != "n" || got.TaskName != "classify" || got.PromptPrefix != "p: " ||
		!slices.Equal(got.InvocationTokens, a.InvocationTokens) || len(got.Keys) != 1 || got.Path != path {
		t.Errorf("got %+v", got)
	}
}

func TestPEFTRoundTrip(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "gemma2"} {
		t.Run(arch, func(t *testing.T) {
			a := sample()
			a.Arch = arch
			dir := filepath.Join(t.TempDir(), "peft")
			if err := WritePEFT(dir, a); err != nil {
				t.Fatal(err)
			}
			got, err := Open(dir, Base{Arch: arch, Heads: 4, KVHeads: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			if arch == "gemma2" { // norms lose a bit when one is subtracted and added again
				a.Tensors = slices.DeleteFunc(a.Tensors, func(t Tensor) bool { return strings.Contains(t.Base, "norm") })
				got.Tensors = slices.DeleteFunc(got.Tensors, func(t Tensor) bool { return strings.Contains(t.Base, "norm") })
			}
			equal(t, got, a)
			got.Close()
			t.Chdir(dir)
			if err := os.Rename(peftDataFile, "other.safetensors"); err != nil {
				t.Fatal(err)
			}
			again, err := Open("other.safetensors", Base{Arch: arch, Heads: 4, KVHeads: 2})
			if err != nil {
				t.Fatal(err)
			}
			again.Close()
		})
	}
}

// A file as PEFT writes it, made here by the definition of each part and not by WritePEFT.
func TestPEFTMeaning(t *testing.T) {
	const heads, kvHeads, headSize, in, rank = 4, 2, 8, 32, 2
	dir := t.TempDir()
	bq, bk := random(1, heads*headSize*rank, 1), random(2, kvHeads*headSize*rank, 1)
	embA, embB := random(3, rank*50, 1), random(4, in*rank, 1)
	norm := random(5, in, 1)
	entry := func(name string, x []float32, shape ...uint64) safeEntry {
		return safeEntry{"base_model.model." + name, shape, func() ([]float32, error) { return x, nil }}
	}
	q, k := "model.layers.3.self_attn.q_proj.", "model.layers.3.self_attn.k_proj."
	err := saveSafetensors(filepath.Join(dir, peftDataFile), []safeEntry{
		entry(q+"lora_A.weight", random(6, rank*in, 1), rank, in), entry(q+"lora_B.weight", bq, heads*headSize, rank),
		entry(k+"lora_A.default.weight", random(7, rank*in, 1), rank, in), entry(k+"lora_B.default.weight", bk, kvHeads*headSize, rank),
		entry("model.embed_tokens.lora_embedding_A", embA, rank, 50), entry("model.embed_tokens.lora_embedding_B", embB, in, rank),
		entry("model.layers.3.input_layernorm.weight", norm, in),
		entry("lm_head.modules_to_save.weight", random(8, in*50, 1), 50, in),
	})
	if err != nil {
		t.Fatal(err)
	}
	config := `{"peft_type":"LORA","r":8,"lora_alpha":16,"use_rslora":true,"rank_pattern":{".*":2},"alpha_pattern":{"k_proj":4,".*k_.*":99}}`
	if err := os.WriteFile(filepath.Join(dir, peftConfigFile), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"llama", "qwen2", "gemma"} {
		a, err := Open(dir, Base{Arch: arch, Heads: heads, KVHeads: kvHeads})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		byBase := map[string]*Tensor{}
		for i := range a.Tensors {
			byBase[a.Tensors[i].Base] = &a.Tensors[i]
		}
		tq, tk, te := byBase["blk.3.attn_q.weight"], byBase["blk.3.attn_k.weight"], byBase["token_embd.weight"]
		if tq == nil || tk == nil || te == nil || byBase["output.weight"] == nil || byBase["output.weight"].Whole == nil {
			t.Fatalf("%s: tensors %v", arch, byBase)
		}
		if got, want := a.scale(tq), 16/math.Sqrt(rank); got != want {
			t.Errorf("%s: scale of q %g, want %g", arch, got, want)
		}
		if got, want := a.scale(tk), 4/math.Sqrt(rank); got != want {
			t.Errorf("%s: scale of k %g, want %g: the first pattern that matches", arch, got, want)
		}
		for _, p := range []struct {
			t *Tensor
			b []float32
			n int
		}{{tq, bq, heads}, {tk, bk, kvHeads}} {
			got, err := p.t.B.Floats()
			if err != nil {
				t.Fatal(err)
			}
			for row := range p.n * headSize {
				from := row
				if arch == "llama" { // row (h, i, j) of the file is row (h, j, i) of PEFT's
					h, i, j := row/headSize, row%headSize/2, row%2
					from = h*headSize + j*headSize/2 + i
				}
				if !slices.Equal(got[row*rank:(row+1)*rank], p.b[from*rank:(from+1)*rank]) {
					t.Fatalf("%s: row %d of %q is not row %d of PEFT's", arch, row, p.t.Base, from)
				}
			}
		}
		ea, err := te.A.Floats()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(te.A.Shape, []uint64{rank, 50}) || !slices.Equal(te.B.Shape, []uint64{rank, in}) || ea[7*rank+1] != embA[50+7] {
			t.Errorf("%s: embedding A %v, B %v", arch, te.A.Shape, te.B.Shape)
		}
		gotNorm, err := byBase["blk.3.attn_norm.weight"].Whole.Floats()
		if want := norm[3] + map[bool]float32{true: 1}[arch == "gemma"]; err != nil || gotNorm[3] != want {
			t.Errorf("%s: norm %g, want %g (%v)", arch, gotNorm[3], want, err)
		}
	}
}

func TestPEFTExperts(t *testing.T) {
	dir := t.TempDir()
	var entries []safeEntry
	var b2 []float32
	for _, e := range []uint64{2, 0} { // one of three is missing
		name := "base_model.model.model.layers.0.mlp.experts." + string('0'+rune(e)) + ".up_proj."
		b := random(e+50, 16*4, 1)
		if e == 2 {
			b2 = b
		}
		entries = append(entries,
			safeEntry{name + "lora_A.weight", []uint64{4, 32}, func() ([]float32, error) { return random(e, 128, 1), nil }},
			safeEntry{name + "lora_B.weight", []uint64{16, 4}, func() ([]float32, error) { return b, nil }})
	}
	if err := saveSafetensors(filepath.Join(dir, peftDataFile), entries); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, peftConfigFile), []byte(`{"peft_type":"LORA","r":4,"lora_alpha":8}`), 0o666); err != nil {
		t.Fatal(err)
	}
	a, err := Open(dir, Base{Arch: "qwen3moe", Experts: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if len(a.Tensors) != 1 || a.Tensors[0].Base != "blk.0.ffn_up_exps.weight" || a.scale(&a.Tensors[0]) != 2 ||
		!slices.Equal(a.Tensors[0].A.Shape, []uint64{32, 4, 3}) || !slices.Equal(a.Tensors[0].B.Shape, []uint64{4, 16, 3}) {
		t.Fatalf("got %+v", a.Tensors)
	}
	b, err := a.Tensors[0].B.Floats()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b[128:], b2) || !slices.Equal(b[64:128], make([]float32, 64)) {
		t.Error("the experts are not in their places")
	}
}

func TestPEFTErrors(t *testing.T) {
	good := map[string]any{"peft_type": "LORA", "r": 4, "lora_alpha": 8}
	for _, tt := range []struct {
		name, key string
		value     any
		tensor    string
		want      string
	}{
		{"kind", "peft_type", "IA3", "", `peft_type is "IA3", want LORA`},
		{"dora", "use_dora", true, "", "use_dora is set"},
		{"pissa", "init_lora_weights", "pissa", "", `init_lora_weights is "pissa"`},
		{"rank", "r", 8, "", "the matrices have rank 4, adapter_config.json says 8"},
		{"alpha 0", "lora_alpha", 0, "", "alpha is 0"},
		{"pattern", "rank_pattern", map[string]any{"(": 3}, "", `adapter_config.json: rank_pattern: pattern "("`},
		{"pattern's value", "alpha_pattern", map[string]any{"q": "4"}, "", `alpha_pattern: pattern "q": got a string, want a number`},
		{"patterns", "alpha_pattern", []int{4}, "", `alpha_pattern: got an array, want an object of patterns`},
		{"module", "r", 4, "base_model.model.model.layers.0.self_attn.rotary.lora_A.weight", `module "model.layers.0.self_attn.rotary" is not known`},
		{"magnitude", "r", 4, "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "its name is not one of a LoRA adapter"},
		{"half", "r", 4, "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", "lora_A without lora_B"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := &Adapter{Arch: "qwen2", Alpha: 8, Tensors: []Tensor{pair(1, "blk.0.attn_q.weight", 4, 32, 32)}}
			if err := WritePEFT(dir, a); err != nil {
				t.Fatal(err)
			}
			if tt.tensor != "" {
				old := sampleEntries(a)
				if err := saveSafetensors(filepath.Join(dir, peftDataFile), append(old, safeEntry{tt.tensor, []uint64{4, 32}, func() ([]float32, error) { return random(1, 128, 1), nil }})); err != nil {
					t.Fatal(err)
				}
			}
			config := map[string]any{}
			for k, v := range good {
				config[k] = v
			}
			config[tt.key] = tt.value
			text, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, peftConfigFile), text, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err = Open(dir, Base{Arch: "qwen2"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// sampleEntries returns the first pair of a under its name in PEFT.
func sampleEntries(a *Adapter) []safeEntry {
	const name = "base_model.model.model.layers.0.self_attn.q_proj."
	return []safeEntry{
		{name + "lora_A.weight", []uint64{4, 32}, a.Tensors[0].A.Floats},
		{name + "lora_B.weight", []uint64{32, 4}, a.Tensors[0].B.Floats},
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*Adapter)
		want string
	}{
		{"no tensors", func(a *Adapter) { a.Tensors = nil }, "no tensors"},
		{"half", func(a *Adapter) { a.Tensors[0].B = nil }, "lora_a without lora_b"},
		{"twice", func(a *Adapter) { a.Tensors[1].Base = a.Tensors[0].Base }, "it is there twice"},
		{"rank", func(a *Adapter) { a.Tensors[0].A = matrix(1, 32, 5) }, "differ in rank"},
		{"length", func(a *Adapter) { a.Tensors[0].A.Data = a.Tensors[0].A.Data[1:] }, "127 values for the shape [32 4]"},
		{"not a number", func(a *Adapter) { a.Tensors[0].A.Data[3] = float32(math.NaN()) }, "value NaN at position 3"},
		{"alpha", func(a *Adapter) { a.Alpha = float32(math.Inf(1)) }, "alpha is +Inf"},
		{"arch", func(a *Adapter) { a.Arch = "" }, "architecture"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := sample()
			tt.edit(a)
			dir := t.TempDir()
			path := filepath.Join(dir, "a.gguf")
			if err := WriteGGUF(path, a); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("WriteGGUF: %v, want %q", err, tt.want)
			}
			if err := WritePEFT(filepath.Join(dir, "peft"), a); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("WritePEFT: %v, want %q", err, tt.want)
			}
			for _, p := range []string{path, filepath.Join(dir, "peft", peftDataFile), filepath.Join(dir, "peft", peftConfigFile)} {
				if _, err := os.Stat(p); err == nil {
					t.Errorf("%s was written", p)
				}
			}
		})
	}
}

// saveSafetensors writes the file at path.
func saveSafetensors(path string, entries []safeEntry) error {
	var b bytes.Buffer
	if err := writeSafetensors(&b, path, entries); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o666)
}

func FuzzSafetensors(f *testing.F) {
	path := filepath.Join(f.TempDir(), "a.safetensors")
	if err := saveSafetensors(path, sampleEntries(&Adapter{Tensors: []Tensor{pair(1, "blk.0.attn_q.weight", 4, 32, 32)}})); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add(append([]byte{60, 0, 0, 0, 0, 0, 0, 0}, `{"a":{"dtype":"F16","shape":[1,0],"data_offsets":[0,0]}}    `...))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := strings.NewReader(string(data))
		list, err := readSafetensors(r, int64(len(data)))
		if err != nil {
			return
		}
		for i := range list {
			x, err := list[i].floats(r)
			if err != nil {
				t.Fatalf("%+v: %v", list[i], err)
			}
			n := uint64(1)
			for _, d := range list[i].shape {
				n *= d
			}
			if uint64(len(x)) != n {
				t.Fatalf("%+v: %d values", list[i], len(x))
			}
		}
	})
}

func FuzzPEFTConfig(f *testing.F) {
	f.Add([]byte(`{"peft_type":"LORA","r":4,"lora_alpha":8,"rank_pattern":{"q":2}}`))
	f.Add([]byte(`{"peft_type":"LORA","rank_pattern":null,"alpha_pattern":[1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parsePEFTConfig(text)
		if err != nil {
			return
		}
		if s, err := c.scale("model.layers.0.self_attn.q_proj", 4); err == nil && (s == 0 || math.IsNaN(s)) {
			t.Errorf("scale %g", s)
		}
	})
}

func FuzzGGUFAdapter(f *testing.F) {
	path := filepath.Join(f.TempDir(), "a.gguf")
	if err := WriteGGUF(path, sample()); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Read(strings.NewReader(string(data)), int64(len(data)))
		if err != nil {
			return
		}
		a, err := fromGGUF(file)
		if err != nil || a.check() != nil {
			return
		}
		for i := range a.Tensors {
			for _, m := range []*Matrix{a.Tensors[i].A, a.Tensors[i].B, a.Tensors[i].Whole} {
				if m == nil {
					continue
				}
				if x, err := m.Floats(); err == nil && len(x) != m.elements() {
					t.Errorf("%s: %d values for %v", a.Tensors[i].Base, len(x), m.Shape)
				}
			}
		}
	})
}
