//go:build !linux

package builtin

import "errors"

func memoryFile(string, string) (string, error) { return "", errors.ErrUnsupported }
