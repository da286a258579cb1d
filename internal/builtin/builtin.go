// Package builtin holds the model that is part of the program: a storyteller of 1.5 million parameters, and a
// projector that shows it the colour of a picture. tools/tinymodel makes both from nothing.
//
// llama.cpp reads models from files, so the bytes are given a path: a file in memory on Linux, which leaves nothing
// behind and needs nothing that can be written; else, or without /proc, a file in the user's cache folder, which is
// compared with the bytes each time.
package builtin

import (
	_ "embed"
	"sync"
)

// Name stands for the model, and for its projector, where a file's name is asked for.
const Name = "builtin"

//go:embed storyteller.gguf
var model string

//go:embed storyteller-mmproj.gguf
var projector string

var (
	modelPath     = sync.OnceValues(func() (string, error) { return unpack("storyteller.gguf", model) })
	projectorPath = sync.OnceValues(func() (string, error) { return unpack("storyteller-mmproj.gguf", projector) })
)

// Model returns the path of a GGUF file with the model, which is good until the process ends.
func Model() (string, error) { return modelPath() }

// Projector returns the path of a GGUF file with the model's vision projector (an mmproj file), which is good until
// the process ends.
func Projector() (string, error) { return projectorPath() }

// Label returns what a path is called in results and messages: [Name] for what [Model] and [Projector] return, else
// the path itself.
func Label(path string) string {
	mu.Lock()
	defer mu.Unlock()
	if unpacked[path] {
		return Name
	}
	return path
}

var (
	mu       sync.Mutex
	unpacked = map[string]bool{} // paths
)
