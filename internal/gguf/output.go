package gguf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// output is a file that gets its name when it is complete.
type output struct {
	path string
	f    *os.File
	temp string // the file's present name; empty while it has none or after rename
}

// createOutput opens a file in the folder of path, without a name if the system can do that.
func createOutput(path string) (*output, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if f, ok := openUnnamed(filepath.Dir(path)); ok {
		return &output{path: path, f: f}, nil
	}
	for {
		temp := tempName(path)
		f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &output{path: path, f: f, temp: temp}, nil
	}
}

// tempName returns a name that is free in all likelihood.
func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".gollama-%016x.tmp", rand.Uint64()))
}

// finish brings the data to disk and the file under a temporary name.
func (o *output) finish() error {
	if err := o.f.Sync(); err != nil {
		return err
	}
	if o.temp == "" {
		temp := tempName(o.path)
		if err := linkUnnamed(o.f, temp); err != nil {
			return err
		}
		o.temp = temp
	}
	return o.f.Close()
}

// rename gives the finished file its name.
func (o *output) rename() error {
	if err := os.Rename(o.temp, o.path); err != nil {
		return err
	}
	o.temp = ""
	// The data is safe either way; that the name survives a power cut is best effort, not all systems can.
	if dir, err := os.Open(filepath.Dir(o.path)); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

// discard closes the file and removes its temporary name.
func (o *output) discard() {
	_ = o.f.Close()
	if o.temp != "" {
		_ = os.Remove(o.temp)
	}
}
