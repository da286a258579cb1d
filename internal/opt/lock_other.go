//go:build !unix

package opt

import "os"

// lockFile opens the file at path. Nothing is locked here.
func lockFile(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666) }
