//go:build !linux

package pipeline

import "os"

// openUnnamed reports that this system has no files without a name.
func openUnnamed(string) (*os.File, bool) { return nil, false }

// linkUnnamed is never called.
func linkUnnamed(*os.File, string) error { return os.ErrInvalid }

// procPath is never called.
func procPath(*os.File) string { return "" }
