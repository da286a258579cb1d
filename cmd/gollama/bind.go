package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// kind is the type of a flag's value: it decides what a config file may hold.
type kind int

const (
	kindBool   kind = iota // true or false; the flag alone means true
	kindInt                // a whole number
	kindFloat              // a number
	kindString             // text
	kindMixed              // text, a number or a boolean: -ngl all, -fa on
	kindList               // text, may be given more than once
)

// binding ties a flag to a field of options.
type binding struct {
	kind  kind
	set   func(o *options, value string) error
	get   func(o *options) any // what --print-config shows, in a form that --config reads; nil shows nothing
	reset func(o *options)     // empties a list before a higher level fills it; nil for plain values
}

// then returns b with f run after each value that was accepted.
func (b binding) then(f func(o *options)) binding {
	set := b.set
	b.set = func(o *options, s string) error {
		if err := set(o, s); err != nil {
			return err
		}
		f(o)
		return nil
	}
	return b
}

// unprinted returns b without its place in --print-config, for a second
// spelling of a value that another flag shows.
func (b binding) unprinted() binding { b.get = nil; return b }

// parsedVar binds a flag to a field: parse reads the flag's text, show gives
// the field's value as --print-config writes it.
func parsedVar[T any](k kind, p func(*options) *T, parse func(string) (T, error), show func(T) any) binding {
	return binding{
		kind: k,
		set: func(o *options, s string) error {
			v, err := parse(s)
			if err == nil {
				*p(o) = v
			}
			return err
		},
		get: func(o *options) any { return show(*p(o)) },
	}
}

func asIs[T any](v T) any { return v }

func intVar(p func(*options) *int, lo, hi int) binding {
	return parsedVar(kindInt, p, func(s string) (int, error) { return parseInt(s, lo, hi) }, asIs[int])
}

func floatVar(p func(*options) *float32, lo, hi float64) binding {
	return parsedVar(kindFloat, p, func(s string) (float32, error) { return parseFloat(s, lo, hi) }, asIs[float32])
}

func boolVar(p func(*options) *bool) binding { return parsedVar(kindBool, p, parseBool, asIs[bool]) }

// notVar binds a flag to a field that says the opposite: --repack, NoRepack.
func notVar(p func(*options) *bool) binding {
	parse := func(s string) (bool, error) {
		v, err := parseBool(s)
		return !v, err
	}
	return parsedVar(kindBool, p, parse, func(v bool) any { return !v })
}

func stringVar(p func(*options) *string) binding {
	return binding{
		kind: kindString,
		set:  func(o *options, s string) error { *p(o) = s; return nil },
		get:  func(o *options) any { return *p(o) },
	}
}

// fileVar is a stringVar that refuses an empty name.
func fileVar(p func(*options) *string) binding {
	b := stringVar(p)
	b.set = func(o *options, s string) error {
		if s == "" {
			return errors.New("the file name is empty")
		}
		*p(o) = s
		return nil
	}
	return b
}

func enumVar[T fmt.Stringer](p func(*options) *T, parse func(string) (T, error)) binding {
	return parsedVar(kindString, p, parse, func(v T) any { return v.String() })
}

// wordVar takes one of a few words.
func wordVar(p func(*options) *string, words ...string) binding {
	return binding{
		kind: kindString,
		set: func(o *options, s string) error {
			for _, w := range words {
				if s == w {
					*p(o) = s
					return nil
				}
			}
			return fmt.Errorf("unknown value %q, want one of %s", s, strings.Join(words, ", "))
		},
		get: func(o *options) any { return *p(o) },
	}
}

// listVar collects values: parse reads one, text writes it back.
func listVar[T any](p func(*options) *[]T, parse func(string) ([]T, error), text func(T) string) binding {
	return binding{
		kind: kindList,
		set: func(o *options, s string) error {
			v, err := parse(s)
			if err == nil {
				*p(o) = append(*p(o), v...)
			}
			return err
		},
		get: func(o *options) any {
			list := make([]string, 0, len(*p(o)))
			for _, v := range *p(o) {
				list = append(list, text(v))
			}
			return list
		},
		reset: func(o *options) { *p(o) = nil },
	}
}

func parseInt(s string, lo, hi int) (int, error) {
	v, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is out of range", s)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return int(v), checkRange(s, v, int64(lo), int64(hi))
}

func checkRange(s string, v, lo, hi int64) error {
	switch {
	case v < lo:
		return fmt.Errorf("%s is too small, want %d or more", s, lo)
	case v > hi:
		return fmt.Errorf("%s is too large, want %d or less", s, hi)
	}
	return nil
}

// parseFloat reads a decimal number: no hexadecimal, no underscores, no NaN,
// no infinity.
func parseFloat(s string, lo, hi float64) (float32, error) {
	if strings.ContainsAny(s, "xXpP_nN") || s == "" {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	v, err := strconv.ParseFloat(s, 32)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is out of range", s)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	switch {
	case v < lo:
		return 0, fmt.Errorf("%s is too small, want %s or more", s, number(lo))
	case v > hi:
		return 0, fmt.Errorf("%s is too large, want %s or less", s, number(hi))
	}
	return float32(v), nil
}

func number(v float64) string {
	if math.Abs(v) == math.MaxFloat32 {
		return "a finite number"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// parseBool reads llama.cpp's spellings of a truth value.
func parseBool(s string) (bool, error) {
	switch s {
	case "true", "on", "enabled", "1":
		return true, nil
	case "false", "off", "disabled", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is not a truth value, want true or false", s)
}

// splitCSV splits at commas that are not inside double quotes; a doubled quote
// inside quotes is one quote (llama.cpp, parse_csv_row).
func splitCSV(s string) []string {
	var fields []string
	var field strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"' && !quoted && field.Len() > 0:
			field.WriteByte(c)
		case c == '"' && !quoted:
			quoted = true
		case c == '"' && i+1 < len(s) && s[i+1] == '"':
			field.WriteByte(c)
			i++
		case c == '"':
			quoted = false
		case c == ',' && !quoted:
			fields = append(fields, field.String())
			field.Reset()
		default:
			field.WriteByte(c)
		}
	}
	return append(fields, field.String())
}

// joinCSV is the reverse of splitCSV for one field.
func joinCSV(s string) string {
	if !strings.ContainsAny(s, `",`) {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}

// cutAny cuts s at the first byte that is in seps.
func cutAny(s, seps string) (before, after string, found bool) {
	i := strings.IndexAny(s, seps)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
