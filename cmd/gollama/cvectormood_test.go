package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	moods "gollama/internal/builtin/story"
	"gollama/internal/cvector"
)

// moodPairs writes openings that differ in one sentence of mood.
func moodPairs(t *testing.T, dir string) (positive, negative string) {
	t.Helper()
	var pos, neg bytes.Buffer
	for _, who := range []string{"boy named Tom|he|his", "girl named Lily|she|her", "fox named Leo|he|his", "mouse named Mia|she|her", "bear named Ben|he|his", "rabbit named Ruby|she|her"} {
		w := strings.Split(who, "|")
		for _, opening := range []string{"Once upon a time, there was a little %s.", "Long ago, a kind %s lived in a cave full of leaves.", "In a green valley lived a shy %s."} {
			for _, mood := range [][2]string{
				{"%S loved to laugh and run.", "%S had not laughed for a long time."},
				{"The sun was shining, and the birds were singing.", "Rain was falling, and the wind was cold."},
				{"%S was full of joy from head to toe.", "%S often sat alone at the window."},
				{"%P days were sunny and full of play.", "%P days were long and full of tears."},
				{"Everyone smiled when %s came by.", "Nobody waved when %s came by."},
				{"The sky was clear, and the air smelled of flowers.", "The sky was grey, and the trees were bare."},
			} {
				title := func(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
				fill := strings.NewReplacer("%S", title(w[1]), "%P", title(w[2]), "%s", w[1])
				start := fmt.Sprintf(opening, w[0])
				fmt.Fprintf(&pos, "%s %s\n", start, fill.Replace(mood[0]))
				fmt.Fprintf(&neg, "%s %s\n", start, fill.Replace(mood[1]))
			}
		}
	}
	positive, negative = filepath.Join(dir, "happy.txt"), filepath.Join(dir, "sad.txt")
	for path, b := range map[string][]byte{positive: pos.Bytes(), negative: neg.Bytes()} {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return positive, negative
}

// happyShare is the share of happy stories of n that the built-in model tells, of those whose mood is clear.
func happyShare(t *testing.T, dir string, n int, args ...string) float64 {
	t.Helper()
	records := filepath.Join(dir, "records.jsonl")
	if err := os.WriteFile(records, []byte(fmt.Sprintf(`{"prompt":"Once upon a time","n":%d,"max_tokens":220,"temp":1}`, n)), 0o666); err != nil {
		t.Fatal(err)
	}
	out, msg, code := gollama(t, append([]string{"run", "--records", records, "-np", "8", "-q"}, args...)...)
	if code != 0 {
		t.Fatalf("status %d: %s", code, msg)
	}
	var result struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatal(err)
	}
	happy, clear := 0.0, 0.0
	for _, c := range result.Choices {
		switch moods.Mood("Once upon a time" + c.Text) {
		case moods.Happy:
			happy++
			clear++
		case moods.Sad:
			clear++
		}
	}
	if int(clear) < n/2 {
		t.Fatalf("the mood of %.0f of %d stories is clear", clear, n)
	}
	return happy / clear
}

// A happy-minus-sad vector, in the layers and at the strength that cvector-generate recommends, makes the built-in
// model's stories happy, and its opposite sad. The stories' seeds are fixed. Of 64, chance moves the share by 6 % (1 sd).
func TestMoodVector(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	dir := t.TempDir()
	pos, neg := moodPairs(t, dir)
	vector := filepath.Join(dir, "mood.gguf")
	out, msg, code := gollama(t, "cvector-generate", "--positive-file", pos, "--negative-file", neg, "--token", "span:8", "-o", vector, "--json")
	if code != 0 {
		t.Fatalf("status %d: %s", code, msg)
	}
	var r cvector.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Recommended == nil {
		t.Fatalf("nothing is recommended: %s", out)
	}
	with := func(sign string) float64 {
		strength := sign + strconv.FormatFloat(r.Recommended.Strength, 'g', 6, 64)
		return happyShare(t, dir, 64, "--control-vector-scaled", vector+":"+strength, "--control-vector-layer-range",
			strconv.Itoa(r.Recommended.First), strconv.Itoa(r.Recommended.Last))
	}
	none, plus, minus := happyShare(t, dir, 64), with(""), with("-")
	t.Logf("happy: %.2f without, %.2f with, %.2f against (layers %d to %d, strength %g)", none, plus, minus, r.Recommended.First, r.Recommended.Last, r.Recommended.Strength)
	if none < 0.25 || none > 0.75 || plus <= 0.8 || minus >= 0.2 {
		t.Errorf("happy: %.2f without the vector, %.2f with it, %.2f against it; want about 0.5, over 0.8, under 0.2", none, plus, minus)
	}
}
