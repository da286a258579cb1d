package gguf

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
)

func TestReadBigEndian(t *testing.T) {
	kvs, tensors, data := sample(32)
	little := read(t, write(t, kvs, tensors, data))
	f := read(t, bigEndian(t, little, data))
	if f.ByteOrder != binary.BigEndian || f.Version != 3 {
		t.Errorf("got %v, version %d", f.ByteOrder, f.Version)
	}
	sameKVs(t, f.KVs, kvs)
	for i, ti := range f.Tensors {
		if b, err := f.ReadTensor(i); err != nil || !bytes.Equal(b, data[i]) {
			t.Errorf("ReadTensor(%q): %v, got % x, want % x", ti.Name, err, b, data[i])
		}
	}
	var got bytes.Buffer
	if _, err := f.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), write(t, kvs, tensors, data)) {
		t.Errorf("WriteTo: %v, or not the bytes of the little-endian file", err)
	}
}

func TestReadBigEndianBlocks(t *testing.T) {
	for _, typ := range Types() {
		ti := TensorInfo{Name: "w", Type: typ, Shape: []uint64{3 * typ.BlockSize()}}
		data := make([]byte, ti.Size())
		for i := range data {
			data[i] = byte(7*i + 1)
		}
		f := read(t, bigEndian(t, read(t, write(t, nil, []TensorInfo{ti}, [][]byte{data})), [][]byte{data}))
		b, err := f.ReadTensor(0)
		switch typ {
		case TypeQ4_0, TypeQ8_0, TypeQ4_K, TypeQ6_K, TypeMXFP4, TypeNVFP4:
			if err != nil || !bytes.Equal(b, data) {
				t.Errorf("%s: %v, got % x, want % x", typ, err, b, data)
			}
		case TypeQ1_0, TypeTQ2_0: // bigEndian does not know them
			if err != nil || bytes.Equal(b, data) {
				t.Errorf("%s: %v, or nothing was turned", typ, err)
			}
		default:
			if typ.BlockSize() == 1 {
				if err != nil || !bytes.Equal(b, data) {
					t.Errorf("%s: %v", typ, err)
				}
				continue
			}
			mustContain(t, err, `tensor "w": `+typ.String()+" in a big-endian file, want")
			_, err = f.WriteTo(io.Discard)
			mustContain(t, err, `tensor "w": `+typ.String()+" in a big-endian file, want")
		}
	}
}
