//go:build slow && cgo

package engine

func init() {
	randomSchemas, mutantSchemas, templateMutants, longTurns, runSlowBombs = 20000, 20000, 20000, 500, true
}
