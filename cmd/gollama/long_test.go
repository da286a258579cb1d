//go:build long

package main

func init() { killMoments = 50 }
