package engine

import (
	"errors"
	"fmt"
)

// ErrConflict is the error of Check that weights shared an input in one batch and not in another: what was collected
// since the reset is to be done again, without sharing.
var ErrConflict = errors.New("weights do not share their inputs in each batch")

// NonFiniteError says that a model computed something that is not a number.
type NonFiniteError struct {
	Weight string
	Row    int // of the weight's input in the batch: a token, or for experts one of those that the expert met
	Column int
	Value  float32
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("the input of %s has %g in row %d, column %d", e.Weight, e.Value, e.Row, e.Column)
}

// Collected is what was added up of one input since the last Reset.
type Collected struct {
	Weights []int     // numbers of the weights that share it, in the list that NewCollector got
	Sum2    []float64 // sums of squares by column; for experts those of one after the other
	Sum     []float64 // sums
	Counts  []int64   // rows that were added: one count, or one for each expert
}
