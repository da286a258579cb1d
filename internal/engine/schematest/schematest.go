// Package schematest has the JSON schemas of llama.cpp's own tests, and a
// validator, for the tests of what is written by a schema. Only tests import it.
package schematest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// pinnedTests are the tests of llama.cpp that have schemas; in the first ones
// plain strings are schemas too.
var pinnedTests = []string{"test-json-schema-to-grammar.cpp", "test-grammar-integration.cpp", "test-json-schema.cpp",
	"test-chat.cpp", "test-grammar-llguidance.cpp"}

const plainToo = 3

// pinnedSource returns a file of the pinned llama.cpp, out of the bundle that
// the engine was built from: .engine has no tests.
func pinnedSource(t testing.TB, repo, path string) string {
	t.Helper()
	out, err := exec.Command("git", "-C", repo, "show", "HEAD:"+path).Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(out)
}

func pinnedRepo(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "../../..")
	if dir := os.Getenv("LLAMA_CPP_SRC"); dir != "" {
		return dir
	}
	home, err := filepath.EvalSymlinks(filepath.Join(root, ".engine"))
	if err != nil {
		t.Skipf("the engine is not built: %v", err)
	}
	bundles, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(home)), "llama.cpp-*.bundle"))
	if err != nil || len(bundles) == 0 {
		t.Skip("the engine was not built from the pinned bundle: there are no schemas of llama.cpp's tests")
	}
	repo := filepath.Join(t.TempDir(), "llama.cpp")
	if out, err := exec.Command("git", "clone", "-q", "--bare", bundles[len(bundles)-1], repo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return repo
}

var (
	rawStart    = regexp.MustCompile(`R"([^()\s\\]{0,16})\(`)
	plainString = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)
	keyword     = regexp.MustCompile(`^\s*\{\s*(\}|"(type|properties|items|anyOf|oneOf|allOf|enum|const|\$ref|minLength|maxLength|pattern|format|prefixItems|required|description|\$schema|\$defs|definitions|additionalProperties)")`)
)

// Pinned returns the schemas in llama.cpp's own tests.
func Pinned(t testing.TB) (list []string) {
	t.Helper()
	repo := pinnedRepo(t)
	seen := map[string]bool{}
	add := func(s string) {
		var b bytes.Buffer
		if keyword.MatchString(s) && json.Compact(&b, []byte(s)) == nil && !seen[b.String()] {
			seen[b.String()] = true
			list = append(list, b.String())
		}
	}
	for i, name := range pinnedTests {
		source := pinnedSource(t, repo, "tests/"+name)
		for rest := source; ; {
			m := rawStart.FindStringSubmatchIndex(rest)
			if m == nil {
				break
			}
			body, after, ok := strings.Cut(rest[m[1]:], ")"+rest[m[2]:m[3]]+`"`)
			if !ok {
				break
			}
			add(body)
			rest = after
		}
		if i >= plainToo {
			continue
		}
		for _, q := range plainString.FindAllString(source, -1) {
			var s string
			if json.Unmarshal([]byte(q), &s) == nil { // the escapes that are used are JSON's too
				add(s)
			}
		}
	}
	if len(list) < 200 {
		t.Fatalf("%d schemas, want 200 or more", len(list))
	}
	return list
}

// compile reads a schema in the newest draft that it is one of: a list of
// items is of draft 7.
func compile(schema string) (s *jsonschema.Schema, err error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, err
	}
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft7} {
		c := jsonschema.NewCompiler()
		c.DefaultDraft(draft)
		c.AssertFormat()
		if err = c.AddResource("file:///schema.json", doc); err != nil {
			return nil, err
		}
		if s, err = c.Compile("file:///schema.json"); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// Validator judges texts by a schema, formats among it.
type Validator struct{ s *jsonschema.Schema }

// NewValidator returns a validator by another's library.
func NewValidator(schema string) (*Validator, error) {
	s, err := compile(schema)
	if err != nil {
		return nil, fmt.Errorf("the validator does not take it: %w", err)
	}
	return &Validator{s}, nil
}

// Check returns what is wrong with text, which must also be JSON that Go reads.
func (v *Validator) Check(text string) error {
	x, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err == nil {
		err = v.s.Validate(x)
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), new(any))
	}
	return err
}
