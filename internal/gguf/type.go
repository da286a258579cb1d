package gguf

import (
	"fmt"
	"strings"
)

// Type is the storage type of a tensor: ggml's enum ggml_type.
type Type uint32

// The tensor types of the pinned ggml. Numbers that are left out belonged to types that were removed.
const (
	TypeF32     Type = 0
	TypeF16     Type = 1
	TypeQ4_0    Type = 2
	TypeQ4_1    Type = 3
	TypeQ5_0    Type = 6
	TypeQ5_1    Type = 7
	TypeQ8_0    Type = 8
	TypeQ8_1    Type = 9
	TypeQ2_K    Type = 10
	TypeQ3_K    Type = 11
	TypeQ4_K    Type = 12
	TypeQ5_K    Type = 13
	TypeQ6_K    Type = 14
	TypeQ8_K    Type = 15
	TypeIQ2_XXS Type = 16
	TypeIQ2_XS  Type = 17
	TypeIQ3_XXS Type = 18
	TypeIQ1_S   Type = 19
	TypeIQ4_NL  Type = 20
	TypeIQ3_S   Type = 21
	TypeIQ2_S   Type = 22
	TypeIQ4_XS  Type = 23
	TypeI8      Type = 24
	TypeI16     Type = 25
	TypeI32     Type = 26
	TypeI64     Type = 27
	TypeF64     Type = 28
	TypeIQ1_M   Type = 29
	TypeBF16    Type = 30
	TypeTQ1_0   Type = 34
	TypeTQ2_0   Type = 35
	TypeMXFP4   Type = 39
	TypeNVFP4   Type = 40
	TypeQ1_0    Type = 41
	TypeQ2_0    Type = 42
)

// types holds, by number, ggml's name, elements per block and bytes per block; removed types are zero.
// Source: type_traits in ggml/src/ggml.c and the block structs in ggml/src/ggml-common.h at v0.5.0.
var types = [...]struct {
	name  string
	block uint64
	size  uint64
}{
	TypeF32:     {"f32", 1, 4},
	TypeF16:     {"f16", 1, 2},
	TypeQ4_0:    {"q4_0", 32, 18},
	TypeQ4_1:    {"q4_1", 32, 20},
	TypeQ5_0:    {"q5_0", 32, 22},
	TypeQ5_1:    {"q5_1", 32, 24},
	TypeQ8_0:    {"q8_0", 32, 34},
	TypeQ8_1:    {"q8_1", 32, 36},
	TypeQ2_K:    {"q2_K", 256, 84},
	TypeQ3_K:    {"q3_K", 256, 110},
	TypeQ4_K:    {"q4_K", 256, 144},
	TypeQ5_K:    {"q5_K", 256, 176},
	TypeQ6_K:    {"q6_K", 256, 210},
	TypeQ8_K:    {"q8_K", 256, 292},
	TypeIQ2_XXS: {"iq2_xxs", 256, 66},
	TypeIQ2_XS:  {"iq2_xs", 256, 74},
	TypeIQ3_XXS: {"iq3_xxs", 256, 98},
	TypeIQ1_S:   {"iq1_s", 256, 50},
	TypeIQ4_NL:  {"iq4_nl", 32, 18},
	TypeIQ3_S:   {"iq3_s", 256, 110},
	TypeIQ2_S:   {"iq2_s", 256, 82},
	TypeIQ4_XS:  {"iq4_xs", 256, 136},
	TypeI8:      {"i8", 1, 1},
	TypeI16:     {"i16", 1, 2},
	TypeI32:     {"i32", 1, 4},
	TypeI64:     {"i64", 1, 8},
	TypeF64:     {"f64", 1, 8},
	TypeIQ1_M:   {"iq1_m", 256, 56},
	TypeBF16:    {"bf16", 1, 2},
	TypeTQ1_0:   {"tq1_0", 256, 54},
	TypeTQ2_0:   {"tq2_0", 256, 66},
	TypeMXFP4:   {"mxfp4", 32, 17},
	TypeNVFP4:   {"nvfp4", 64, 36},
	TypeQ1_0:    {"q1_0", 128, 18},
	TypeQ2_0:    {"q2_0", 64, 18},
}

// Types returns every tensor type, by number.
func Types() []Type {
	var all []Type
	for t := range types {
		if Type(t).Valid() {
			all = append(all, Type(t))
		}
	}
	return all
}

// ParseType returns the type with ggml's name s, in upper or lower case. The error lists the names.
func ParseType(s string) (Type, error) {
	for _, t := range Types() {
		if strings.EqualFold(s, types[t].name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("tensor type %q: want one of %s", s, typeNames())
}

func typeNames() string {
	var names []string
	for _, t := range Types() {
		names = append(names, types[t].name)
	}
	return strings.Join(names, ", ")
}

// Valid reports whether the pinned ggml has the type t.
func (t Type) Valid() bool { return uint64(t) < uint64(len(types)) && types[t].block != 0 }

// String returns ggml's name of the type, such as "f16" or "q4_K", or "type N" for one that is not valid.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type %d", uint32(t))
	}
	return types[t].name
}

// BlockSize returns the number of elements in one block, 0 for a type that is not valid.
func (t Type) BlockSize() uint64 {
	if !t.Valid() {
		return 0
	}
	return types[t].block
}

// TypeSize returns the bytes of one block, 0 for a type that is not valid.
func (t Type) TypeSize() uint64 {
	if !t.Valid() {
		return 0
	}
	return types[t].size
}

// RowSize returns the bytes of n consecutive elements. ok is false if t is not valid, n is not a multiple of
// [Type.BlockSize], or the size is beyond 64 bits.
func (t Type) RowSize(n uint64) (size uint64, ok bool) {
	if !t.Valid() || n%types[t].block != 0 {
		return 0, false
	}
	return mul(n/types[t].block, types[t].size)
}
