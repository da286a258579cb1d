package main

import (
	"encoding/json"
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

// checkBounds refuses a schema that asks for a minimum above the maximum:
// llama.cpp drops one of the two.
func checkBounds(schema string) error {
	var v any
	if err := json.Unmarshal([]byte(schema), &v); err != nil {
		return nil // left to the engine, which says more
	}
	return boundsOf(v)
}

func boundsOf(v any) error {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if err := boundsOf(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, of := range [][2]string{{"minItems", "maxItems"}, {"minLength", "maxLength"}, {"minimum", "maximum"}} {
			lo, ok := v[of[0]].(float64)
			hi, ok2 := v[of[1]].(float64)
			if ok && ok2 && lo > hi {
				return fmt.Errorf("JSON schema: %s %v is above %s %v", of[0], lo, of[1], hi)
			}
		}
		for key, item := range v {
			if key == "const" || key == "enum" || key == "default" || key == "examples" {
				continue // data
			}
			if err := boundsOf(item); err != nil {
				return err
			}
		}
	}
	return nil
}
