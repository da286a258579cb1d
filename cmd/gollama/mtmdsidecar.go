package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sidecars are the text files beside the media of a run.
type sidecars struct {
	ext       string // "": there are none
	overwrite bool
	taken     map[string]string // by file, the medium it belongs to
}

func newSidecars(o *options) *sidecars {
	return &sidecars{ext: o.media.sidecar, overwrite: o.media.overwrite || o.resume, taken: map[string]string{}}
}

// take returns the file for the text about some media, which is beside the first of them; "" if there is to be none. It
// refuses one that another medium of this run has, such as a.png and a.jpg, or that is there already.
func (s *sidecars) take(refs []mediaRef) (string, error) {
	if s.ext == "" {
		return "", nil
	}
	if len(refs) == 0 || refs[0].path == "" {
		return "", &inputError{err: errors.New("--sidecar: there is no file that it could be beside")}
	}
	medium := refs[0].path
	path := strings.TrimSuffix(medium, filepath.Ext(medium)) + s.ext
	if other, ok := s.taken[path]; ok && other != medium {
		return "", &inputError{err: fmt.Errorf("--sidecar: %s is that of %s", path, other)}
	}
	if path == medium {
		return "", &inputError{err: fmt.Errorf("--sidecar: %s would be replaced by the text about it", medium)}
	}
	if _, err := os.Lstat(path); err == nil && !s.overwrite {
		return "", &inputError{err: fmt.Errorf("--sidecar: %s exists", path), hint: "--overwrite"}
	}
	s.taken[path] = medium
	return path, nil
}

// writeSidecar writes a text, with a line end, if path is not empty.
func writeSidecar(path, text string) error {
	if path == "" {
		return nil
	}
	return writeWhole("--sidecar", path, []byte(strings.TrimRight(text, "\n")+"\n"))
}
