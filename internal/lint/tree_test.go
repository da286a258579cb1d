package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the checkout, seen from this package's folder.
const root = "../.."

// source is a parsed Go file.
type source struct {
	path  string // slash-separated, relative to the checkout
	lines int
	file  *ast.File
}

// fset holds the positions of all parsed files.
var fset = token.NewFileSet()

// goFiles parses the Go files under cmd and internal.
func goFiles(t *testing.T) []source {
	t.Helper()
	var list []source
	for _, path := range sourceFiles(t) {
		if !strings.HasSuffix(path, ".go") || !strings.HasPrefix(path, "cmd/") && !strings.HasPrefix(path, "internal/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		list = append(list, source{path, bytes.Count(text, []byte("\n")), f})
	}
	if len(list) < 20 {
		t.Fatalf("%d Go files found, want the whole tree", len(list))
	}
	return list
}

// sourceFiles lists what git tracks or would track; without git (an unpacked
// archive) it walks the tree and leaves out hidden folders but .ci.
func sourceFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err == nil && len(out) > 0 {
		var list []string
		for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
			if st, err := os.Lstat(filepath.Join(root, path)); err == nil && st.Mode().IsRegular() {
				list = append(list, path)
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	var list []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && len(d.Name()) > 1 && d.Name()[0] == '.' && rel != "../.." && d.Name() != ".ci" && d.Name() != ".." {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			list = append(list, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
