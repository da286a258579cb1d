package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/imatrix"
)

const (
	moeModel   = "../../../shared/fixtures/imatrix/moe5.gguf" // the story model with 5 equal experts, of which 2 are used
	longText   = "../../../shared/data/shakespeare.txt"
	peersDir   = "../../.peers"
	textBytes  = 60000
	tokensIn32 = 32 * 128
)

// imatrixText writes the first 60,000 bytes of Shakespeare, or skips.
func imatrixText(t *testing.T, dir string) string {
	t.Helper()
	story(t)
	data, err := os.ReadFile(longText)
	if err != nil {
		t.Skipf("no text: %v", err)
	}
	path := filepath.Join(dir, "sh.txt")
	if err := os.WriteFile(path, data[:textBytes], 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// measure runs gollama imatrix over the text, 32 chunks of 128 tokens unless args say otherwise.
func measure(t *testing.T, model, text, out string, args ...string) (stdout string) {
	t.Helper()
	stdout, msg, code := gollama(t, append([]string{"imatrix", "-q", "-m", model, "-f", text, "-o", out, "-c", "128", "-b", "128", "-ub", "128", "--chunks", "32", "-t", "1"}, args...)...)
	if code != 0 {
		t.Fatalf("%q: status %d, %s", args, code, msg)
	}
	return stdout
}

// exampleMatrices writes the importance matrices that examples are about.
func exampleMatrices(t *testing.T, dir string) {
	t.Helper()
	const made = "../../internal/imatrix/testdata/llama-imatrix"
	f, err := imatrix.Open(made+".gguf", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(filepath.Join(dir, "part1.gguf"), false); err != nil {
		t.Fatal(err)
	}
	f.Entries[0].Sum2[0]++
	if err := f.Write(filepath.Join(dir, "part2.gguf"), false); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(made + ".dat")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "old.dat"), data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// readImatrix reads a file of a test.
func readImatrix(t *testing.T, path string) *imatrix.File {
	t.Helper()
	f, err := imatrix.Open(path, 128)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// peer runs one of llama.cpp's own tools, or skips.
func peer(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(peersDir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: make peers builds it", name)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

var finalEstimate = regexp.MustCompile(`Final estimate: PPL = [0-9.]+ \+/- [0-9.]+`)

// sameEstimate compares perplexities as they are printed; 1e-7 of them is what the exponentials are off by, which may turn
// the last digit.
func sameEstimate(t *testing.T, got, want string) {
	t.Helper()
	var g, w [2]float64
	for _, x := range []struct {
		text string
		to   *[2]float64
	}{{got, &g}, {want, &w}} {
		if _, err := fmt.Sscanf(x.text, "Final estimate: PPL = %f +/- %f", &x.to[0], &x.to[1]); err != nil {
			t.Fatalf("%q: %v", x.text, err)
		}
	}
	if math.Abs(g[0]-w[0]) > 1e-4+1e-7*w[0] || math.Abs(g[1]-w[1]) > 1e-5+1e-7*w[1] {
		t.Errorf("%q, llama.cpp has %q", got, want)
	}
}

// Values that a collector of its own in float64 gave on another machine, whose kernels round in another way; that moves
// a column's sum by up to 3e-4, as llama-imatrix's own. TestImatrixPeers compares with this machine's.
func TestImatrixTruth(t *testing.T) {
	dir := t.TempDir()
	text, out := imatrixText(t, dir), filepath.Join(dir, "out.gguf")
	stdout := measure(t, storyModel, text, out)
	var ppl, dev float64
	if _, err := fmt.Sscanf(stdout, "Final estimate: PPL = %f +/- %f\n", &ppl, &dev); err != nil || math.Abs(ppl/695.772771-1) > 2e-4 || math.Abs(dev/70.86245-1) > 2e-4 {
		t.Errorf("standard output %q: %v", stdout, err)
	}
	f := readImatrix(t, out)
	if len(f.Entries) != 35 || f.Chunks() != 32 || f.ChunkSize != 128 || f.Torn() != "" {
		t.Errorf("%d entries, %d chunks of %d", len(f.Entries), f.Chunks(), f.ChunkSize)
	}
	for _, e := range f.Entries {
		if !slices.Equal(e.Counts, []uint64{tokensIn32}) {
			t.Errorf("%s: counts %v", e.Name, e.Counts)
		}
	}
	for name, want := range map[string]map[int]float64{
		"blk.0.attn_q.weight":   {0: 2542.710854, 1: 1900.325859, 31: 2762.606831, 63: 2197.146820, -1: 332932.452480},
		"blk.2.ffn_down.weight": {0: 339.040791, 1: 187.477615, 31: 202.249728, 171: 171.742864, -1: 49264.330944},
	} {
		e := f.Entry(name)
		for i, w := range want {
			got := 0.0
			for k, v := range e.Sum2 {
				if k == i || i < 0 {
					got += v
				}
			}
			if math.Abs(got/w-1) > 5e-4 {
				t.Errorf("%s[%d] = %.6f, want %.6f", name, i, got, w)
			}
		}
	}
	if f.Entry("output.weight") != nil {
		t.Error("the head is measured")
	}
	measure(t, storyModel, text, out, "--process-output")
	if f := readImatrix(t, out); len(f.Entries) != 36 || f.Entry("output.weight").Counts[0] != tokensIn32 {
		t.Errorf("with the head: %d entries", len(f.Entries))
	}
}

// The input of the first block's attention is the normed embedding, which Go computes in float64: sums of squares and
// sums agree to what the engine's float32 norm rounds.
func TestImatrixFirstBlock(t *testing.T) {
	dir := t.TempDir()
	text, out := imatrixText(t, dir), filepath.Join(dir, "out.gguf")
	measure(t, storyModel, text, out, "--chunks", "5", "--no-ppl")
	f, err := gguf.Open(storyModel)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	embd, norm := floats(t, f, "token_embd.weight"), floats(t, f, "blk.0.attn_norm.weight")
	eps, _ := f.Float("llama.attention.layer_norm_rms_epsilon")
	p := engine.DefaultParams()
	p.Model, p.VocabOnly = storyModel, true
	m, err := engine.LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	data, _ := os.ReadFile(text)
	tokens, err := m.Vocab().Tokenize(string(data), true, false)
	if err != nil {
		t.Fatal(err)
	}
	n := len(norm)
	sum2, sum := make([]float64, n), make([]float64, n)
	for i, tok := range tokens[:5*128] {
		if i%128 == 0 {
			tok = m.Vocab().BOS()
		}
		x := embd[int(tok)*n : int(tok)*n+n]
		ss := 0.0
		for _, v := range x {
			ss += v * v
		}
		scale := 1 / math.Sqrt(ss/float64(n)+eps)
		for j, v := range x {
			y := v * scale * norm[j]
			sum2[j] += y * y
			sum[j] += y
		}
	}
	for _, name := range []string{"attn_q", "attn_k", "attn_v"} {
		e := readImatrix(t, out).Entry("blk.0." + name + ".weight")
		for j := range sum2 {
			// Three roundings of float32 in each value, 2 x 3 x 6e-8 in its square; they do not all add up.
			if math.Abs(e.Sum2[j]/sum2[j]-1) > 4e-7 || math.Abs(e.Sum[j]-sum[j]) > 2e-7*math.Sqrt(sum2[j]*5*128) {
				t.Errorf("%s[%d]: %v and %v, want %v and %v", name, j, e.Sum2[j], e.Sum[j], sum2[j], sum[j])
			}
		}
	}
}

// floats reads a float32 tensor.
func floats(t *testing.T, f *gguf.File, name string) []float64 {
	t.Helper()
	i, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	b, err := f.ReadTensor(i)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float64, len(b)/4)
	for k := range x {
		x[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:])))
	}
	return x
}

// llama-imatrix, llama-perplexity and llama-quantize of the same pin, with the flags of both, in several shapes.
func TestImatrixPeers(t *testing.T) {
	dir := t.TempDir()
	text := imatrixText(t, dir)
	moe, err := filepath.Abs(moeModel)
	if err != nil {
		t.Fatal(err)
	}
	model, err := filepath.Abs(storyModel)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := filepath.Join(dir, "ours.gguf"), filepath.Join(dir, "theirs.gguf")
	for _, tt := range []struct {
		model string
		args  []string
	}{
		{model, []string{"-c", "128", "-b", "128", "-ub", "128", "--chunks", "32"}},
		{model, []string{"-c", "128", "--chunks", "20"}}, // 16 windows side by side, 32 tokens of each at once
		{model, []string{"-c", "96", "-b", "64", "-ub", "64", "--chunks", "7", "-fa", "off", "--process-output"}},
		{moe, []string{"-c", "128", "-b", "256", "-ub", "256", "--chunks", "16"}},
	} {
		args := append([]string{"-m", tt.model, "-f", "sh.txt", "-t", "1"}, tt.args...)
		want := finalEstimate.FindString(peer(t, dir, "llama-imatrix", append(slices.Clone(args), "-o", theirs)...))
		stdout, msg, code := gollama(t, append(append([]string{"imatrix", "-q"}, append(slices.Clone(args[:2]), append([]string{"-f", text}, args[4:]...)...)...), "-o", ours)...)
		if code != 0 {
			t.Fatalf("%q: status %d, %s", tt.args, code, msg)
		}
		sameEstimate(t, stdout, want)
		if !slices.Contains(tt.args, "--process-output") {
			want := ""
			for i := 0; want == "" && i < 20; i++ { // llama.cpp's logger may lose its last lines
				want = finalEstimate.FindString(peer(t, dir, "llama-perplexity", args...))
			}
			sameEstimate(t, stdout, want)
		}
		a, b := readImatrix(t, ours), readImatrix(t, theirs)
		d := imatrix.Compare(a, b)
		if len(d.OnlyA)+len(d.OnlyB)+len(d.Shapes) > 0 || a.Chunks() != b.Chunks() {
			t.Errorf("%q: %d and %d entries, %d and %d chunks", tt.args, len(a.Entries), len(b.Entries), a.Chunks(), b.Chunks())
		}
		for i, x := range d.Tensors {
			// llama-imatrix adds float32 to float32: it is off by 1.3e-5 here.
			if x.Max > 2e-5 || !slices.Equal(a.Entries[i].Counts, b.Entries[i].Counts) {
				t.Errorf("%q: %s: %+v, counts %v and %v", tt.args, x.Name, x, a.Entries[i].Counts, b.Entries[i].Counts)
			}
		}
	}
}

// llama-imatrix and llama-quantize read our file as they read their own: with equal sums the quantized model has the
// same bytes, our own tensors and keys notwithstanding.
func TestImatrixReadByPeers(t *testing.T) {
	dir := t.TempDir()
	text := imatrixText(t, dir)
	model, err := filepath.Abs(storyModel)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := filepath.Join(dir, "a", "imatrix.gguf"), filepath.Join(dir, "b", "imatrix.gguf")
	for _, path := range []string{ours, theirs} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	measure(t, storyModel, text, ours, "--chunks", "8")
	peer(t, dir, "llama-imatrix", "-m", "x", "--in-file", ours, "-c", "128", "-o", theirs)
	a, b := readImatrix(t, ours), readImatrix(t, theirs)
	if b.Ranges != nil || len(b.Entries) != 35 || b.Chunks() != 8 {
		t.Errorf("llama-imatrix wrote %d entries, %d chunks, ranges %v", len(b.Entries), b.Chunks(), b.Ranges)
	}
	for i, e := range a.Entries {
		for j, v := range e.Sum2 {
			if float64(float32(v)) != b.Entries[i].Sum2[j] {
				t.Fatalf("%s[%d]: %v, llama-imatrix read %v", e.Name, j, v, b.Entries[i].Sum2[j])
			}
		}
	}
	var quantized [2][]byte
	for i, path := range []string{ours, theirs} {
		peer(t, filepath.Dir(path), "llama-quantize", "--imatrix", "imatrix.gguf", model, "q.gguf", "Q4_K_M")
		if quantized[i], err = os.ReadFile(filepath.Join(filepath.Dir(path), "q.gguf")); err != nil {
			t.Fatal(err)
		}
	}
	// The key quantize.imatrix.dataset differs where the text's path does; ours keeps it.
	if !bytes.Equal(quantized[0], quantized[1]) {
		t.Errorf("the quantized models differ: %d and %d bytes", len(quantized[0]), len(quantized[1]))
	}
}

// Neither threads, nor whether logits are wanted, nor how a chunk is cut changes a byte of the tensors.
func TestImatrixInvariance(t *testing.T) {
	dir := t.TempDir()
	text := imatrixText(t, dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	measure(t, storyModel, text, path("one"))
	want := readImatrix(t, path("one"))
	for name, args := range map[string][]string{
		"threads": {"-t", "2"}, "no logits": {"--no-ppl"}, "batches": {"-b", "64", "-ub", "64"}, "no logits, threads": {"--no-ppl", "-t", "2"},
	} {
		measure(t, storyModel, text, path(name), args...)
		got := readImatrix(t, path(name))
		for i, e := range got.Entries {
			w := want.Entries[i]
			if !slices.Equal(e.Sum2, w.Sum2) || !slices.Equal(e.Sum, w.Sum) || !slices.Equal(e.Counts, w.Counts) {
				t.Errorf("%s: %s differs", name, e.Name)
			}
		}
	}
	// Two runs give the same file.
	measure(t, storyModel, text, path("two"))
	a, _ := os.ReadFile(path("one"))
	b, _ := os.ReadFile(path("two"))
	if !bytes.Equal(bytes.ReplaceAll(b, []byte("two"), []byte("one")), a) {
		t.Error("two runs give different bytes")
	}
	// Batches of few tokens count, and what does not fill one.
	measure(t, storyModel, text, path("ub"), "-ub", "8")
	measure(t, storyModel, text, path("130"), "-c", "130", "-b", "130")
	for name, count := range map[string]uint64{"ub": 4096, "130": 4160} {
		f := readImatrix(t, path(name))
		if len(f.Entries) != 35 || f.Entries[0].Counts[0] != count || f.Torn() != "" || f.Chunks() != 32 {
			t.Errorf("%s: %d entries, counts %v, %d chunks", name, len(f.Entries), f.Entries[0].Counts, f.Chunks())
		}
	}
}

func TestImatrixMergeShards(t *testing.T) {
	dir := t.TempDir()
	text := imatrixText(t, dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	measure(t, storyModel, text, path("full"))
	for i := range 2 {
		measure(t, storyModel, text, path(fmt.Sprint("half", i)), "--chunk", fmt.Sprint(16*i), "--chunks", "16")
	}
	for i := range 4 {
		measure(t, storyModel, text, path(fmt.Sprint("shard", i)), "--shard", fmt.Sprintf("%d/4", i))
	}
	merge := func(out string, in ...string) {
		t.Helper()
		args := []string{"imatrix", "merge", "-o", path(out)}
		for _, name := range in {
			args = append(args, path(name))
		}
		if _, msg, code := gollama(t, args...); code != 0 || msg != "" {
			t.Fatalf("merge %q: status %d, %s", in, code, msg)
		}
	}
	merge("halves", "half0", "half1")
	merge("selvah", "half1", "half0")
	merge("shards", "shard2", "shard0", "shard3", "shard1")
	merge("pair", "shard1", "shard3")
	merge("tree", "pair", "shard2", "shard0")
	want := readImatrix(t, path("full"))
	for _, name := range []string{"halves", "selvah", "shards", "tree"} {
		f := readImatrix(t, path(name))
		for i, e := range f.Entries {
			w := want.Entries[i]
			if !slices.Equal(e.Counts, w.Counts) {
				t.Errorf("%s: %s: counts %v, want %v", name, e.Name, e.Counts, w.Counts)
			}
			for j, v := range e.Sum2 {
				// As float32, which quantizers read, there is no difference; float64 differs by a few of its roundings.
				if float32(v) != float32(w.Sum2[j]) || math.Abs(v/w.Sum2[j]-1) > 1e-14 {
					t.Fatalf("%s: %s[%d] = %v, want %v", name, e.Name, j, v, w.Sum2[j])
				}
			}
		}
		if fmt.Sprint(f.Ranges) != fmt.Sprint(want.Ranges) || f.Model != want.Model {
			t.Errorf("%s: ranges %v, want %v", name, f.Ranges, want.Ranges)
		}
	}
	for what, in := range map[string][]string{"itself": {"half0", "half0"}, "a part of it": {"halves", "shard0"}} {
		_, msg, code := gollama(t, "imatrix", "merge", "-o", path("twice"), path(in[0]), path(in[1]))
		if code != exitInput || !strings.Contains(msg, path(in[1])) || !strings.Contains(msg, "--force") {
			t.Errorf("with %s: status %d, %s", what, code, msg)
		}
	}
	if outputExists(path("twice")) {
		t.Error("a refused merge was written")
	}
	// --in-file adds to files; what they have is not measured again.
	measure(t, storyModel, text, path("more"), "--in-file", path("half0"), "--chunk", "16", "--chunks", "16")
	if d := imatrix.Compare(readImatrix(t, path("more")), want); !d.Equal() {
		t.Error("half a run on top of the first half differs from a whole run")
	}
	_, msg, code := gollama(t, "imatrix", "-q", "-m", storyModel, "-f", text, "-c", "128", "-o", path("twice"), "--in-file", path("half0"))
	if code != exitInput || !strings.Contains(msg, "twice") {
		t.Errorf("what --in-file has is measured again: status %d, %s", code, msg)
	}
}

func TestImatrixExperts(t *testing.T) {
	if _, err := os.Stat(moeModel); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	text := imatrixText(t, dir)
	moe, dense := filepath.Join(dir, "moe.gguf"), filepath.Join(dir, "dense.gguf")
	measure(t, storyModel, text, dense)
	args := []string{"imatrix", "-m", moeModel, "-f", text, "-o", moe, "-c", "128", "-b", "128", "--chunks", "32", "-t", "2"}
	stdout, msg, code := gollama(t, append(args, "--coverage-min", "0.99", "--json")...)
	if code != exitRecords || strings.Count(msg, "_exps.weight") != 15 || !strings.Contains(msg, "80.00% of the experts") {
		t.Errorf("status %d, %s", code, msg)
	}
	var res imatrixResult
	if err := json.Unmarshal([]byte(stdout), &res); err != nil || res.Coverage != 0.8 || res.Entries != 40 || len(res.Missing) != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	f, d := readImatrix(t, moe), readImatrix(t, dense)
	for _, e := range f.Entries {
		if e.Experts() == 0 {
			continue
		}
		sum := uint64(0)
		for _, c := range e.Counts {
			sum += c
		}
		// The fifth expert is never chosen; each token chooses two.
		if e.Experts() != 5 || e.Counts[4] != 0 || sum != 2*tokensIn32 || e.Sum2[4*e.Width()] != 0 {
			t.Errorf("%s: counts %v", e.Name, e.Counts)
		}
		w := d.Entry(strings.Replace(e.Name, "_exps", "", 1))
		for j := range e.Width() {
			total := 0.0
			for k := range 5 {
				total += e.Sum2[k*e.Width()+j]
			}
			// Equal experts: the model is the dense one, but for rounding in what chooses them.
			if math.Abs(total/(2*w.Sum2[j])-1) > 4e-4 {
				t.Errorf("%s[%d]: %v, want %v", e.Name, j, total, 2*w.Sum2[j])
			}
		}
	}
	if _, msg, code = gollama(t, append(args, "--coverage-min", "0.8")...); code != 0 {
		t.Errorf("status %d, %s", code, msg)
	}
	// With a coverage that is reached at once, the run ends early.
	if _, msg, code = gollama(t, append(args, "--until-coverage", "--coverage-min", "0.8", "--expert-min", "1")...); code != 0 || readImatrix(t, moe).Chunks() != 1 {
		t.Errorf("--until-coverage: status %d, %s, %d chunks", code, msg, readImatrix(t, moe).Chunks())
	}
	_, msg, code = gollama(t, "imatrix", "convert", moe, "-o", filepath.Join(dir, "moe.dat"))
	if code != 0 || !strings.Contains(msg, "15 entries have experts that met no token") || !strings.Contains(msg, "counts of experts") {
		t.Errorf("convert: status %d, %s", code, msg)
	}
	stdout, _, code = gollama(t, "imatrix", "check", "-m", moeModel, moe, "--json", "--expert-min", "1")
	if code != exitRecords || strings.Count(stdout, `"dead_experts"`) != 15 || !strings.Contains(stdout, `"expert_coverage":0.8`) {
		t.Errorf("check: status %d, %s", code, stdout)
	}
	// The dense file is one of another model.
	if stdout, _, code = gollama(t, "imatrix", "check", "-m", moeModel, dense); code != exitRecords || strings.Count(stdout, "it has no entry\n") != 15 {
		t.Errorf("check of another model's file: status %d, %s", code, stdout)
	}
}
