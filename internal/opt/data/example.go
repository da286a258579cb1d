package data

// NoLabel marks a position whose next token is not scored.
const NoLabel int32 = -1

// Example is one row of a training batch: T tokens evaluated together. It may hold several documents
// packed one after the other; Segments and Positions keep them from seeing each other.
type Example struct {
	Tokens    []int32   // [T] token ids
	Labels    []int32   // [T] the token wanted after position i; NoLabel: not scored
	Weights   []float32 // [T] weight of the loss at position i, >= 0; nil: 1 everywhere
	Positions []int32   // [T] position for the rotary embedding, from 0 in each document; nil: 0..T-1
	Segments  []int32   // [T] document number; position i attends to j <= i with the same number; nil: one document
}
