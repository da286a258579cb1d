//go:build slow

package tokens

// longRun is how many characters TestLongRuns takes.
const longRun = 3_000_000
