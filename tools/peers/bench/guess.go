package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// guessRun is a text and how it was made.
type guessRun struct {
	Text    string `json:"text"`
	Timings struct {
		PerSecond float64 `json:"predicted_per_second"`
		N         int     `json:"draft_n"`
		Accepted  int     `json:"draft_n_accepted"`
	} `json:"timings"`
}

// guessed makes one text of 200 tokens that repeats itself much. A model with
// random weights does at temperature 0; its prompt is a paragraph, twice.
func (b *recordBench) guessed(more ...string) (r guessRun, err error) {
	text := strings.Repeat("The people of this town went to see the water and the white stone that no one could move. ", 2)
	p, err := start(b.ctx, b.o.gollama, append([]string{"run", "-m", b.model, "-p", text, "-n", "200", "-c", "512", "-t", b.threads, "--temp", "0",
		"--ignore-eos", "--json"}, more...)...)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(p.stdout, &r)
}

// guesses compares runs with guesses and without.
func (b *recordBench) guesses(name, note string, more ...string) error {
	var fast, plain []float64
	var with, without guessRun
	for range b.o.repeat {
		var err error
		if with, err = b.guessed(more...); err != nil {
			return err
		}
		if without, err = b.guessed(); err != nil {
			return err
		}
		fast = append(fast, with.Timings.PerSecond)
		plain = append(plain, without.Timings.PerSecond)
	}
	same := "equal text"
	if with.Text != without.Text {
		same = "the text differs"
	}
	came := fmt.Sprintf("%d of %d guesses came", with.Timings.Accepted, with.Timings.N)
	if with.Timings.N == 0 { // ngram-simple looks for a whole guess after the last place alone: one token over and over has none
		came = "nothing was guessed"
	}
	b.row(name, middle(fast), middle(plain), "t/s", fmt.Sprintf("%s; %s, %s", note, same, came))
	return nil
}

// lookup guesses by what came before.
func (b *recordBench) lookup() error {
	for _, typ := range []string{"ngram-simple", "ngram-map-k", "ngram-mod"} {
		if err := b.guesses("--spec-type "+typ, "want 1.5, against none", "--spec-type", typ); err != nil {
			return err
		}
	}
	return nil
}

// draft guesses with the model itself as its draft, so that all comes true:
// what is lost beside the draft's own time shows in tokens/s.
func (b *recordBench) draft() error {
	return b.guesses("-md the model itself", "all guesses right, all work twice", "-md", b.model)
}
