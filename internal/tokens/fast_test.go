//go:build !slow

package tokens

// longRun is how many characters TestLongRuns takes.
const longRun = 300_000
