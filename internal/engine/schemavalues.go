package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// maxGrammarRepeats is how often a grammar repeats something at most: it
// refuses a larger minimum, and takes a larger maximum for none.
// Source: MAX_REPETITION_THRESHOLD in src/llama-grammar.cpp.
const maxGrammarRepeats = 2000

// lengths returns the bounds of a length; most is -1 for none.
func lengths(s *jsonObject, path, min, max string) (least, most int, err error) {
	most = -1
	for _, x := range []struct {
		key string
		to  *int
	}{{min, &least}, {max, &most}} {
		if !s.has(x.key) {
			continue
		}
		n, _ := s.m[x.key].(json.Number)
		r, ok := rational(n)
		if !ok || !r.IsInt() || r.Sign() < 0 {
			return 0, 0, fmt.Errorf("%s: %q is not a whole number from 0", path, x.key)
		}
		*x.to = maxGrammarRepeats + 1
		if r.Cmp(big.NewRat(maxGrammarRepeats, 1)) <= 0 {
			*x.to = int(r.Num().Int64())
		}
	}
	switch {
	case least > maxGrammarRepeats:
		return 0, 0, fmt.Errorf("%s: %q is more than a grammar can count, %d", path, min, maxGrammarRepeats)
	case most >= 0 && most < least:
		return 0, 0, fmt.Errorf("%s: %q is below %q", path, max, min)
	}
	return least, most, nil
}

func setCounts(out *jsonObject, least, most int, min, max string) {
	if least > 0 {
		out.set(min, json.Number(strconv.Itoa(least)))
	}
	if most >= 0 {
		// More than a grammar can count would be any number.
		if most > maxGrammarRepeats {
			most = maxGrammarRepeats
		}
		out.set(max, json.Number(strconv.Itoa(most)))
	}
}

// Days that there are, and times of RFC 3339. llama.cpp's own rules know a 31st of February.
const (
	datePattern = `([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))` +
		`|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)`
	timePattern = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{3})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
)

// formatPatterns are the formats that are written as patterns; formats with a
// rule of llama.cpp's have none.
var formatPatterns = map[string]string{
	"date": "^" + datePattern + "$", "time": "^" + timePattern + "$", "date-time": "^" + datePattern + "T" + timePattern + "$",
	"uuid": "", "uuid1": "", "uuid2": "", "uuid3": "", "uuid4": "", "uuid5": "",
}

func normalString(s *jsonObject, path string) (*jsonObject, error) {
	out := newObject("type", "string")
	for i, key := range []string{"pattern", "format"} {
		if !s.has(key) {
			continue
		}
		for _, other := range []string{"format", "minLength", "maxLength"}[i:] {
			if s.has(other) {
				return nil, fmt.Errorf("%s: %q and %q together cannot be expressed by a grammar", path, key, other)
			}
		}
		text, ok := s.m[key].(string)
		if !ok {
			return nil, fmt.Errorf("%s: %q is not a string", path, key)
		}
		if key == "format" {
			if text, ok = formatPatterns[text]; !ok {
				return nil, fmt.Errorf("%s: the format %q has no grammar, only date, time, date-time, uuid have", path, s.m[key])
			}
			if text == "" {
				out.set("format", "uuid")
				return out, nil
			}
		}
		pattern, err := jsonPattern(text)
		if err != nil {
			return nil, fmt.Errorf("%s: the pattern %s: %w", path, text, err)
		}
		out.set("pattern", pattern)
		return out, nil
	}
	least, most, err := lengths(s, path, "minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	setCounts(out, least, most, "minLength", "maxLength")
	return out, nil
}

// Integers are written with 16 digits at most, as llama.cpp does without
// bounds, or with what 64 bits hold where a bound is beyond.
const (
	mostDigits  = 9999999999999999
	mostInteger = math.MaxInt64 - 1
)

// normalInteger always has both bounds or none: the grammar for one alone lets
// zeros lead, and takes 10 for 100 or more.
func normalInteger(s *jsonObject, path string) (*jsonObject, error) {
	out := newObject("type", "integer")
	if !slices.ContainsFunc(typeKeywords["integer"], s.has) {
		return out, nil
	}
	low, high := big.NewInt(-mostInteger), big.NewInt(mostInteger)
	given := map[bool]bool{}
	for _, key := range typeKeywords["integer"] {
		if !s.has(key) {
			continue
		}
		n, _ := s.m[key].(json.Number)
		r, ok := rational(n)
		if !ok {
			return nil, fmt.Errorf("%s: %q is not a number, or not one of a double's size", path, key)
		}
		upper := strings.HasSuffix(key, "aximum")
		given[upper] = true
		v := bound(r, upper, strings.HasPrefix(key, "exclusive"))
		if upper && v.Cmp(high) < 0 {
			high = v
		}
		if !upper && v.Cmp(low) > 0 {
			low = v
		}
	}
	if wide := big.NewInt(mostDigits); !given[true] && low.Cmp(wide) <= 0 {
		high = wide
	}
	if wide := big.NewInt(-mostDigits); !given[false] && high.Cmp(wide) >= 0 {
		low = wide
	}
	if low.Cmp(high) > 0 {
		return nil, fmt.Errorf("%s: no integer that a grammar can write lies within the bounds", path)
	}
	out.set("minimum", json.Number(low.String()))
	out.set("maximum", json.Number(high.String()))
	return out, nil
}

// bound returns the outermost integer that a bound allows.
func bound(r *big.Rat, upper, exclusive bool) *big.Int {
	floor := new(big.Int).Div(r.Num(), r.Denom()) // the denominator is positive: it rounds down
	switch {
	case r.IsInt() && exclusive && upper:
		return floor.Sub(floor, big.NewInt(1))
	case r.IsInt() && !exclusive, upper:
		return floor
	}
	return floor.Add(floor, big.NewInt(1))
}
