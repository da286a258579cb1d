package ggml

import (
	"fmt"
	"math"
)

// f16Bits rounds v to the nearest IEEE half, ties to even; beyond 65504 it is
// infinite, and a NaN stays a quiet NaN.
func f16Bits(v float32) uint16 {
	b := math.Float32bits(v)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520 and more rounds past 65504
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: a half subnormal counts units of 2^-24
		return sign | uint16(math.RoundToEven(math.Abs(float64(v))*(1<<24)))
	}
	// Rebias 127 to 15 and round off 13 bits; a carry moves into the exponent.
	b -= (127 - 15) << 23
	b += 0xfff + b>>13&1
	return sign | uint16(b>>13)
}

// f16Float widens an IEEE half; it is exact.
func f16Float(h uint16) float32 {
	sign := float64(1)
	if h&0x8000 != 0 {
		sign = -1
	}
	exp, frac := int(h>>10&31), float64(h&0x3ff)
	switch exp {
	case 0:
		return float32(math.Copysign(frac/(1<<24), sign))
	case 31:
		if frac != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1+frac/1024, exp-15))
}

// bf16Bits rounds v to the nearest bfloat16, ties to even; a NaN stays a quiet
// NaN. Source: ggml/src/ggml-impl.h, ggml_compute_fp32_to_bf16.
func bf16Bits(v float32) uint16 {
	b := math.Float32bits(v)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 64
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// bf16Float widens a bfloat16; it is exact.
func bf16Float(h uint16) float32 {
	return math.Float32frombits(uint32(h) << 16)
}

// sameLen panics unless both lengths are equal: a wrong slice is a bug here,
// and C would write past it.
func sameLen(name string, dst, src int) {
	if dst != src {
		panic(fmt.Sprintf("ggml: %s: dst holds %d values, src %d", name, dst, src))
	}
}
