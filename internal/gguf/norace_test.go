//go:build !race

package gguf

// raceSlack is how many times slower the race detector makes a test.
const raceSlack = 1
