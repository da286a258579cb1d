package ggml

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// schedMaxBackends is GGML_SCHED_MAX_BACKENDS (ggml-backend.cpp).
const schedMaxBackends = 16

// defaultMaxNodes is GGML_DEFAULT_GRAPH_SIZE (ggml.h).
const defaultMaxNodes = 2048

// Sched runs graphs over devices: each operation goes to the first device that
// holds its weights or supports it, and data moves between them as needed. One
// goroutine uses it at a time.
type Sched struct {
	p        C.ggml_backend_sched_t
	backends []C.ggml_backend_t // the CPU is last
	names    []string
	maxNodes int
	cur      *Context // whose graph has memory from this scheduler
}

// NewSched opens the devices of cfg and the CPU. The error of an unknown device
// lists the ones there are.
func NewSched(cfg SchedConfig) (*Sched, error) {
	if cfg.Threads == 0 {
		cfg.Threads = DefaultThreads()
	}
	if cfg.MaxNodes == 0 {
		cfg.MaxNodes = defaultMaxNodes
	}
	if cfg.Threads < 1 || cfg.Threads > maxThreads {
		return nil, fmt.Errorf("scheduler: %d threads, want 1 to %d", cfg.Threads, maxThreads)
	}
	if cfg.MaxNodes < 1 || cfg.MaxNodes > maxContextTensors {
		return nil, fmt.Errorf("scheduler: graphs of %d nodes, want 1 to %d", cfg.MaxNodes, maxContextTensors)
	}
	order, devs, err := deviceOrder(cfg.Devices)
	if err != nil {
		return nil, err
	}
	s := &Sched{maxNodes: cfg.MaxNodes}
	var e C.gg_err
	for _, i := range order {
		b := C.gg_backend_init(C.size_t(i), C.int(cfg.Threads), &e)
		if b == nil {
			s.Close()
			return nil, shimError(&e)
		}
		s.backends = append(s.backends, b)
		s.names = append(s.names, devs[i].Name)
	}
	// C memory, because ggml's signature takes an array of pointers to C.
	n := len(s.backends)
	arr := (*C.ggml_backend_t)(C.malloc(C.size_t(n) * C.size_t(unsafe.Sizeof(s.backends[0]))))
	defer C.free(unsafe.Pointer(arr))
	copy(unsafe.Slice(arr, n), s.backends)
	// The hash set must hold nodes and leafs.
	s.p = C.gg_sched_new(arr, C.int(n), C.size_t(2*cfg.MaxNodes), C.bool(cfg.OpOffload), &e)
	if s.p == nil {
		s.Close()
		return nil, shimError(&e)
	}
	return s, nil
}

// deviceOrder returns the indices of the devices to open, the CPU last, as
// ggml_backend_sched_new asserts.
func deviceOrder(names []string) ([]int, []Device, error) {
	devs := Devices()
	cpu := -1
	var known []string
	for i, d := range devs {
		if d.Type == "cpu" && cpu < 0 {
			cpu = i
		}
		known = append(known, d.Name)
	}
	if cpu < 0 {
		return nil, nil, fmt.Errorf("scheduler: no CPU device")
	}
	var order []int
	seen := map[int]bool{cpu: true}
	for _, name := range names {
		i := indexName(devs, name)
		if i < 0 {
			return nil, nil, fmt.Errorf("scheduler: device %q, want one of %s", name, strings.Join(known, ", "))
		}
		if !seen[i] {
			seen[i] = true
			order = append(order, i)
		}
	}
	order = append(order, cpu)
	if len(order) > schedMaxBackends {
		return nil, nil, fmt.Errorf("scheduler: %d devices, want at most %d with the CPU", len(order), schedMaxBackends)
	}
	return order, devs, nil
}

// indexName finds a device by name, case ignored; -1 when there is none.
func indexName(devs []Device, name string) int {
	for i, d := range devs {
		if strings.EqualFold(d.Name, name) {
			return i
		}
	}
	return -1
}

// Close frees the scheduler, the memory of its graph and the devices. It may
// be called twice and on nil. Close the contexts that got memory here first.
func (s *Sched) Close() {
	if s == nil {
		return
	}
	if s.cur != nil {
		s.release(s.cur)
	}
	if s.p != nil {
		C.ggml_backend_sched_free(s.p)
		s.p = nil
	}
	for i := len(s.backends) - 1; i >= 0; i-- {
		C.ggml_backend_free(s.backends[i])
	}
	s.backends = nil
}

// release forgets that c's graph has memory here: the memory is given to
// another graph, and c's tensors would point into it.
func (s *Sched) release(c *Context) {
	c.owner = nil
	if s.cur == c {
		s.cur = nil
	}
}

// AllocTensors gives memory on the named device, which must be one of the
// scheduler's, to all tensors made in c so far. They are weights: operations
// on them prefer that device.
func (s *Sched) AllocTensors(c *Context, device string) error {
	if s == nil || s.p == nil || c == nil || c.p == nil {
		return ErrClosed
	}
	if c.buf != nil || c.owner != nil {
		return fmt.Errorf("context has memory already")
	}
	if c.n == 0 || c.ops > 0 {
		// A result with fixed memory must be computed on that device, and ggml
		// aborts when the device cannot.
		return fmt.Errorf("context has %d tensors and %d operations, want only tensors", c.n-c.ops, c.ops)
	}
	for i, name := range s.names {
		if !strings.EqualFold(name, device) {
			continue
		}
		var e C.gg_err
		buf := C.gg_alloc_ctx(c.p, s.backends[i], &e)
		if buf == nil {
			return shimError(&e)
		}
		C.ggml_backend_buffer_set_usage(buf, C.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
		c.buf = buf
		return nil
	}
	return fmt.Errorf("device %q, want one of %s", device, strings.Join(s.names, ", "))
}

// Alloc gives memory to g's inputs and operations, so that inputs can be set
// and g computed any number of times. The graph that had memory before loses
// it, and its tensors with it. A graph gets memory once.
func (s *Sched) Alloc(g *Graph) error {
	if s == nil || s.p == nil {
		return ErrClosed
	}
	if err := g.check(); err != nil {
		return err
	}
	if g.alloc {
		return fmt.Errorf("graph had memory before; build a new one")
	}
	if n := len(g.seen); n > s.maxNodes {
		return fmt.Errorf("graph of %d tensors, want at most %d", n, s.maxNodes)
	}
	if err := s.supports(g); err != nil {
		return err
	}
	if s.cur != nil {
		s.release(s.cur)
	}
	g.alloc = true // also when it fails: some tensors may have been placed
	var e C.gg_err
	if !C.gg_sched_alloc(s.p, g.p, &e) {
		return shimError(&e)
	}
	s.cur, g.ctx.owner = g.ctx, s
	return nil
}

// supports refuses an operation that no device can run; the scheduler asserts
// on it.
func (s *Sched) supports(g *Graph) error {
	for t := range g.seen {
		if t.p.op == C.GGML_OP_NONE {
			continue
		}
		ok := false
		for _, b := range s.backends {
			ok = ok || bool(C.ggml_backend_supports_op(b, t.p))
		}
		if !ok {
			return fmt.Errorf("no device supports %s on these tensors", C.GoString(C.ggml_op_desc(t.p)))
		}
	}
	return nil
}

// Compute runs g, which Alloc has given memory, to its end.
func (s *Sched) Compute(g *Graph) error {
	if s == nil || s.p == nil {
		return ErrClosed
	}
	if err := g.check(); err != nil {
		return err
	}
	if s.cur != g.ctx {
		return fmt.Errorf("graph has no memory in this scheduler")
	}
	var e C.gg_err
	status := C.gg_sched_compute(s.p, g.p, &e)
	if err := shimError(&e); err != nil {
		return err
	}
	if status != C.GGML_STATUS_SUCCESS {
		return fmt.Errorf("compute: %s", C.GoString(C.ggml_status_to_string(C.enum_ggml_status(status))))
	}
	return nil
}
