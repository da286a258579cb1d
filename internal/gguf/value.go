package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Kind is the type of a value: upstream's enum gguf_type.
type Kind uint32

// The kinds of values.
const (
	KindUint8   Kind = 0
	KindInt8    Kind = 1
	KindUint16  Kind = 2
	KindInt16   Kind = 3
	KindUint32  Kind = 4
	KindInt32   Kind = 5
	KindFloat32 Kind = 6
	KindBool    Kind = 7
	KindString  Kind = 8
	KindArray   Kind = 9
	KindUint64  Kind = 10
	KindInt64   Kind = 11
	KindFloat64 Kind = 12
)

// kinds holds, by number, upstream's short name, the bytes of one value (0 if they vary) and the fewest bytes it
// takes in a file.
var kinds = [...]struct {
	name      string
	size, min uint64
}{
	KindUint8:   {"u8", 1, 1},
	KindInt8:    {"i8", 1, 1},
	KindUint16:  {"u16", 2, 2},
	KindInt16:   {"i16", 2, 2},
	KindUint32:  {"u32", 4, 4},
	KindInt32:   {"i32", 4, 4},
	KindFloat32: {"f32", 4, 4},
	KindBool:    {"bool", 1, 1},
	KindString:  {"str", 0, 8},
	KindArray:   {"arr", 0, 12},
	KindUint64:  {"u64", 8, 8},
	KindInt64:   {"i64", 8, 8},
	KindFloat64: {"f64", 8, 8},
}

func (k Kind) valid() bool { return uint64(k) < uint64(len(kinds)) }

// String returns upstream's short name, such as "u32" or "str", or "kind N" for one that does not exist.
func (k Kind) String() string {
	if !k.valid() {
		return fmt.Sprintf("kind %d", uint32(k))
	}
	return kinds[k].name
}

// Value is the value of a key: a number, a bool, a string or an array. It cannot be changed. The zero Value holds
// nothing: every accessor returns false, and a [Writer] refuses it.
type Value struct {
	kind Kind
	elem Kind   // of an array
	n    uint64 // elements of an array
	// raw is the value as a little-endian file stores it, without the length of a string and without element kind
	// and count of an array. A vocabulary stays one block of memory this way and is written back as it was.
	raw []byte
}

// Data lists the Go types that a [Value] is made of and gives back. Each stands for the kind of the same name, a
// slice for an array of it.
type Data interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64 | bool | string |
		[]uint8 | []int8 | []uint16 | []int16 | []uint32 | []int32 | []uint64 | []int64 | []float32 | []float64 |
		[]bool | []string
}

// kindOf returns the kind of v, and for a slice that of its elements.
func kindOf(v any) (k Kind, array bool) {
	switch v.(type) {
	case uint8, []uint8:
		k = KindUint8
	case int8, []int8:
		k = KindInt8
	case uint16, []uint16:
		k = KindUint16
	case int16, []int16:
		k = KindInt16
	case uint32, []uint32:
		k = KindUint32
	case int32, []int32:
		k = KindInt32
	case uint64, []uint64:
		k = KindUint64
	case int64, []int64:
		k = KindInt64
	case float32, []float32:
		k = KindFloat32
	case float64, []float64:
		k = KindFloat64
	case bool, []bool:
		k = KindBool
	case string, []string:
		k = KindString
	}
	switch v.(type) {
	case uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64, bool, string:
		return k, false
	}
	return k, true
}

// ValueOf returns v as a value; v is copied.
func ValueOf[T Data](v T) Value {
	switch x := any(v).(type) {
	case string:
		return Value{kind: KindString, raw: []byte(x)}
	case []string:
		size := 0
		for _, s := range x {
			size += 8 + len(s)
		}
		raw := make([]byte, 0, size)
		for _, s := range x {
			raw = append(binary.LittleEndian.AppendUint64(raw, uint64(len(s))), s...)
		}
		return Value{kind: KindArray, elem: KindString, n: uint64(len(x)), raw: raw}
	}
	k, array := kindOf(v)
	raw, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic("gguf: " + err.Error()) // cannot happen for the types in Data
	}
	if !array {
		return Value{kind: k, raw: raw}
	}
	return Value{kind: KindArray, elem: k, n: uint64(len(raw)) / kinds[k].size, raw: raw}
}

// ArrayOf returns an array of arrays. The pinned engine does not read such values; the format has them. It panics if
// an element is not an array.
func ArrayOf(arrays ...Value) Value {
	var raw []byte
	for _, a := range arrays {
		if a.kind != KindArray {
			panic(fmt.Sprintf("gguf: ArrayOf: element is %s, want an array", a.kind))
		}
		raw = appendPayload(raw, a)
	}
	return Value{kind: KindArray, elem: KindArray, n: uint64(len(arrays)), raw: raw}
}

// appendPayload appends v as it stands in a file after its kind.
func appendPayload(b []byte, v Value) []byte {
	return append(appendPrefix(b, v), v.raw...)
}

// appendPrefix appends what stands in a file between the kind of v and its raw bytes.
func appendPrefix(b []byte, v Value) []byte {
	switch v.kind {
	case KindString:
		b = binary.LittleEndian.AppendUint64(b, uint64(len(v.raw)))
	case KindArray:
		b = binary.LittleEndian.AppendUint32(b, uint32(v.elem))
		b = binary.LittleEndian.AppendUint64(b, v.n)
	}
	return b
}

// Kind returns the kind of the value.
func (v Value) Kind() Kind { return v.kind }

// Elem returns the kind of an array's elements; ok is false if v is not an array.
func (v Value) Elem() (k Kind, ok bool) { return v.elem, v.kind == KindArray }

// Len returns the number of an array's elements, 0 if v is not an array.
func (v Value) Len() int { return int(v.n) }

// As returns the value as a T; ok is false if it is of any other kind. See [Value.Uint], [Value.Int] and
// [Value.Float] for access without regard to the width.
func As[T Data](v Value) (x T, ok bool) {
	k, array := kindOf(x)
	if array != (v.kind == KindArray) || (array && v.elem != k) || (!array && v.kind != k) {
		return x, false
	}
	switch p := any(&x).(type) {
	case *string:
		*p = string(v.raw)
		return x, true
	case *[]string:
		*p, ok = decodeStrings(v)
		return x, ok
	}
	var dst any = &x
	if array {
		dst = allocate(&x, int(v.n))
	}
	_, err := binary.Decode(v.raw, binary.LittleEndian, dst)
	return x, err == nil
}

// allocate makes *p, a pointer to a slice of numbers or bools, n long and returns it.
func allocate(p any, n int) any {
	switch p := p.(type) {
	case *[]uint8:
		return resize(p, n)
	case *[]int8:
		return resize(p, n)
	case *[]uint16:
		return resize(p, n)
	case *[]int16:
		return resize(p, n)
	case *[]uint32:
		return resize(p, n)
	case *[]int32:
		return resize(p, n)
	case *[]uint64:
		return resize(p, n)
	case *[]int64:
		return resize(p, n)
	case *[]float32:
		return resize(p, n)
	case *[]float64:
		return resize(p, n)
	case *[]bool:
		return resize(p, n)
	}
	panic(fmt.Sprintf("gguf: allocate %T", p))
}

func resize[E any](p *[]E, n int) []E {
	*p = make([]E, n)
	return *p
}

func decodeStrings(v Value) ([]string, bool) {
	out := make([]string, 0, v.n)
	all := string(v.raw) // one copy that all elements share
	rest := v.raw
	for range v.n {
		if len(rest) < 8 {
			return nil, false
		}
		l := binary.LittleEndian.Uint64(rest)
		rest = rest[8:]
		if l > uint64(len(rest)) {
			return nil, false
		}
		at := len(all) - len(rest)
		out = append(out, all[at:at+int(l)])
		rest = rest[l:]
	}
	return out, true
}

// Str returns a string value.
func (v Value) Str() (string, bool) { return As[string](v) }

// Strings returns an array of strings. Each call makes a new one.
func (v Value) Strings() ([]string, bool) { return As[[]string](v) }

// Bool returns a bool value. Any byte but 0 in the file is true.
func (v Value) Bool() (bool, bool) { return As[bool](v) }

// Int returns a value of any integer kind; ok is false if it is not one or does not fit.
func (v Value) Int() (x int64, ok bool) {
	if v.kind >= KindFloat32 && v.kind <= KindArray || v.kind >= KindFloat64 || uint64(len(v.raw)) != kinds[v.kind].size {
		return 0, false
	}
	switch v.kind {
	case KindUint8:
		return int64(v.raw[0]), true
	case KindInt8:
		return int64(int8(v.raw[0])), true
	case KindUint16:
		return int64(binary.LittleEndian.Uint16(v.raw)), true
	case KindInt16:
		return int64(int16(binary.LittleEndian.Uint16(v.raw))), true
	case KindUint32:
		return int64(binary.LittleEndian.Uint32(v.raw)), true
	case KindInt32:
		return int64(int32(binary.LittleEndian.Uint32(v.raw))), true
	}
	x = int64(binary.LittleEndian.Uint64(v.raw))
	return x, v.kind == KindInt64 || x >= 0
}

// Uint returns a value of any integer kind; ok is false if it is not one or is negative.
func (v Value) Uint() (x uint64, ok bool) {
	if v.kind == KindUint64 {
		return As[uint64](v)
	}
	i, ok := v.Int()
	return uint64(i), ok && i >= 0
}

// Float returns a float32 or float64 value.
func (v Value) Float() (float64, bool) {
	if v.kind == KindFloat32 {
		f, ok := As[float32](v)
		return float64(f), ok
	}
	return As[float64](v)
}

// Values returns the elements of an array of any kind, one Value each; this is the way into arrays of arrays. ok is
// false if v is not an array.
func (v Value) Values() ([]Value, bool) { return v.values(math.MaxUint64) }

// values returns the first limit elements at most.
func (v Value) values(limit uint64) ([]Value, bool) {
	if v.kind != KindArray {
		return nil, false
	}
	limit = min(limit, v.n)
	out := make([]Value, 0, limit)
	rest := v.raw
	for range limit {
		var e Value
		var ok bool
		if e, rest, ok = cut(rest, v.elem); !ok {
			return nil, false
		}
		out = append(out, e)
	}
	return out, true
}

// cut takes one value of kind k from the front of b, which holds it as a little-endian file does.
func cut(b []byte, k Kind) (v Value, rest []byte, ok bool) {
	v.kind = k
	size := kinds[k].size
	switch k {
	case KindString:
		if len(b) < 8 {
			return v, b, false
		}
		size, b = binary.LittleEndian.Uint64(b), b[8:]
	case KindArray:
		if len(b) < 12 {
			return v, b, false
		}
		v.elem, v.n, b = Kind(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint64(b[4:]), b[12:]
		if size, ok = span(b, v.elem, v.n, 0, nil); !ok {
			return v, b, false
		}
	}
	if size > uint64(len(b)) {
		return v, b, false
	}
	v.raw = b[:size:size]
	return v, b[size:], true
}

// span returns how many bytes n elements of kind k take at the front of b, little endian. If swap is not nil it is
// called with every fixed-size field, its bytes per number, before the field is used: it turns the byte order round.
func span(b []byte, k Kind, n uint64, depth int, swap func(b []byte, width uint64)) (size uint64, ok bool) {
	if !k.valid() || depth > maxDepth || n > uint64(len(b))/kinds[k].min {
		return 0, false
	}
	if size = kinds[k].size; size != 0 {
		if swap != nil {
			swap(b[:n*size], size)
		}
		return n * size, true
	}
	rest := b
	for range n {
		if uint64(len(rest)) < kinds[k].min {
			return 0, false
		}
		var l uint64
		if k == KindString {
			if swap != nil {
				swap(rest[:8], 8)
			}
			l, rest = binary.LittleEndian.Uint64(rest), rest[8:]
		} else {
			if swap != nil {
				swap(rest[:4], 4)
				swap(rest[4:12], 8)
			}
			head := rest
			rest = rest[12:]
			l, ok = span(rest, Kind(binary.LittleEndian.Uint32(head)), binary.LittleEndian.Uint64(head[4:]), depth+1, swap)
			if !ok {
				return 0, false
			}
		}
		if l > uint64(len(rest)) {
			return 0, false
		}
		rest = rest[l:]
	}
	return uint64(len(b) - len(rest)), true
}

// check reports why v cannot be written, or nil.
func (v Value) check() error {
	switch {
	case !v.kind.valid():
		return fmt.Errorf("value of %s", v.kind)
	case v.kind == KindString && len(v.raw) > maxString:
		return fmt.Errorf("string of %d bytes, want at most %d", len(v.raw), maxString)
	case v.kind == KindArray && v.n > maxElements:
		return fmt.Errorf("array of %d elements, want at most %d", v.n, maxElements)
	case v.kind != KindString && v.kind != KindArray && uint64(len(v.raw)) != kinds[v.kind].size:
		return fmt.Errorf("empty value")
	case v.kind == KindArray:
		if size, ok := span(v.raw, v.elem, v.n, 0, nil); !ok || size != uint64(len(v.raw)) {
			return fmt.Errorf("array of %d %s does not match its bytes, or arrays are more than %d deep", v.n, v.elem, maxDepth+1)
		}
	}
	return nil
}

// shownElements is how many elements of an array [Value.String] shows.
const shownElements = 8

// String returns the value for people: strings quoted, arrays cut after 8 elements.
func (v Value) String() string {
	switch v.kind {
	case KindString:
		return strconv.Quote(string(v.raw))
	case KindFloat32, KindFloat64:
		if f, ok := v.Float(); ok {
			return strconv.FormatFloat(f, 'g', -1, int(kinds[v.kind].size)*8)
		}
	case KindBool:
		if b, ok := v.Bool(); ok {
			return strconv.FormatBool(b)
		}
	case KindArray:
		elems, _ := v.values(shownElements)
		s := make([]string, len(elems))
		for i, e := range elems {
			s[i] = e.String()
		}
		if v.n > shownElements {
			s = append(s, fmt.Sprintf("... %d in all", v.n))
		}
		return "[" + strings.Join(s, ", ") + "]"
	default:
		if u, ok := v.Uint(); ok {
			return strconv.FormatUint(u, 10)
		}
		if i, ok := v.Int(); ok {
			return strconv.FormatInt(i, 10)
		}
	}
	return "nothing"
}
