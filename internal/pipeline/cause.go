package pipeline

import (
	"errors"
	"io/fs"
	"syscall"
)

// Cause returns the reason of an error about a file without the system call and the path, for messages that say the path
// themselves: of "stat a.txt: no such file or directory" it leaves "no such file", which still wraps fs.ErrNotExist. Other errors
// come back as they are.
func Cause(err error) error {
	var pe *fs.PathError
	switch {
	case !errors.As(err, &pe):
		return err
	case errors.Is(pe.Err, fs.ErrNotExist) && pe.Op != "create": // then it is the folder that is missing
		return &reason{"no such file", pe.Err}
	case errors.Is(pe.Err, syscall.EISDIR):
		return &reason{"it is a directory", pe.Err}
	}
	return pe.Err
}

// reason is an error of the system in our words.
type reason struct {
	text string
	err  error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.err }
