package opt

import (
	"errors"
	"os"

	"gollama/internal/pipeline"
)

// lockFile opens the file at path and locks it until it is closed or the
// process ends. Where there are no locks, as on some network file systems, it
// only opens it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	held, err := pipeline.Lock(f)
	switch {
	case held, errors.Is(err, errors.ErrUnsupported):
		return f, nil
	case err == nil:
		err = errors.New("another process trains in this folder")
	}
	return nil, errors.Join(err, f.Close())
}
