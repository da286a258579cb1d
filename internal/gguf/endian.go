package gguf

import (
	"encoding/binary"
	"fmt"
)

// blockHalves holds, for the types of blocks whose byte order is settled, where in a block its 16-bit numbers (scales
// and minima) begin, in bytes; everything else in such a block is single bytes. Other types, like q5_0 with the 32
// fifth bits in one word, are stored as the machine that quantized them saw them, and nothing says how.
// Source: byteswap_tensors in gguf-py/gguf/scripts/gguf_convert_endian.py at v0.5.0.
var blockHalves = map[Type][]uint64{
	TypeQ1_0:  {0},
	TypeQ4_0:  {0},
	TypeQ8_0:  {0},
	TypeQ4_K:  {0, 2},
	TypeQ6_K:  {208},
	TypeTQ2_0: {64},
	TypeMXFP4: {},
	TypeNVFP4: {},
}

// turn changes the byte order of b, the whole data of a tensor of type t, in place. An error leaves b as it was.
func turn(b []byte, t Type) error {
	if t.BlockSize() == 1 {
		reverse(b, t.TypeSize())
		return nil
	}
	halves, ok := blockHalves[t]
	if !ok {
		return fmt.Errorf("%s in a big-endian file, want a type without blocks or one of q1_0, q4_0, q8_0, q4_K, q6_K, tq2_0, mxfp4, nvfp4", t)
	}
	for ; len(b) > 0; b = b[t.TypeSize():] {
		for _, at := range halves {
			reverse(b[at:at+2], 2)
		}
	}
	return nil
}

// reverse turns round the byte order of the numbers in b.
func reverse(b []byte, width uint64) {
	switch width {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			binary.LittleEndian.PutUint32(b, binary.BigEndian.Uint32(b))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, binary.BigEndian.Uint64(b))
		}
	}
}
