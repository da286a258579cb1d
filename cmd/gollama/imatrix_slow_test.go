//go:build slow

package main

func init() { killRuns = 50 }
