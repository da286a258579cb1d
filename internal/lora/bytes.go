package lora

import "unsafe"

// The files are little endian, and so is every machine that the engine builds for: rows of numbers are used where they
// lie, without a copy.

// byteView returns the memory of x as bytes.
func byteView[T float32 | uint16](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// halves returns the memory of b as 16-bit numbers; b must begin at an even address, as every allocation does.
func halves(b []byte) []uint16 {
	if len(b) < 2 {
		return nil
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
}
