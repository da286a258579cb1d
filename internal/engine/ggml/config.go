package ggml

import "fmt"

// ThreadpoolConfig mirrors struct ggml_threadpool_params.
type ThreadpoolConfig struct {
	Threads  int    // 1 to 512, the computing thread included
	Mask     []bool // CPUs the threads may run on, at most 512; empty or all false keeps the inherited mask
	Priority int    // -1 low, 0 normal, 1 medium, 2 high, 3 realtime
	Poll     int    // 0 sleeps between graphs, 100 spins; llama.cpp's default is 50
	Strict   bool   // each thread gets one CPU of Mask for itself
}

// Validate reports the first field out of its range.
func (c *ThreadpoolConfig) Validate() error {
	switch {
	case c.Threads < 1 || c.Threads > maxThreads:
		return fmt.Errorf("threadpool: %d threads, want 1 to %d", c.Threads, maxThreads)
	case len(c.Mask) > maxThreads:
		return fmt.Errorf("threadpool: mask of %d CPUs, want at most %d", len(c.Mask), maxThreads)
	case c.Priority < -1 || c.Priority > 3:
		return fmt.Errorf("threadpool: priority %d, want -1 to 3", c.Priority)
	case c.Poll < 0 || c.Poll > 100:
		return fmt.Errorf("threadpool: poll %d, want 0 to 100", c.Poll)
	}
	return nil
}

// SchedConfig says which devices a Sched uses and how large a graph it takes.
type SchedConfig struct {
	Devices   []string // names as in Devices, first is preferred; the CPU is always added last
	Threads   int      // CPU threads; 0 means DefaultThreads
	MaxNodes  int      // tensors in the largest graph, weights and inputs included; 0 means 2048
	OpOffload bool     // run operations on weights in host memory on the first device, copying them
}

// FlashParams say how FlashAttention weighs.
type FlashParams struct {
	Scale   float32 // of the products of queries and keys
	MaxBias float32 // ALiBi: the mask is multiplied by a slope for each head; 0: by 1
	SoftCap float32 // scores s become SoftCap·tanh(s/SoftCap); 0: they stay

	Mask  *Tensor // f16 [M, N, 1 or H, 1 or S], added to the scores; nil: every key is seen
	Sinks *Tensor // f32 [H], one score for each head that has no value; nil: none
}
