package lint

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "gollama/"

// mayImport is the import table: a package (or a folder, with a slash at the
// end) and the packages of this module that it may import. Imports go one way:
// cmd, then the tools, then engine, gguf and pipeline, then engine/ggml.
var mayImport = map[string][]string{
	"cmd/": {"internal/"},

	"internal/completion": append([]string{"internal/media"}, tools...),
	"internal/tokens":     tools,
	"internal/imatrix":    append([]string{"internal/chart"}, tools...),
	"internal/cvector":    append([]string{"internal/chart"}, tools...),
	"internal/lora":       tools,
	"internal/opt":        append([]string{"internal/opt/", "internal/chart"}, tools...),
	"internal/builtin":    append([]string{"internal/builtin/"}, tools...),

	// training: what a step computes knows nothing of where examples come from but their form
	"internal/opt/bpe":   tools,
	"internal/opt/data":  append([]string{"internal/tokens"}, tools...), // token files
	"internal/opt/graph": append([]string{"internal/opt/data"}, tools...),

	// gguf is pure Go: engine checks a file with it before C sees the file. pipeline words the errors of JSON.
	"internal/engine": {"internal/engine/ggml", "internal/engine/schematest", "internal/gguf", "internal/pipeline"},
	// gguf writes through pipeline, which owns every atomic file.
	"internal/gguf":     {"internal/engine/ggml", "internal/pipeline"},
	"internal/pipeline": {"internal/engine/ggml"},
	// Schemas and a validator, for tests.
	"internal/engine/schematest": nil,
	// media reads files that nobody vouches for; pipeline words what is wrong with a path.
	"internal/media": {"internal/pipeline"},

	// The language of the built-in model stands on nothing.
	"internal/builtin/story": nil,
	"internal/engine/ggml":   nil,
	"internal/chart":         nil,
	"internal/lint":          nil,
}

// tools is what the packages under cmd may import.
var tools = []string{"internal/engine", "internal/engine/ggml", "internal/gguf", "internal/pipeline"}

// cgoPackages may import "C".
var cgoPackages = []string{"internal/engine", "internal/engine/ggml"}

func TestImports(t *testing.T) {
	for _, src := range goFiles(t) {
		dir := path.Dir(src.path)
		for _, spec := range src.file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range importProblems(dir, name) {
				t.Errorf("%s: %s", fset.Position(spec.Pos()), problem)
			}
		}
	}
}

// importProblems says what is wrong with an import of name in package dir.
func importProblems(dir, name string) []string {
	if name == "C" {
		if !slices.Contains(cgoPackages, dir) {
			return []string{`import "C" stands only in ` + strings.Join(cgoPackages, " and ")}
		}
		return nil
	}
	pkg, ours := strings.CutPrefix(name, module)
	if !ours || pkg == dir { // an external test imports its own package
		return nil
	}
	key := dir
	if strings.HasPrefix(dir, "cmd/") {
		key = "cmd/"
	}
	allowed, known := mayImport[key]
	if !known {
		return []string{"package " + dir + " is not in the import table; add it to mayImport"}
	}
	for _, a := range allowed {
		if a == pkg || strings.HasSuffix(a, "/") && strings.HasPrefix(pkg, a) {
			return nil
		}
	}
	return []string{dir + " may not import " + pkg}
}

// Every package under internal has a row, also one that imports nothing yet.
func TestImportTableIsComplete(t *testing.T) {
	for _, src := range goFiles(t) {
		dir := path.Dir(src.path)
		if _, ok := mayImport[dir]; !ok && strings.HasPrefix(dir, "internal/") {
			t.Errorf("package %s is not in the import table; add it to mayImport", dir)
		}
	}
}

func TestImportProblems(t *testing.T) {
	for _, tt := range []struct {
		dir, name string
		bad       bool
	}{
		{"internal/engine/ggml", "C", false},
		{"internal/engine", "C", false},
		{"internal/gguf", "C", true},
		{"cmd/gollama", "C", true},
		{"cmd/gollama", "gollama/internal/engine/ggml", false},
		{"internal/completion", "gollama/internal/engine", false},
		{"internal/completion", "gollama/internal/opt", true},
		{"internal/engine", "gollama/internal/gguf", false},
		{"internal/engine", "gollama/internal/completion", true},
		{"internal/engine/ggml", "gollama/internal/engine", true},
		{"internal/engine/ggml", "gollama/internal/gguf", true},
		{"internal/gguf", "gollama/internal/engine", true},
		{"internal/gguf", "os", false},
		{"internal/helpers", "gollama/internal/gguf", true},
		{"internal/pipeline", "gollama/cmd/gollama", true},
	} {
		if got := importProblems(tt.dir, tt.name); (len(got) > 0) != tt.bad {
			t.Errorf("importProblems(%q, %q) = %q, want a problem: %v", tt.dir, tt.name, got, tt.bad)
		}
	}
}
