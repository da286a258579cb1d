package lint

import (
	"go/ast"
	"strings"
	"testing"
)

// TestJSONErrors: JSON is decoded by pipeline.Decode, whose errors name the place, what is there and what is wanted; those of
// encoding/json name Go's types, and no place.
func TestJSONErrors(t *testing.T) {
	n := 0
	for _, src := range goFiles(t) {
		if strings.HasSuffix(src.path, "_test.go") || strings.HasPrefix(src.path, "internal/engine/schematest/") {
			continue
		}
		ast.Inspect(src.file, func(node ast.Node) bool {
			sel, ok := node.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Unmarshal" {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "json" {
				if n++; !strings.HasPrefix(src.path, "internal/pipeline/") {
					t.Errorf("%s: pipeline.Decode says what is wrong in JSON's words", fset.Position(sel.Pos()))
				}
			}
			return true
		})
	}
	if n == 0 {
		t.Error("no json.Unmarshal found, not even pipeline's own")
	}
}
