package engine

import (
	"regexp"
	"strings"
)

// funcPrefix matches the function's name at the start of most log lines.
var funcPrefix = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(::~?[A-Za-z_0-9]+)*: `)

// cleanCause makes one short line of an error text of llama.cpp: no function
// names, no phrases that only say that something failed.
func cleanCause(s string) string {
	s = strings.TrimRight(strings.Join(strings.Fields(s), " "), ":")
	for {
		t := funcPrefix.ReplaceAllString(s, "")
		for _, p := range []string{"error loading model: ", "error loading model hyperparameters: ", "error loading model vocabulary: ",
			"error loading model architecture: ", "failed to initialize the context: ", "error loading state: ",
			"failed to apply lora adapter: ", "JSON schema conversion failed: ", "JSON schema error at "} {
			t = strings.TrimPrefix(t, p)
		}
		if t == s {
			return s
		}
		s = t
	}
}

// shorten cuts an error text that quotes the rest of its input.
func shorten(s string) string {
	const most = 160
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
