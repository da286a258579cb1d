package main

import (
	"math"
	"slices"
)

// span is the middle and the ends of some values.
type span struct{ median, min, max float64 }

func spanOf(v []float64) span {
	if len(v) == 0 {
		return span{}
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return span{median: (s[(n-1)/2] + s[n/2]) / 2, min: s[0], max: s[n-1]}
}

// row is a line of the table.
type row struct {
	measure
	Name, About string
	ours, peer  float64 // medians
	ratio       span    // of the pairs of a round
	best        float64 // of each side's best run: others on the machine only ever make a run slower
	cpu         float64 // median ratio of processor time, of the kind of the row; 0 where it says nothing
	rounds      int
	quick       bool
}

// rows computes the ratios of a result. Rounds in which one side has no value are left out.
func (r *result) rows() []row {
	var list []row
	for _, m := range r.Measures {
		var us, peer, ratios, cpus []float64
		for _, round := range r.Rounds {
			a, b := round[ours], round[m.Against]
			if a[m.Of] == 0 || b[m.Of] == 0 {
				continue
			}
			us, peer = append(us, a[m.Of]), append(peer, b[m.Of])
			ratios = append(ratios, m.ratio(a[m.Of], b[m.Of]))
			if m.Of == wall && a[cpu] > 0 && b[cpu] > 0 {
				cpus = append(cpus, m.ratio(a[cpu], b[cpu]))
			}
		}
		x := row{measure: m, Name: r.Name, About: r.About, ours: spanOf(us).median, peer: spanOf(peer).median,
			ratio: spanOf(ratios), cpu: spanOf(cpus).median, rounds: len(ratios), quick: r.Quick}
		if x.rounds > 0 {
			x.best = m.ratio(m.best(us), m.best(peer))
		}
		list = append(list, x)
	}
	return list
}

// best returns the best of the values of some runs.
func (m measure) best(v []float64) float64 {
	if m.Kind == speed {
		return slices.Max(v)
	}
	return slices.Min(v)
}

func (m measure) ratio(ours, peer float64) float64 {
	if m.Kind == took {
		return peer / ours
	}
	return ours / peer
}

// met says whether the median ratio is what is wanted: "yes", "no", or nothing if nothing is.
func (r row) met() string {
	switch {
	case r.Want == 0:
		return ""
	case r.rounds == 0:
		return "not measured"
	case r.times() >= 1:
		return "yes"
	}
	return "no"
}

// times is how many times as good as wanted the median is.
func (r row) times() float64 { return r.score(r.ratio.median) }

// score is how many times as good as wanted a ratio is, to three digits after the point, as the table shows it.
func (r row) score(ratio float64) float64 {
	ratio = math.Round(ratio*1000) / 1000
	if r.Kind == amount {
		return r.Want / ratio
	}
	return ratio / r.Want
}
