//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package pipeline

import (
	"errors"
	"os"
)

// Lock says that this system has no locks: what a dead process left stays.
func Lock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
