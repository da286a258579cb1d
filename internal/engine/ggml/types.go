package ggml

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"strings"
)

// typeInfo returns what ggml knows about t; ok is false for a number that names
// no type, or one whose support was removed.
func typeInfo(t Type) (TypeInfo, bool) {
	// ggml leaves holes for removed types: their block size is 0.
	if t < 0 || t >= C.GGML_TYPE_COUNT || C.ggml_blck_size(C.enum_ggml_type(t)) == 0 {
		return TypeInfo{}, false
	}
	ct := C.enum_ggml_type(t)
	traits := C.ggml_get_type_traits(ct)
	return TypeInfo{
		Type:          t,
		Name:          C.GoString(C.ggml_type_name(ct)),
		BlockSize:     int(C.ggml_blck_size(ct)),
		BlockBytes:    int(C.ggml_type_size(ct)),
		Quantized:     bool(C.ggml_is_quantized(ct)),
		NeedsImatrix:  bool(C.ggml_quantize_requires_imatrix(ct)),
		CanQuantize:   canQuantize(t),
		CanDequantize: t == TypeF32 || traits.to_float != nil,
		CanMulMat:     C.ggml_get_type_traits_cpu(ct).vec_dot != nil,
	}, true
}

// canQuantize lists the cases of ggml_quantize_chunk (ggml.c), which asserts on
// any other type.
func canQuantize(t Type) bool {
	switch C.enum_ggml_type(t) {
	case C.GGML_TYPE_F32, C.GGML_TYPE_F16, C.GGML_TYPE_BF16,
		C.GGML_TYPE_Q1_0, C.GGML_TYPE_Q2_0, C.GGML_TYPE_Q4_0, C.GGML_TYPE_Q4_1, C.GGML_TYPE_Q5_0,
		C.GGML_TYPE_Q5_1, C.GGML_TYPE_Q8_0, C.GGML_TYPE_MXFP4, C.GGML_TYPE_NVFP4,
		C.GGML_TYPE_Q2_K, C.GGML_TYPE_Q3_K, C.GGML_TYPE_Q4_K, C.GGML_TYPE_Q5_K, C.GGML_TYPE_Q6_K,
		C.GGML_TYPE_TQ1_0, C.GGML_TYPE_TQ2_0,
		C.GGML_TYPE_IQ2_XXS, C.GGML_TYPE_IQ2_XS, C.GGML_TYPE_IQ2_S, C.GGML_TYPE_IQ3_XXS, C.GGML_TYPE_IQ3_S,
		C.GGML_TYPE_IQ1_S, C.GGML_TYPE_IQ1_M, C.GGML_TYPE_IQ4_NL, C.GGML_TYPE_IQ4_XS:
		return true
	}
	return false
}

// Types lists all tensor types of the linked ggml in the order of their
// numbers. Without cgo it is empty.
func Types() []TypeInfo {
	var list []TypeInfo
	for t := range Type(C.GGML_TYPE_COUNT) {
		if info, ok := typeInfo(t); ok {
			list = append(list, info)
		}
	}
	return list
}

// ParseType returns the type called name, as ggml spells it and in any case:
// f32, q4_K, IQ2_XXS. The error of an unknown name lists the valid ones.
func ParseType(name string) (Type, error) {
	var names []string
	for _, info := range Types() {
		if strings.EqualFold(info.Name, name) {
			return info.Type, nil
		}
		names = append(names, info.Name)
	}
	return 0, fmt.Errorf("tensor type %q, want one of %s", name, strings.Join(names, ", "))
}

// Info returns the type's name and block layout, or an error for a number that
// names no type.
func (t Type) Info() (TypeInfo, error) {
	info, ok := typeInfo(t)
	if !ok {
		return info, fmt.Errorf("tensor type %d is unknown", int(t))
	}
	return info, nil
}

// String returns ggml's name of the type, or "type N".
func (t Type) String() string {
	if info, ok := typeInfo(t); ok {
		return info.Name
	}
	return fmt.Sprintf("type %d", int(t))
}
