package cvector

import (
	_ "embed"
	"strings"
)

// The built-in pairs: twelve each of joy and sorrow, kindness and cruelty, calm and anger, hope and despair, courage and
// fear, thanks and complaint. What they have in common is the good and the bad side.
var (
	//go:embed positive.txt
	positive string
	//go:embed negative.txt
	negative string
)

// DefaultPairs returns the built-in pairs.
func DefaultPairs(escape func(string) string) ([]Pair, error) {
	return LinePairs(strings.NewReader(positive), strings.NewReader(negative), "the built-in positive.txt", "the built-in negative.txt", escape)
}
