package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// checkRepeats refuses a grammar with a repetition such as {3,2}: llama.cpp's
// parser takes the difference for a huge number and fills all memory. Whatever
// else is wrong is left to that parser.
func checkRepeats(grammar string) error {
	for i := 0; i < len(grammar); i++ {
		switch grammar[i] {
		case '#':
			n := strings.IndexByte(grammar[i:], '\n')
			if n < 0 {
				return nil
			}
			i += n
		case '"':
			i = closing(grammar, i, '"')
		case '[':
			i = closing(grammar, i, ']')
		case '{':
			end := strings.IndexByte(grammar[i:], '}')
			if end < 0 {
				return nil
			}
			body := grammar[i+1 : i+end]
			lo, hi, ok := strings.Cut(body, ",")
			m, errM := strconv.ParseUint(strings.TrimSpace(lo), 10, 64)
			n, errN := strconv.ParseUint(strings.TrimSpace(hi), 10, 64)
			if ok && errM == nil && errN == nil && n < m {
				return fmt.Errorf("the repetition {%s} is empty: its maximum is below its minimum", body)
			}
			i += end
		}
	}
	return nil
}

// closing returns the index of the end of a literal or character class that
// begins at i.
func closing(grammar string, i int, end byte) int {
	for i++; i < len(grammar) && grammar[i] != end; i++ {
		if grammar[i] == '\\' {
			i++
		}
	}
	return i
}
