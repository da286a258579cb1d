package main

import "testing"

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
