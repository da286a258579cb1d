//go:build race

package tokens

// raceSlack is how many times slower the race detector makes a test.
const raceSlack = 15
