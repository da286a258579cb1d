package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// windowSize is how many bytes of a header are in memory at a time, besides the values read.
const windowSize = 256 << 10

// cursor walks through a header from front to back. Every read checks the bytes left in the file first.
type cursor struct {
	r    io.ReaderAt
	size int64
	pos  int64  // of the next byte
	buf  []byte // a window of the file
	off  int64  // of buf in the file
	big  bool   // big endian
	item string // what is being read, for errors: "key", "tensor" or empty
	idx  int    // its number
	name string // its name once known
}

// fail returns a FormatError for the field at offset.
func (c *cursor) fail(offset int64, field, format string, args ...any) error {
	switch {
	case c.item != "" && c.name == "":
		field = fmt.Sprintf("%s %d %s", c.item, c.idx, field)
	case c.item != "":
		field = fmt.Sprintf("%s %q %s", c.item, c.name, field)
	}
	return &FormatError{Offset: offset, Field: field, Msg: fmt.Sprintf(format, args...)}
}

// left returns the bytes from the next one to the end of the file.
func (c *cursor) left() uint64 { return uint64(c.size - c.pos) }

// peek returns at least the next n bytes, which must not exceed windowSize.
func (c *cursor) peek(n int, field string) ([]byte, error) {
	if uint64(n) > c.left() {
		return nil, c.fail(c.pos, field, "the file ends after %d bytes, want %d", c.left(), n)
	}
	if at := c.pos - c.off; at < 0 || at+int64(n) > int64(len(c.buf)) {
		if c.buf == nil {
			c.buf = make([]byte, min(windowSize, c.size))
		}
		c.buf = c.buf[:min(int64(cap(c.buf)), c.size-c.pos)]
		c.off = c.pos
		if err := readAt(c.r, c.buf, c.pos); err != nil {
			return nil, err
		}
	}
	return c.buf[c.pos-c.off:], nil
}

// readAt fills p from offset.
func readAt(r io.ReaderAt, p []byte, offset int64) error {
	n, err := r.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the file is shorter than its size was
	}
	return fmt.Errorf("read %d bytes at offset %d: %w", len(p), offset, err)
}

func (c *cursor) u32(field string) (uint32, error) {
	b, err := c.peek(4, field)
	if err != nil {
		return 0, err
	}
	c.pos += 4
	v := binary.LittleEndian.Uint32(b)
	if c.big {
		v = bits.ReverseBytes32(v)
	}
	return v, nil
}

func (c *cursor) u64(field string) (uint64, error) {
	b, err := c.peek(8, field)
	if err != nil {
		return 0, err
	}
	c.pos += 8
	v := binary.LittleEndian.Uint64(b)
	if c.big {
		v = bits.ReverseBytes64(v)
	}
	return v, nil
}

// count reads a number of things of at least min bytes each.
func (c *cursor) count(field string, least, limit uint64) (uint64, error) {
	at := c.pos
	n, err := c.u64(field)
	if err != nil {
		return 0, err
	}
	if n > limit {
		return 0, c.fail(at, field, "got %d, want at most %d", n, limit)
	}
	if n > c.left()/least {
		return 0, c.fail(at, field, "got %d, want at most %d: %d bytes are left in the file", n, c.left()/least, c.left())
	}
	return n, nil
}

// str reads the length of a string, at most limit bytes, and the string. The bytes are the caller's.
func (c *cursor) str(field string, limit uint64) ([]byte, error) {
	n, err := c.count(field+" length", 1, limit)
	if err != nil {
		return nil, err
	}
	start := c.pos
	c.pos += int64(n)
	return c.bytes(start)
}

// bytes returns a copy of the file from start to the next byte to read.
func (c *cursor) bytes(start int64) ([]byte, error) {
	b := make([]byte, c.pos-start)
	if start >= c.off && c.pos <= c.off+int64(len(c.buf)) {
		copy(b, c.buf[start-c.off:])
		return b, nil
	}
	return b, readAt(c.r, b, start)
}

// skip moves past n values of kind k and checks them.
func (c *cursor) skip(k Kind, n uint64, depth int) error {
	switch {
	case k == KindString:
		return c.skipStrings(n)
	case k == KindArray:
		for range n {
			elem, en, err := c.arrayHead(depth + 1)
			if err != nil {
				return err
			}
			if err := c.skip(elem, en, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	size := n * kinds[k].size // no overflow: arrayHead compared n with the bytes left
	if size > c.left() {
		return c.fail(c.pos, "value", "the file ends after %d bytes, want %d", c.left(), size)
	}
	c.pos += int64(size)
	return nil
}

// skipStrings is skip for strings. A vocabulary has up to a million: this loop is what reading one costs.
func (c *cursor) skipStrings(n uint64) error {
	for n > 0 {
		b, err := c.peek(8, "string length")
		if err != nil {
			return err
		}
		start, left := c.pos, uint64(c.size-c.pos)
		at := uint64(0) // from start
		for n > 0 && at+8 <= uint64(len(b)) {
			l := binary.LittleEndian.Uint64(b[at:])
			if c.big {
				l = bits.ReverseBytes64(l)
			}
			if l > left-at-8 || l > maxString {
				return c.fail(start+int64(at), "string length", "got %d, want at most %d", l, min(left-at-8, maxString))
			}
			at += 8 + l
			n--
		}
		c.pos = start + int64(at)
	}
	return nil
}

// arrayHead reads element kind and count of an array.
func (c *cursor) arrayHead(depth int) (elem Kind, n uint64, err error) {
	at := c.pos
	e, err := c.u32("array kind")
	if err != nil {
		return 0, 0, err
	}
	elem = Kind(e)
	if !elem.valid() {
		return 0, 0, c.fail(at, "array kind", "got %d, want 0 to %d", e, len(kinds)-1)
	}
	if depth > maxDepth {
		return 0, 0, c.fail(at, "array kind", "arrays %d deep, want at most %d", depth+1, maxDepth+1)
	}
	n, err = c.count("array length", kinds[elem].min, maxElements)
	return elem, n, err
}

// value reads the value of a key: its kind and what follows.
func (c *cursor) value() (v Value, err error) {
	at := c.pos
	k, err := c.u32("kind")
	if err != nil {
		return v, err
	}
	v.kind = Kind(k)
	if !v.kind.valid() {
		return v, c.fail(at, "kind", "got %d, want 0 to %d", k, len(kinds)-1)
	}
	elem, n := v.kind, uint64(1)
	switch v.kind {
	case KindString:
		v.raw, err = c.str("value", maxString)
		return v, err
	case KindArray:
		if elem, n, err = c.arrayHead(0); err != nil {
			return v, err
		}
		v.elem, v.n = elem, n
	}
	start := c.pos
	if err := c.skip(elem, n, 0); err != nil {
		return v, err
	}
	if v.raw, err = c.bytes(start); err != nil {
		return v, err
	}
	if c.big {
		if _, ok := span(v.raw, elem, n, 0, reverse); !ok {
			return v, c.fail(start, "value", "changed while it was read")
		}
	}
	return v, nil
}

// tensor reads a tensor description; fields are the offsets of its parts.
func (c *cursor) tensor() (t TensorInfo, fields fieldOffsets, err error) {
	fields.name = c.pos
	name, err := c.str("name", maxName)
	if err != nil {
		return t, fields, err
	}
	t.Name = string(name)
	c.name = t.Name
	fields.dims = c.pos
	nDims, err := c.u32("dimensions")
	if err != nil {
		return t, fields, err
	}
	if nDims > maxDims {
		return t, fields, c.fail(fields.dims, "dimensions", "got %d, want at most %d", nDims, maxDims)
	}
	t.Shape = make([]uint64, nDims)
	for i := range t.Shape {
		if t.Shape[i], err = c.u64("dimension"); err != nil {
			return t, fields, err
		}
	}
	fields.typ = c.pos
	typ, err := c.u32("type")
	if err != nil {
		return t, fields, err
	}
	t.Type = Type(typ)
	fields.offset = c.pos
	t.Offset, err = c.u64("offset")
	return t, fields, err
}

// fieldOffsets says where in the file the parts of a tensor description stand.
type fieldOffsets struct{ name, dims, typ, offset int64 }

// of returns the offset of the part an infoError speaks of.
func (o fieldOffsets) of(bad *infoError) int64 {
	switch bad.field {
	case "name":
		return o.name
	case "dimensions":
		return o.dims
	case "type":
		return o.typ
	}
	return o.dims + 4 + 8*int64(bad.dim)
}
