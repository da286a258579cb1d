//go:build slow && cgo

package engine

func init() { randomSchemas = 20000 }
