package main

import (
	"context"
	"fmt"
	"time"
)

// outcome is what one run of a player gave, by the name of the quantity.
type outcome map[string]float64

// Quantities of every process.
const (
	wall   = "wall"   // s
	cpu    = "cpu"    // s of processor time, of all threads
	memory = "memory" // MiB, peak resident
)

// player is a program with its arguments: one side of a contest.
type player struct {
	name string
	run  func(context.Context) (outcome, error)
}

// ours is the name of the player that the ratios are about.
const ours = "gollama"

// kind says what the ratio of a quantity is.
type kind string

const (
	speed  kind = "speed"  // ours by the peer's, at least Want
	took   kind = "time"   // the peer's by ours, so that it is a speed too; at least Want
	amount kind = "amount" // ours by the peer's, at most Want
)

// measure is a row of the table: a quantity of gollama against the same of another player.
type measure struct {
	What    string  `json:"what"`
	Of      string  `json:"of"` // name of the quantity
	Unit    string  `json:"unit"`
	Kind    kind    `json:"kind"`
	Against string  `json:"against"`
	Want    float64 `json:"want,omitempty"` // of the ratio; 0: it is for information
	Note    string  `json:"note,omitempty"`
}

func compare(what, of, unit string, k kind, against string, want float64) measure {
	return measure{What: what, Of: of, Unit: unit, Kind: k, Against: against, Want: want}
}

// faster wants the peer's time to be so many times gollama's.
func faster(peer string, want float64) measure { return compare("time", wall, "s", took, peer, want) }

// smaller wants gollama's peak memory to be at most so much of the peer's.
func smaller(peer string, want float64) measure {
	return compare("peak memory", memory, "MiB", amount, peer, want)
}

// trial is a contest that is ready to run.
type trial struct {
	measures []measure
	// round runs each player once and returns what they gave, by their names.
	round func(ctx context.Context, n int) (map[string]outcome, error)
}

// contest is players that do the same, and what is compared.
type contest struct {
	name   string // group/what/settings, for -only
	about  string // what is run, in a few words
	quick  bool   // a part of -quick
	rounds int    // 0: as -n says
	// setup makes the files that are read, and is not measured.
	setup func(ctx context.Context) (*trial, error)
}

// turns is a trial of players that run one after the other, each round beginning with the next, so that a drift of the
// machine's speed meets all of them alike.
func turns(measures []measure, players ...player) *trial {
	return &trial{measures, func(ctx context.Context, n int) (map[string]outcome, error) {
		got := map[string]outcome{}
		for i := range players {
			p := players[(i+n)%len(players)]
			o, err := p.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			got[p.name] = o
		}
		return got, nil
	}}
}

// result is a contest that has run: a line of the file of results.
type result struct {
	Name     string               `json:"name"`
	About    string               `json:"about"`
	Quick    bool                 `json:"quick,omitempty"`
	Busy     string               `json:"load"` // average load of the machine when it began
	Time     time.Time            `json:"time"`
	Program  string               `json:"program"`
	Machine  string               `json:"machine"`
	Measures []measure            `json:"measures"`
	Rounds   []map[string]outcome `json:"rounds"`
}

// run prepares the contest and runs its rounds. With an error comes a result of the rounds before it, if there were any.
func (c *contest) run(ctx context.Context, b *bench) (*result, error) {
	t, err := c.setup(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	n := b.repeat
	if c.rounds != 0 {
		n = min(n, c.rounds)
	}
	r := &result{Name: c.name, About: c.about, Quick: b.quick, Busy: load(), Time: time.Now().UTC().Truncate(time.Second), Machine: machine(), Program: b.program(ctx)}
	for i := range n {
		got, e := t.round(ctx, i)
		if e != nil {
			err = fmt.Errorf("%s: %w", c.name, e)
			break
		}
		r.Rounds = append(r.Rounds, got)
	}
	if len(r.Rounds) == 0 {
		return nil, err
	}
	r.Measures = t.measures // records know theirs when they have run
	return r, err
}
