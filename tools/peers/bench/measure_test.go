package main

import "testing"

func TestPromptLine(t *testing.T) {
	const stderr = `I common_perf_print:        load time =      35.33 ms
I common_perf_print: prompt eval time =      19.29 ms /    30 tokens (    0.64 ms per token,  1554.97 tokens per second)
I common_perf_print:        eval time =      62.81 ms /    63 runs   (    1.00 ms per token,  1003.06 tokens per second)
`
	m := promptLine.FindStringSubmatch(stderr)
	if m == nil || m[1] != "19.29" || m[2] != "30" {
		t.Errorf("got %q, want 19.29 ms and 30 tokens", m)
	}
}

func TestRate(t *testing.T) {
	p := process{first: 100, last: 1100}
	if got := p.rate(51); got != 50 {
		t.Errorf("50 tokens in the second after the first: %v tokens/s, want 50", got)
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		var s []sample
		for _, x := range test.v {
			s = append(s, sample{gen: x})
		}
		if got := median(s, func(s sample) float64 { return s.gen }); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.v, got, test.want)
		}
	}
}

func TestParseRun(t *testing.T) {
	r, err := parseRun([]byte(`64 records: 64 done, 0 failed, 0 of them were there; 896 tokens read, 10 reused, 2048 generated in 6.4 s (320.0 a second), 5 of 9 guessed tokens came (56 %)
63 batches: 6.100 s in the engine, 0.050 s guessing, 0.200 s sampling, 0.050 s beside
`))
	if err != nil || r.read != 896 || r.reused != 10 || r.generated != 2048 || r.batches != 63 || r.seconds() < 6.399 || r.seconds() > 6.401 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := parseRun([]byte("error")); err == nil {
		t.Error("no error")
	}
}

func TestWantsRecords(t *testing.T) {
	for what, want := range map[string]int{"single": 0, "records": len(recordParts), "lookup,prefix": 2} {
		if got, err := wantsRecords(what); err != nil || len(got) != want {
			t.Errorf("%s: got %v, %v, want %d parts", what, got, err, want)
		}
	}
	if _, err := wantsRecords("all"); err == nil {
		t.Error("no error")
	}
}
