package pipeline

import (
	"os"
	"path/filepath"
)

// scratchName is what temporary names of scratch files are made of, where they have one.
const scratchName = "scratch"

// Scratch begins a file in dir, or in the system's folder for such files if dir is "", that only this process is to use, and
// that never becomes an output: Close or Abort drops it. Where files without a name exist (Linux) nothing is left of a process
// that dies; elsewhere it is a .gollama-*.tmp, which the next Scratch in dir removes. The engine opens it by [File.Path].
func Scratch(dir string) (*File, error) { return scratch(dir, openUnnamed) }

func scratch(dir string, unnamed func(dir string) (*os.File, bool)) (*File, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	return begin(filepath.Join(dir, scratchName), 0, unnamed)
}

// Path returns a name under which the file can be opened again until Commit or Abort, by this process.
func (o *File) Path() string {
	if o.temp != "" {
		return o.temp
	}
	return procPath(o.File)
}
