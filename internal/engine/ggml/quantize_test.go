//go:build cgo

package ggml

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// normals returns n values of a standard normal distribution.
func normals(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(r.NormFloat64())
	}
	return s
}

// ones returns equal importance for n columns.
func ones(n int) []float32 {
	return slices.Repeat([]float32{1}, n)
}

// slowType leaves out the types whose search tables take ggml some ten seconds
// to build, unless -tags slow asks for them.
func slowType(info TypeInfo) bool {
	return !withSlow && (strings.HasPrefix(info.Name, "iq1_") || strings.HasPrefix(info.Name, "iq2_"))
}

// nmse returns sum (got-want)^2 / sum want^2 in float64.
func nmse(got, want []float32) float64 {
	var num, den float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		num += d * d
		den += float64(want[i]) * float64(want[i])
	}
	return num / den
}

// nmseLimits bounds the round trip of standard normal values. Comments give the
// bits a value takes; a uniform quantizer of normal values with b bits loses
// about 6 dB a bit, and an error in a wrapper (a wrong offset, size or row)
// raises each figure to about 1. The limits are 1.3 times what the pinned
// ggml measures, because a later version may search differently.
var nmseLimits = map[string]float64{
	"f32": 0, "f16": 6.1e-08, "bf16": 3.6e-06, // 32, 16, 16
	"q8_0": 3.9e-05, "q6_K": 0.0004, // 8.5, 6.56
	"q5_0": 0.0022, "q5_1": 0.0015, "q5_K": 0.0016, // 5.5, 6, 5.5
	"q4_0": 0.0087, "q4_1": 0.0066, "q4_K": 0.0067, // 4.5, 5, 4.5
	"iq4_nl": 0.0074, "iq4_xs": 0.0075, "mxfp4": 0.017, "nvfp4": 0.012, // 4.5, 4.25, 4.25, 4.5
	"q3_K": 0.028, "iq3_s": 0.026, "iq3_xxs": 0.042, // 3.44, 3.44, 3.06
	"q2_K": 0.096, "iq2_s": 0.081, "iq2_xs": 0.12, "iq2_xxs": 0.16, // 2.63, 2.56, 2.31, 2.06
	"iq1_m": 0.26, "iq1_s": 0.31, // 1.75, 1.56
	// Meant for models trained with them: the values are -1, 0, 1 times a scale.
	"tq1_0": 0.82, "tq2_0": 0.82, "q2_0": 0.68, "q1_0": 0.48, // 1.69, 2.06, 2.25, 1.13
}

func TestQuantizeRoundTrip(t *testing.T) {
	const nPerRow, nRows = 512, 6
	src := normals(nPerRow*nRows, 1)
	keep := slices.Clone(src)
	tested := 0
	for _, info := range Types() {
		if !info.CanQuantize || slowType(info) {
			continue
		}
		limit, ok := nmseLimits[info.Name]
		if !ok {
			t.Errorf("%s: no limit in the table", info.Name)
		}
		packed, err := Quantize(info.Type, src, nPerRow, ones(nPerRow))
		if err != nil {
			t.Errorf("Quantize(%s): %v", info.Name, err)
			continue
		}
		got, err := Dequantize(info.Type, packed, len(src))
		if err != nil {
			t.Errorf("Dequantize(%s): %v", info.Name, err)
			continue
		}
		tested++
		e := nmse(got, src)
		if e > limit {
			t.Errorf("%s: NMSE %.3g, want at most %.3g", info.Name, e, limit)
		}
		// Each row alone gives the same bytes: rows do not depend on each other.
		one, err := Quantize(info.Type, src[nPerRow:2*nPerRow], nPerRow, ones(nPerRow))
		if err != nil || !slices.Equal(one, packed[len(one):2*len(one)]) {
			t.Errorf("%s: row 1 alone differs from row 1 among others (%v)", info.Name, err)
		}
	}
	if tested < 20 {
		t.Errorf("%d types tested, want at least 20", tested)
	}
	if !slices.Equal(src, keep) {
		t.Error("Quantize changed its input")
	}
}

// The bound of q8_0 follows from its definition: values are d*q with q rounded
// to an integer and d = max|x|/127 rounded to a half, so the error is at most
// d/2 plus 127 * d * 2^-11.
func TestQ8Bound(t *testing.T) {
	src := normals(32*200, 2)
	packed, err := Quantize(TypeQ8_0, src, 32*200, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Dequantize(TypeQ8_0, packed, len(src))
	if err != nil {
		t.Fatal(err)
	}
	for b := 0; b < len(src); b += 32 {
		var amax float64
		for _, v := range src[b : b+32] {
			amax = max(amax, math.Abs(float64(v)))
		}
		bound := amax*(1.0/254+1.0/2048) + 1e-7 // and float32 rounding
		for i := b; i < b+32; i++ {
			if e := math.Abs(float64(got[i]) - float64(src[i])); e > bound {
				t.Fatalf("value %d: %g becomes %g, error %g, want at most %g", i, src[i], got[i], e, bound)
			}
		}
	}
}

// Columns with importance must lose less than the same columns without.
func TestImatrixHelps(t *testing.T) {
	const n = 512
	src := normals(n*8, 3)
	w := make([]float32, n)
	for i := range w {
		w[i] = 1e-3
		if i%4 == 0 {
			w[i] = 10
		}
	}
	loss := func(imatrix []float32) float64 {
		packed, err := Quantize(TypeQ4_K, src, n, imatrix)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Dequantize(TypeQ4_K, packed, len(src))
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for i := range src {
			d := float64(got[i]) - float64(src[i])
			sum += float64(w[i%n]) * d * d
		}
		return sum
	}
	if with, without := loss(w), loss(nil); with >= without {
		t.Errorf("weighted loss %g with the importance matrix, want less than %g without", with, without)
	}
}

func TestQuantizeErrors(t *testing.T) {
	iq2, err := ParseType("IQ2_XXS")
	if err != nil {
		t.Fatal(err)
	}
	row := normals(256, 4)
	with := func(i int, v float64) []float32 {
		s := slices.Clone(row)
		s[i] = float32(v)
		return s
	}
	weights := func(v float64) []float32 {
		s := ones(256)
		s[3] = float32(v)
		return s
	}
	for _, tt := range []struct {
		t       Type
		src     []float32
		n       int
		imatrix []float32
		want    string
	}{
		{TypeQ4_K, row, 128, nil, "want a multiple of 256"},
		{TypeQ4_K, row, 0, nil, "want a multiple of 256"},
		{TypeQ4_K, row, -256, nil, "want a multiple of 256"},
		{TypeQ8_0, row[:100], 32, nil, "want a multiple of the row length 32"},
		{iq2, row, 256, nil, "needs an importance matrix"},
		{iq2, row, 256, ones(255), "importance matrix of 255 values, want 256"},
		{TypeQ4_K, row, 256, []float32{}, "importance matrix of 0 values"},
		{TypeQ4_K, row, 256, weights(math.NaN()), "importance NaN at column 3"},
		{TypeQ4_K, row, 256, weights(-1), "importance -1 at column 3"},
		{TypeQ4_K, row, 256, weights(math.Inf(1)), "importance +Inf at column 3"},
		{TypeQ4_K, with(7, math.NaN()), 256, nil, "value NaN at row 0, column 7"},
		{TypeF32, with(7, math.NaN()), 256, nil, "value NaN"},
		{TypeBF16, with(7, math.Inf(-1)), 256, nil, "value -Inf"},
		{TypeF16, with(200, 65505), 100, nil, "256 values, want a multiple"},
		{TypeF16, with(200, 70000), 128, nil, "value 70000 at row 1, column 72"},
		{TypeI32, row, 256, nil, "cannot write"},
		{Type(4), row, 256, nil, "tensor type 4 is unknown"},
		{Type(-1), row, 256, nil, "unknown"},
		{Type(1 << 30), row, 256, nil, "unknown"},
	} {
		if _, err := Quantize(tt.t, tt.src, tt.n, tt.imatrix); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Quantize(%v, n=%d) = %v, want an error with %q", tt.t, tt.n, err, tt.want)
		}
	}
	for _, tt := range []struct {
		t     Type
		bytes int
		n     int
		want  string
	}{
		{TypeQ8_0, 34, 31, "want a multiple of 32"},
		{TypeQ8_0, 34, -32, "want a multiple of 32"},
		{TypeQ8_0, 33, 32, "33 bytes for 32 values, want 34"},
		{TypeQ8_0, 68, 32, "want 34"},
		{TypeF32, 7, 2, "want 8"},
		{TypeI32, 8, 2, "cannot read"},
		{Type(99), 8, 2, "unknown"},
	} {
		if _, err := Dequantize(tt.t, make([]byte, tt.bytes), tt.n); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Dequantize(%v, %d bytes, %d) = %v, want an error with %q", tt.t, tt.bytes, tt.n, err, tt.want)
		}
	}
	if b, err := Quantize(TypeQ8_0, nil, 32, nil); err != nil || len(b) != 0 {
		t.Errorf("Quantize of nothing = %v, %v", b, err)
	}
	if v, err := Dequantize(TypeF32, nil, 0); err != nil || len(v) != 0 {
		t.Errorf("Dequantize of nothing = %v, %v", v, err)
	}
}

// Rows at the edges of the accepted range must not make ggml abort: an abort
// ends this test binary. An error is allowed where a scale overflows.
func TestQuantizeExtremes(t *testing.T) {
	const n = 256
	fill := func(f func(i int) float32) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = f(i)
		}
		return s
	}
	r := normals(n, 5)
	rows := map[string][]float32{
		"zeros":       fill(func(int) float32 { return 0 }),
		"largest":     fill(func(i int) float32 { return maxF16 * float32(1-2*(i%2)) }),
		"subnormal":   fill(func(i int) float32 { return r[i] * 1e-40 }),
		"tiny":        fill(func(i int) float32 { return r[i] * 1e-20 }),
		"constant":    fill(func(int) float32 { return 0.1 }),
		"one outlier": fill(func(i int) float32 { return 1e-30 + maxF16*float32(max(0, 1-i)) }),
	}
	weights := map[string][]float32{
		"zero": fill(func(int) float32 { return 0 }),
		"max":  fill(func(int) float32 { return maxImatrix }),
		"min":  fill(func(int) float32 { return 1e-40 }),
		"mix":  fill(func(i int) float32 { return []float32{0, 1e-40, 1, maxImatrix}[i*7%4] }),
	}
	for _, info := range Types() {
		for row, src := range rows {
			for w, imatrix := range weights {
				if !info.CanQuantize || slowType(info) {
					continue
				}
				packed, err := Quantize(info.Type, src, n, imatrix)
				if err != nil {
					continue
				}
				got, err := Dequantize(info.Type, packed, n)
				if err != nil {
					t.Errorf("%s, %s, importance %s: %v", info.Name, row, w, err)
				}
				for i, v := range got {
					if v != v {
						t.Errorf("%s, %s, importance %s: value %d is NaN", info.Name, row, w, i)
						break
					}
				}
			}
		}
	}
}

func TestParseType(t *testing.T) {
	for name, want := range map[string]Type{"f32": TypeF32, "F16": TypeF16, "bf16": TypeBF16, "q4_0": TypeQ4_0,
		"Q8_0": TypeQ8_0, "q4_K": TypeQ4_K, "q6_k": TypeQ6_K, "i32": TypeI32} {
		if got, err := ParseType(name); got != want || err != nil {
			t.Errorf("ParseType(%q) = %d, %v, want %d", name, got, err, want)
		}
	}
	_, err := ParseType("q4_2")
	if err == nil || !strings.Contains(err.Error(), "q4_1") || strings.Contains(err.Error(), "DEPRECATED") {
		t.Errorf("ParseType(q4_2) = %v, want an error that lists the valid names", err)
	}
	if got := fmt.Sprint(TypeQ4_K, Type(99)); got != "q4_K type 99" {
		t.Errorf("String = %q", got)
	}
	// q4_K: 256 values in 4 + 12 + 128 bytes (ggml-common.h, block_q4_K).
	if info, err := TypeQ4_K.Info(); err != nil || info.BlockSize != 256 || info.BlockBytes != 144 || !info.Quantized {
		t.Errorf("TypeQ4_K.Info() = %+v, %v", info, err)
	}
}
