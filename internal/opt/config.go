package opt

import (
	"context"
	"fmt"
	"time"

	"gollama/internal/opt/data"
	"gollama/internal/opt/graph"
)

// Trainable is a model that can be trained: a [graph.Model].
type Trainable interface {
	// Params returns the trainable tensors in a fixed order.
	Params() []*graph.Param
	// ZeroGrad sets all gradients to zero.
	ZeroGrad()
	// Loss returns what an example costs.
	Loss(ctx context.Context, ex *data.Example) (graph.Loss, error)
	// Backward adds the gradient of scale times the example's summed loss. step
	// seeds what is random in it.
	Backward(ctx context.Context, ex *data.Example, scale float64, step uint64) (graph.Loss, error)
	// BackwardApply computes the same gradients from zero, and gives apply each
	// when it is complete; they do not stay.
	BackwardApply(ctx context.Context, ex *data.Example, scale float64, step uint64, apply func(graph.Loss, []*graph.Param) error) (graph.Loss, error)
	// Updated is called after the parameters' values were changed.
	Updated() error
}

// Config says how [Fit] trains.
type Config struct {
	Kind   Kind
	Params ParamsFunc // of each update
	// Nesterov and Momentum of the updates may change, but whether there is
	// momentum at all is taken from the first.

	Epochs    int   // at least 1
	MaxSteps  int64 // ends the run early; 0 is no limit
	Batch     int   // examples an update, at least 1
	RowTokens int   // short examples of a batch are computed together up to this many tokens; see Merge

	Shuffle bool // a new order for each epoch
	Shard   int  // examples that stay together when shuffled; below 2: none
	Seed    uint64

	EvalEvery   int64 // updates between evaluations; 0: after each epoch
	Patience    int   // evaluations without a better one that end the run; 0 is no limit
	ReportEvery int64 // updates in one report; 0 is 1

	Run          *Run          // where metrics and checkpoints go; nil: nowhere
	SaveEvery    int64         // updates between checkpoints; 0: after each evaluation
	SaveInterval time.Duration // time between checkpoints at most; 0 is no limit
	KeepBest     bool          // end with the parameters of the best evaluation; needs Run

	SampleEvery int64 // updates between samples; 0 is none
	Threads     int   // of the optimizer; below 1: ggml.DefaultThreads

	// The callbacks may be nil. They run in Fit's goroutine.
	OnReport   func(Report)
	OnProgress func(Progress)
	OnSample   func(ctx context.Context, step int64) error
}

// Steps returns the updates of a run over n examples.
func (c *Config) Steps(n int) int64 {
	steps := int64(c.Epochs) * int64((n+c.Batch-1)/c.Batch)
	if c.MaxSteps > 0 {
		steps = min(steps, c.MaxSteps)
	}
	return steps
}

func (c *Config) validate(nTrain, nVal int) error {
	switch {
	case c.Epochs < 1:
		return fmt.Errorf("%d epochs, want at least 1", c.Epochs)
	case c.Batch < 1:
		return fmt.Errorf("batch of %d examples, want at least 1", c.Batch)
	case nTrain < 1:
		return fmt.Errorf("no example to train on")
	case c.Params == nil:
		return fmt.Errorf("no optimizer parameters")
	case c.KeepBest && c.Run == nil:
		return fmt.Errorf("keeping the best needs a run folder")
	case (c.KeepBest || c.Patience > 0) && nVal < 1:
		return fmt.Errorf("keeping the best and early stop need validation data")
	}
	return c.Params(0, 0).Validate()
}

// Report is what is known after one or more updates. All but Timing is the same
// in each run with the same settings.
type Report struct {
	Step        int64    `json:"step"`                   // updates made
	Epoch       float64  `json:"epoch"`                  // passes over the data, with the part of the present one
	Loss        *float64 `json:"loss,omitempty"`         // mean of a token, nats, over the updates of the report
	Accuracy    *float64 `json:"accuracy,omitempty"`     // share of labels that were the likeliest
	PassLoss    *float64 `json:"pass_loss,omitempty"`    // mean over the present pass so far, with an evaluation
	LR          *float64 `json:"lr,omitempty"`           // of the last update
	GradNorm    *float64 `json:"grad_norm,omitempty"`    // of the last update, before clipping
	Tokens      int64    `json:"tokens"`                 // labels seen in training so far
	ValLoss     *float64 `json:"val_loss,omitempty"`     // if it was evaluated
	ValLossUnc  *float64 `json:"val_loss_unc,omitempty"` // its standard error
	ValAccuracy *float64 `json:"val_accuracy,omitempty"`
	Best        bool     `json:"best,omitempty"` // no evaluation before was better
	Timing      *Timing  `json:"timing,omitempty"`
}

// Timing is what differs from run to run.
type Timing struct {
	Elapsed float64 `json:"elapsed_s"`    // of the run, earlier sessions included
	Rate    float64 `json:"tok_s"`        // labels trained on in a second of this session
	Memory  int64   `json:"memory_bytes"` // resident, of the process; 0 if not known
}

// Progress is how far a run is.
type Progress struct {
	Step, Steps int64
	Share       float64 // of the run, 0 to 1
	Loss        float64 // running mean
	Rate        float64 // labels in a second
	Left        time.Duration
	Evaluating  bool
}

// Summary is how a run ended.
type Summary struct {
	Steps   int64   // updates
	Tokens  int64   // labels seen
	Train   Result  // over the last epoch
	Val     Result  // of the last evaluation; empty if there was none in this session
	Best    *Best   // of all evaluations
	Stopped string  // why it ended before its last step, or ""
	UsedBy  int64   // update whose parameters the model now has
	Skipped int64   // batches without a label
	Elapsed float64 // seconds, earlier sessions included
}

// Best is the best evaluation.
type Best struct {
	Step int64   `json:"step"`
	Loss float64 `json:"loss"`
}
