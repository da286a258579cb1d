package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines = 500
	maxFuncLines = 60
)

// longFiles and longFuncs list what may be longer, each with the reason. A
// longer one is a single table, switch or kernel. The names are "path" and
// "path:func", methods as "path:Type.func".
var (
	longFiles = map[string]string{
		"cmd/gollama/flags.go": "the one flag table",
	}
	longFuncs = map[string]string{
		"cmd/gollama/flags.go:makeFlagTable": "the one flag table",
	}
)

// Tests are left out of the function limit: a table test is mostly its table.
func TestSizes(t *testing.T) {
	usedFiles, usedFuncs := map[string]bool{}, map[string]bool{}
	for _, src := range goFiles(t) {
		if src.lines > maxFileLines {
			if longFiles[src.path] == "" {
				t.Errorf("%s: %d lines, want at most %d, or a reason in longFiles", src.path, src.lines, maxFileLines)
			}
			usedFiles[src.path] = true
		}
		if strings.HasSuffix(src.path, "_test.go") {
			continue
		}
		for _, decl := range src.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			if n <= maxFuncLines {
				continue
			}
			name := src.path + ":" + funcName(fn)
			if longFuncs[name] == "" {
				t.Errorf("%s: %d lines, want at most %d, or a reason in longFuncs", name, n, maxFuncLines)
			}
			usedFuncs[name] = true
		}
	}
	for path := range longFiles {
		if !usedFiles[path] {
			t.Errorf("longFiles lists %s, which is not long; remove it", path)
		}
	}
	for name := range longFuncs {
		if !usedFuncs[name] {
			t.Errorf("longFuncs lists %s, which is not long; remove it", name)
		}
	}
}

// funcName returns "func" or "Type.func".
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	switch x := recv.(type) { // a generic receiver is Type[T]
	case *ast.IndexExpr:
		recv = x.X
	case *ast.IndexListExpr:
		recv = x.X
	}
	if id, ok := recv.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// wellKnown are methods of the standard library's interfaces, which need no
// words when they do what the interface says.
var wellKnown = []string{"String", "Error", "Unwrap", "Is", "As", "Len", "Less", "Swap"}

// Every exported function has a doc comment that starts with its name, and each
// package has one of its own.
func TestDocComments(t *testing.T) {
	packages := map[string]bool{}
	for _, src := range goFiles(t) {
		if strings.HasSuffix(src.path, "_test.go") {
			continue
		}
		dir := src.path[:strings.LastIndex(src.path, "/")]
		packages[dir] = packages[dir] || src.file.Doc.Text() != ""
		for _, decl := range src.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && fn.Name.IsExported() && !(fn.Recv != nil && slices.Contains(wellKnown, fn.Name.Name)) && !strings.HasPrefix(fn.Doc.Text(), fn.Name.Name) && exportedRecv(fn) {
				t.Errorf("%s: the doc comment of %s does not start with its name", fset.Position(fn.Pos()), funcName(fn))
			}
		}
	}
	for dir, ok := range packages {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

// exportedRecv says whether a function is one, or its receiver is exported.
func exportedRecv(fn *ast.FuncDecl) bool {
	typ, _, method := strings.Cut(funcName(fn), ".")
	return !method || ast.IsExported(typ)
}
