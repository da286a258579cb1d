//go:build !cgo

package engine

import "unsafe"

// Collector cannot be made without cgo.
type Collector struct{}

// NewCollector returns ErrNoCgo.
func NewCollector([]string) (*Collector, error) { return nil, ErrNoCgo }

func (c *Collector) hook() (fn, data unsafe.Pointer) { return nil, nil }

// Bind does nothing.
func (c *Collector) Bind(*Context) {}

// Mode does nothing.
func (c *Collector) Mode(_, _ bool) {}

// Reset does nothing.
func (c *Collector) Reset(bool) {}

// Check returns ErrNoCgo.
func (c *Collector) Check() error { return ErrNoCgo }

// Each does nothing.
func (c *Collector) Each(func(Collected)) {}

// Close does nothing.
func (c *Collector) Close() error { return nil }
