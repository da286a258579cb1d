package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// machinePaths are folders of the machines this is written on; a file that
// names one works nowhere else. They are put together here so that this file
// does not contain them.
var machinePaths = []string{"/" + "work/", "/" + "root/", "/tmp/" + "eng"}

// Registry names: a mirror's address in a lock or build file.
var registries = []string{"artifactory" + ".", "jfrog" + ".io", "pkg-" + "mirror"}

// pathsAllowed lists files that need such a text, with the reason.
var pathsAllowed = map[string]string{}

func TestNoMachinePaths(t *testing.T) {
	for _, path := range sourceFiles(t) {
		if pathsAllowed[path] != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 { // a binary file, as git tells them
			continue
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			for _, bad := range slices.Concat(machinePaths, registries) {
				if bytes.Contains(line, []byte(bad)) {
					t.Errorf("%s:%d: contains %q: %s", path, i+1, bad, bytes.TrimSpace(line[:min(len(line), 120)]))
				}
			}
		}
	}
}
