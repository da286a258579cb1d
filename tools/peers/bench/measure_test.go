package main

import "testing"

func TestPerfLine(t *testing.T) {
	const stderr = `I common_perf_print:        load time =      35.33 ms
I common_perf_print: prompt eval time =      19.29 ms /    30 tokens (    0.64 ms per token,  1554.97 tokens per second)
I common_perf_print:        eval time =      62.81 ms /    63 runs   (    1.00 ms per token,  1003.06 tokens per second)
I common_perf_print:       total time =      89.76 ms /    93 tokens
`
	got := perfLine.FindAllStringSubmatch(stderr, -1)
	if len(got) != 2 {
		t.Fatalf("%d matches, want 2: %q", len(got), got)
	}
	if m := got[0]; m[1] != "prompt eval" || m[2] != "19.29" || m[3] != "30" {
		t.Errorf("prompt: got %q", m)
	}
	if m := got[1]; m[1] == "prompt eval" || m[2] != "62.81" || m[3] != "63" {
		t.Errorf("generation: got %q", m)
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
