package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// recordTargets are of the parts of records.go: what the ratio of each row is, and what it is to be.
var recordTargets = map[string]struct {
	kind kind
	want float64
}{
	"processes":     {took, 5},
	"batched":       {speed, 0.97},
	"prefix":        {amount, 1.1},
	"deterministic": {amount, 0},
	"lookup":        {speed, 1.5},
	"draft":         {speed, 0},
}

// recordCases makes each part of records.go a contest. A part runs both sides itself and gives rows; here they become
// the outcomes of two players, a quantity a row.
func recordCases(b *bench) []contest {
	var list []contest
	for _, model := range []string{"135m-q4_k_m", "0.5b-q4_k_m"} {
		for _, part := range recordParts {
			target := recordTargets[part.name]
			list = append(list, contest{name: fmt.Sprintf("records/%s/t2/%s", model, part.name), about: fmt.Sprintf("%d records of %d tokens each, 2 threads", nRecords, nGen),
				quick: model == "135m-q4_k_m" && target.want != 0, rounds: b.size(0, 1),
				setup: func(ctx context.Context) (*trial, error) {
					path, err := b.model(ctx, model)
					if err != nil {
						return nil, err
					}
					const peer = "peer"
					t := &trial{}
					t.round = func(ctx context.Context, _ int) (map[string]outcome, error) {
						o := b.options
						o.repeat = 1
						got := map[string]outcome{ours: {}, peer: {}}
						t.measures = nil
						r := &recordBench{ctx: ctx, o: o, model: path, threads: "2", dir: b.work, emit: func(name string, us, them float64, unit, note string) {
							got[ours][name], got[peer][name] = us, them
							t.measures = append(t.measures, measure{What: name, Of: name, Unit: unit, Kind: target.kind, Against: peer, Want: target.want, Note: note})
						}}
						return got, part.run(r)
					}
					return t, nil
				}})
		}
	}
	return list
}

// short is the name of a model's file without its folder and extension.
func short(path string) string { return strings.TrimSuffix(filepath.Base(path), ".gguf") }
