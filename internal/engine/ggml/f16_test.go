package ggml

import (
	"math"
	"testing"
)

// edges are float32 patterns around every place where rounding changes its way.
func edges() []float32 {
	list := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)),
		65504, 65519.996, 65520, 65536, -65520, 1 << 20, math.MaxFloat32, -math.MaxFloat32,
		math.SmallestNonzeroFloat32, 0x1p-14, 0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1.8p-24, 0x1.ffcp-15, 0x1.ffep-15}
	// Every sign and exponent with low, tie, near-tie and full fractions.
	for hi := range uint32(512) {
		for _, frac := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0x18000, 0x7fe000, 0x7ff000, 0x7fffff} {
			v := math.Float32frombits(hi<<23 | frac)
			if v == v {
				list = append(list, v)
			}
		}
	}
	return list
}

// Bit equality is right here: both sides round to nearest even, which has one answer.
func TestRowsMatchGo(t *testing.T) {
	src := edges()
	h, b := make([]uint16, len(src)), make([]uint16, len(src))
	F32ToF16(h, src)
	F32ToBF16(b, src)
	for i, v := range src {
		if want := f16Bits(v); h[i] != want {
			t.Errorf("F32ToF16(%g) = %#04x, want %#04x", v, h[i], want)
		}
		if want := bf16Bits(v); b[i] != want {
			t.Errorf("F32ToBF16(%g) = %#04x, want %#04x", v, b[i], want)
		}
	}
}

func TestWidenAll(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	got := make([]float32, len(all))
	for name, f := range map[string]struct {
		rows func([]float32, []uint16)
		one  func(uint16) float32
		back func([]uint16, []float32)
	}{
		"f16":  {F16ToF32, f16Float, F32ToF16},
		"bf16": {BF16ToF32, bf16Float, F32ToBF16},
	} {
		f.rows(got, all)
		again := make([]uint16, len(all))
		f.back(again, got)
		for i, v := range got {
			want := f.one(uint16(i))
			if v != want && (v == v || want == want) || math.Signbit(float64(v)) != math.Signbit(float64(want)) && v == v {
				t.Fatalf("%s: %#04x widens to %g, want %g", name, i, v, want)
			}
			if v == v && again[i] != all[i] { // a NaN may come back quiet
				t.Fatalf("%s: %#04x comes back as %#04x", name, i, again[i])
			}
		}
	}
}

// The values are from IEEE 754 and the definition of bfloat16, not from either
// implementation.
func TestKnownHalves(t *testing.T) {
	for _, tt := range []struct {
		v       float32
		f16, bf uint16
	}{
		{1, 0x3c00, 0x3f80}, {-2, 0xc000, 0xc000}, {65504, 0x7bff, 0x4780}, {65520, 0x7c00, 0x4780},
		{0x1p-24, 0x0001, 0x3380}, {0x1p-25, 0x0000, 0x3300}, {0x1.8p-24, 0x0002, 0x33c0},
		{1 + 0x1p-11, 0x3c00, 0x3f80}, {1 + 0x3p-11, 0x3c02, 0x3f80}, {1 + 0x1p-8, 0x3c04, 0x3f80}, {1 + 0x3p-8, 0x3c0c, 0x3f82},
		{3.1415927, 0x4248, 0x4049},
	} {
		if got := f16Bits(tt.v); got != tt.f16 {
			t.Errorf("f16Bits(%g) = %#04x, want %#04x", tt.v, got, tt.f16)
		}
		if got := bf16Bits(tt.v); got != tt.bf {
			t.Errorf("bf16Bits(%g) = %#04x, want %#04x", tt.v, got, tt.bf)
		}
	}
}

func TestRowsPanicOnLength(t *testing.T) {
	for name, f := range map[string]func(){
		"F32ToF16":  func() { F32ToF16(make([]uint16, 2), make([]float32, 3)) },
		"F16ToF32":  func() { F16ToF32(make([]float32, 2), make([]uint16, 3)) },
		"F32ToBF16": func() { F32ToBF16(make([]uint16, 2), make([]float32, 3)) },
		"BF16ToF32": func() { BF16ToF32(make([]float32, 2), make([]uint16, 3)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic on slices of different lengths", name)
				}
			}()
			f()
		}()
	}
	F32ToF16(nil, nil)
	BF16ToF32(nil, nil)
}
