//go:build cgo

package engine

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Logprobs sets out[i] to the natural log-probability that the model gives
// tokens[i] after token rows[i] of the last batch, which must have an output; a
// row may be asked for more than once. out is NaN for a row whose logits are not
// numbers. Exponentials are float32 and their sum float64, as llama-perplexity's
// (tools/perplexity/perplexity.cpp, log_softmax), so that a value is off by some
// 1e-7 and its perplexity the same to the last digit. The slices must be of one length. One call does all rows, over the
// threads of the context.
func (c *Context) Logprobs(rows []int, tokens []Token, out []float64) error {
	if len(rows) != len(tokens) || len(rows) != len(out) {
		panic("engine: Logprobs: slices of different lengths")
	}
	if len(rows) == 0 {
		return nil
	}
	in := make([]int32, len(rows))
	for i, r := range rows {
		k, err := c.row(r)
		if err != nil {
			return err
		}
		in[i] = int32(k)
		if t := tokens[i]; t < 0 || int(t) >= c.m.info.NVocab {
			return fmt.Errorf("log-probability: token %d is not in the vocabulary of %d tokens", t, c.m.info.NVocab)
		}
	}
	var e C.gl_err
	if !C.gl_logprobs(c.ptr, (*C.int32_t)(unsafe.Pointer(&in[0])), (*C.int32_t)(unsafe.Pointer(&tokens[0])),
		C.int(len(rows)), (*C.double)(unsafe.Pointer(&out[0])), &e) {
		return &Error{Op: "log-probabilities", Msg: errText(&e)}
	}
	return nil
}

// logSoftmax is what Logprobs computes for a row of logits.
func logSoftmax(logits []float32, t Token) float64 {
	return float64(C.gl_log_softmax((*C.float)(unsafe.Pointer(&logits[0])), C.int(len(logits)), C.int(t)))
}
