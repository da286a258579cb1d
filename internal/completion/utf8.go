package completion

import "unicode/utf8"

// Assembler joins pieces of text that may be cut inside a rune into pieces
// that are not. Every byte comes out once, in order: those that can no longer
// become a rune pass unchanged and at once, so at most three are held back.
// The zero value is ready.
type Assembler struct {
	buf  []byte
	done int // bytes of buf that the previous Push returned
}

// Push takes the next bytes and returns those that are complete, which may be
// none. The result is valid until the next call.
func (a *Assembler) Push(p []byte) []byte {
	rest := copy(a.buf, a.buf[a.done:])
	a.buf = append(a.buf[:rest], p...)
	a.done = len(a.buf) - incompleteTail(a.buf)
	return a.buf[:a.done]
}

// Flush returns the bytes held back and forgets them: the start of a rune that
// will not be completed. The result is valid until the next call.
func (a *Assembler) Flush() []byte {
	rest := a.buf[a.done:]
	a.done = len(a.buf)
	return rest
}

// incompleteTail returns how many bytes at the end of b begin a rune that more
// bytes could complete: 0 to 3.
func incompleteTail(b []byte) int {
	for i := len(b) - 1; i >= 0 && i > len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) { // true also for what can never be one
				return 0
			}
			return len(b) - i
		}
	}
	return 0
}
