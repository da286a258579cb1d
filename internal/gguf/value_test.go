package gguf

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func checkAs[T Data](t *testing.T, x T, k Kind, shown string) {
	t.Helper()
	v := ValueOf(x)
	if got, ok := As[T](v); !ok || !reflect.DeepEqual(got, x) {
		t.Errorf("As(ValueOf(%v)) = %v, %v", x, got, ok)
	}
	if elem, array := v.Elem(); v.Kind() != k && !(array && elem == k) {
		t.Errorf("ValueOf(%v) has kind %v of %v, want %v", x, v.Kind(), elem, k)
	}
	if got := v.String(); got != shown {
		t.Errorf("String of %v = %s, want %s", x, got, shown)
	}
	if err := v.check(); err != nil {
		t.Errorf("check of %v: %v", x, err)
	}
}

func TestValueKinds(t *testing.T) {
	checkAs(t, uint8(255), KindUint8, "255")
	checkAs(t, int8(-128), KindInt8, "-128")
	checkAs(t, uint16(65535), KindUint16, "65535")
	checkAs(t, int16(-5), KindInt16, "-5")
	checkAs(t, uint32(math.MaxUint32), KindUint32, "4294967295")
	checkAs(t, int32(math.MinInt32), KindInt32, "-2147483648")
	checkAs(t, uint64(math.MaxUint64), KindUint64, "18446744073709551615")
	checkAs(t, int64(math.MinInt64), KindInt64, "-9223372036854775808")
	checkAs(t, float32(0.1), KindFloat32, "0.1")
	checkAs(t, 0.1, KindFloat64, "0.1")
	checkAs(t, true, KindBool, "true")
	checkAs(t, "a\n", KindString, `"a\n"`)
	checkAs(t, []uint8{1, 2}, KindUint8, "[1, 2]")
	checkAs(t, []int8{-1}, KindInt8, "[-1]")
	checkAs(t, []uint16{1}, KindUint16, "[1]")
	checkAs(t, []int16{-1}, KindInt16, "[-1]")
	checkAs(t, []uint32{1}, KindUint32, "[1]")
	checkAs(t, []int32{-1}, KindInt32, "[-1]")
	checkAs(t, []uint64{1}, KindUint64, "[1]")
	checkAs(t, []int64{-1}, KindInt64, "[-1]")
	checkAs(t, []float32{0.5}, KindFloat32, "[0.5]")
	checkAs(t, []float64{0.5}, KindFloat64, "[0.5]")
	checkAs(t, []bool{true, false}, KindBool, "[true, false]")
	checkAs(t, []string{"a", ""}, KindString, `["a", ""]`)
	checkAs(t, []int32{}, KindInt32, "[]")
	checkAs(t, make([]uint8, 10), KindUint8, "[0, 0, 0, 0, 0, 0, 0, 0, ... 10 in all]")
}

func TestValueNumbers(t *testing.T) {
	for _, tt := range []struct {
		v           Value
		u           uint64
		uok         bool
		i           int64
		iok         bool
		f           float64
		fok, bok    bool
		stringIsOne bool
	}{
		{v: ValueOf(uint8(7)), u: 7, uok: true, i: 7, iok: true},
		{v: ValueOf(int8(-7)), i: -7, iok: true},
		{v: ValueOf(uint16(7)), u: 7, uok: true, i: 7, iok: true},
		{v: ValueOf(int16(-7)), i: -7, iok: true},
		{v: ValueOf(uint32(7)), u: 7, uok: true, i: 7, iok: true},
		{v: ValueOf(int32(-7)), i: -7, iok: true},
		{v: ValueOf(int32(7)), u: 7, uok: true, i: 7, iok: true},
		{v: ValueOf(int64(-7)), i: -7, iok: true},
		{v: ValueOf(uint64(7)), u: 7, uok: true, i: 7, iok: true},
		{v: ValueOf(uint64(math.MaxUint64)), u: math.MaxUint64, uok: true},
		{v: ValueOf(float32(0.5)), f: 0.5, fok: true},
		{v: ValueOf(0.5), f: 0.5, fok: true},
		{v: ValueOf(true), bok: true},
		{v: ValueOf("x"), stringIsOne: true},
		{v: ValueOf([]uint8{1})},
		{v: Value{}},
	} {
		if u, ok := tt.v.Uint(); ok != tt.uok || ok && u != tt.u {
			t.Errorf("%v.Uint() = %v, %v", tt.v, u, ok)
		}
		if i, ok := tt.v.Int(); ok != tt.iok || ok && i != tt.i {
			t.Errorf("%v.Int() = %v, %v", tt.v, i, ok)
		}
		if f, ok := tt.v.Float(); ok != tt.fok || ok && f != tt.f {
			t.Errorf("%v.Float() = %v, %v", tt.v, f, ok)
		}
		if _, ok := tt.v.Bool(); ok != tt.bok {
			t.Errorf("%v.Bool(): %v", tt.v, ok)
		}
		if _, ok := tt.v.Str(); ok != tt.stringIsOne {
			t.Errorf("%v.Str(): %v", tt.v, ok)
		}
		if _, ok := tt.v.Strings(); ok {
			t.Errorf("%v.Strings(): ok", tt.v)
		}
	}
	if got := (Value{}).String(); got != "nothing" {
		t.Errorf("zero Value: got %s", got)
	}
}

func TestKVs(t *testing.T) {
	kvs := KVs{{"a", ValueOf(uint32(1))}, {"b", ValueOf("x")}}
	with := kvs.With("a", ValueOf(true)).With("c", ValueOf(0.5)).Without("b", "absent")
	if got := fmt.Sprint(with); got != "[{a true} {c 0.5}]" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(kvs); got != `[{a 1} {b "x"}]` {
		t.Errorf("the receiver became %s", got)
	}
	u, uok := kvs.Uint("a")
	i, iok := kvs.Int("a")
	s, sok := kvs.Str("b")
	b, bok := with.Bool("a")
	f, fok := with.Float("c")
	if u != 1 || !uok || i != 1 || !iok || s != "x" || !sok || !b || !bok || f != 0.5 || !fok {
		t.Error(u, uok, i, iok, s, sok, b, bok, f, fok)
	}
	if _, ok := kvs.Get("absent"); ok {
		t.Error("found a key that is not there")
	}
	if _, ok := kvs.Uint("absent"); ok {
		t.Error("Uint of a key that is not there: ok")
	}
}

func TestTypes(t *testing.T) {
	all := Types()
	if len(all) != 35 {
		t.Errorf("got %d types, want 35", len(all))
	}
	for _, want := range all {
		for _, name := range []string{want.String(), strings.ToUpper(want.String())} {
			if got, err := ParseType(name); err != nil || got != want {
				t.Errorf("ParseType(%q) = %v, %v", name, got, err)
			}
		}
		size, ok := want.RowSize(want.BlockSize() * 3)
		if !ok || size != 3*want.TypeSize() || size == 0 {
			t.Errorf("%v: RowSize of 3 blocks = %d, %v", want, size, ok)
		}
		if _, ok := want.RowSize(want.BlockSize() + 1); ok && want.BlockSize() != 1 {
			t.Errorf("%v: RowSize of a part of a block: ok", want)
		}
	}
	_, err := ParseType("q9")
	mustContain(t, err, `tensor type "q9": want one of f32, f16, q4_0`)
	for _, removed := range []Type{4, 5, 31, 33, 36, 38, 43, math.MaxUint32} {
		if removed.Valid() || removed.BlockSize() != 0 || removed.TypeSize() != 0 {
			t.Errorf("%v is valid", removed)
		}
	}
	if got := Type(4).String(); got != "type 4" {
		t.Errorf("got %q", got)
	}
}

// TestTypesOfPin compares the table with the one of gguf-py in the pinned source.
func TestTypesOfPin(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("..", "..", ".engine", "src", "gguf-py", "gguf", "constants.py"))
	if err != nil {
		t.Logf("the pinned source is not there, nothing is compared: %v", err)
		return
	}
	_, table, ok := strings.Cut(string(src), "GGML_QUANT_SIZES")
	table, _, _ = strings.Cut(table, "\n}")
	lines := regexp.MustCompile(`GGMLQuantizationType\.(\w+):\s*\((\d+), (.*)\),`).FindAllStringSubmatch(table, -1)
	if !ok || len(lines) != len(Types()) {
		t.Fatalf("got %d types, want the %d of the pin", len(Types()), len(lines))
	}
	for _, m := range lines {
		typ, err := ParseType(m[1])
		if err != nil {
			t.Error(err)
			continue
		}
		block, _ := strconv.ParseUint(m[2], 10, 64)
		if size := sum(t, m[3]); typ.BlockSize() != block || typ.TypeSize() != size {
			t.Errorf("%v: got %d elements in %d bytes, want %d in %d", typ, typ.BlockSize(), typ.TypeSize(), block, size)
		}
	}
}

// sum computes a Python expression of +, * and // over numbers and QK_K.
func sum(t *testing.T, expr string) (total uint64) {
	t.Helper()
	for _, term := range strings.Split(expr, "+") {
		product, op := uint64(1), "*"
		for _, f := range strings.Fields(term) {
			if f == "*" || f == "//" {
				op = f
				continue
			}
			n, err := strconv.ParseUint(strings.Replace(f, "QK_K", "256", 1), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if op == "*" {
				product *= n
			} else {
				product /= n
			}
		}
		total += product
	}
	return total
}
