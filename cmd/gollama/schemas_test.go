package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gollama/internal/engine/schematest"
)

// schemaSeeds is how many answers TestRecordsSchemas makes for each schema.
var schemaSeeds = 1

// TestRecordsSchemas: each of the schemas in llama.cpp's own tests, as a record,
// gives an answer that is valid by it, judged by another's validator, or an
// answer cut by its limit, or an error that says what a grammar cannot express.
func TestRecordsSchemas(t *testing.T) {
	model := story(t)
	schemas := schematest.Pinned(t)
	var lines []string
	for i := range len(schemas) * schemaSeeds {
		lines = append(lines, fmt.Sprintf(`{"id":"%d","prompt":"Once upon a time","seed":%d,"temp":%d,"json_schema":%s}`,
			i, i, 1+i%3, schemas[i%len(schemas)]))
	}
	out, msg, code := gollama(t, "run", "-m", model, "--records", writeRecords(t, lines), "-n", "100", "-c", "256", "-t", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0")
	if code != exitRecords {
		t.Fatalf("status %d, %s", code, msg)
	}
	var done, cut, refused int
	for i, line := range strings.Split(strings.TrimSuffix(out, "\n"), "\n") {
		var r struct {
			ID     string
			Text   string
			Reason string `json:"finish_reason"`
			Error  *struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.ID != fmt.Sprint(i) {
			t.Fatalf("line %d: %s, %v", i+1, line, err)
		}
		schema := schemas[i%len(schemas)]
		switch {
		case r.Error != nil:
			refused++
			if !strings.HasPrefix(r.Error.Message, "JSON schema: #") {
				t.Errorf("%s: %s: %s", schema, r.Error.Code, r.Error.Message)
			}
		case r.Reason == "length" || r.Reason == "context":
			cut++
		default:
			done++
			v, err := schematest.NewValidator(schema)
			if err == nil {
				err = v.Check(r.Text)
			}
			if err != nil {
				t.Errorf("%s: %q: %v", schema, r.Text, err)
			}
		}
	}
	t.Logf("%d schemas, %d answers each: %d valid, %d cut, %d refused", len(schemas), schemaSeeds, done, cut, refused)
	if done < len(lines)/3 {
		t.Errorf("%d of %d answers came to an end: the test shows little", done, len(lines))
	}
}
