package ggml

import (
	"os"
	"strings"
	"testing"
)

// The pin in the code, the pin of the build script and the linked library agree.
func TestPin(t *testing.T) {
	b, err := os.ReadFile("../../../tools/engine/pin")
	if err != nil {
		t.Fatal(err)
	}
	pin := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			pin[k] = v
		}
	}
	info := BuildInfo()
	if info.Pin != pin["LLAMA_VERSION"] || info.Commit != pin["LLAMA_COMMIT"] {
		t.Errorf("pin %s %s, want %s %s as in tools/engine/pin", info.Pin, info.Commit, pin["LLAMA_VERSION"], pin["LLAMA_COMMIT"])
	}
	if info.GGML != "" && info.GGML != pin["GGML_VERSION"] { // empty without cgo
		t.Errorf("linked ggml %q, want %q", info.GGML, pin["GGML_VERSION"])
	}
	// The key is there for go, which links anew only if what it compiled is another.
	if info.Flags != "" && (!strings.Contains(info.Flags, "commit: "+pin["LLAMA_COMMIT"]) || !strings.HasPrefix(info.Flags, "key: ")) {
		t.Errorf("build info does not name the commit, or begin with the key:\n%s", info.Flags)
	}
	t.Logf("%+v", info)
}
