//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"
)

// SetLoRA applies exactly these adapters, or none of them and returns an error;
// nil removes all. It clears the memory, whose contents came from other weights.
func (c *Context) SetLoRA(list []LoRAInfo) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	if err := c.loadLoRAs(list); err != nil {
		return err
	}
	var a arena
	defer a.free()
	ptrs := make([]unsafe.Pointer, len(list))
	scales := make([]C.float, len(list))
	for i, l := range list {
		ptrs[i], scales[i] = c.loras[l.Path], C.float(l.Scale)
	}
	var e C.gl_err
	if !C.gl_lora_set(c.ptr, cArray(&a, ptrs), cArray(&a, scales), C.int(len(list)), &e) {
		return &Error{Op: "apply LoRA adapters", Msg: "the engine failed: " + errText(&e)}
	}
	c.set = slices.Clone(list)
	c.ClearMemory()
	return nil
}

// LoRAs returns the adapters that are applied.
func (c *Context) LoRAs() []LoRAInfo { return slices.Clone(c.set) }

// loadLoRAs loads those adapters that are not loaded yet.
func (c *Context) loadLoRAs(list []LoRAInfo) error {
	seen := map[string]bool{}
	for _, l := range list {
		if !finite(l.Scale) {
			return &Error{Op: "load LoRA adapter", Path: l.Path, Msg: "its scale is not a finite number"}
		}
		if seen[l.Path] {
			return &Error{Op: "load LoRA adapter", Path: l.Path, Msg: "it is given twice"}
		}
		seen[l.Path] = true
		if c.loras[l.Path] != nil {
			continue
		}
		if err := checkLoRA(l.Path, &c.m.file); err != nil {
			return err
		}
		p, err := c.loadLoRA(l.Path)
		if err != nil {
			return err
		}
		c.loras[l.Path] = p
	}
	return nil
}

func (c *Context) loadLoRA(path string) (unsafe.Pointer, error) {
	var a arena
	defer a.free()
	var e C.gl_err
	var p unsafe.Pointer
	cause := captured(func() { p = C.gl_lora_load(c.m.ptr, a.str(path), &e) })
	if p != nil {
		return p, nil
	}
	msg := errText(&e)
	if msg == "" {
		msg = cause
	}
	if msg == "" {
		msg = "the engine cannot load it"
	}
	return nil, &Error{Op: "load LoRA adapter", Path: path, Msg: msg, Err: ErrModel}
}

// SetControlVector adds the weighted sum of the vectors to the hidden state
// after layers start to end, counted from 1; -1 means the first and the last.
// No vectors remove what was set. It clears the memory.
func (c *Context) SetControlVector(list []ControlVectorInfo, start, end int) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	var e C.gl_err
	if len(list) == 0 {
		C.gl_cvec_set(c.ptr, nil, 0, 0, 0, 0, &e)
		c.ClearMemory()
		return nil
	}
	info := c.m.info
	start, end, err := layerRange(start, end, info.NLayer)
	if err != nil {
		return err
	}
	sum, err := sumControlVectors(list, info.Arch, info.NEmbd, info.NLayer)
	if err != nil {
		return err
	}
	return c.applyDirections(sum, start, end, list[0].Path)
}

// SetDirections is SetControlVector for one vector in memory: NEmbd values for each of the layers 1 to NLayer-1, one
// after the other. nil removes what was set. The values must be finite.
func (c *Context) SetDirections(dirs []float32, start, end int) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	if len(dirs) == 0 {
		return c.SetControlVector(nil, 0, 0)
	}
	info := c.m.info
	start, end, err := layerRange(start, end, info.NLayer)
	if err != nil {
		return err
	}
	if want := info.NEmbd * (info.NLayer - 1); len(dirs) != want {
		return fmt.Errorf("control vector: %d values, want %d: %d layers of %d", len(dirs), want, info.NLayer-1, info.NEmbd)
	}
	if i := slices.IndexFunc(dirs, func(x float32) bool { return !finite(x) }); i >= 0 {
		return fmt.Errorf("control vector: value %d is not finite", i)
	}
	return c.applyDirections(dirs, start, end, "")
}

// applyDirections sets a whole vector: llama.cpp keeps what was there in layers that a shorter one lacks.
func (c *Context) applyDirections(dirs []float32, start, end int, path string) error {
	var e C.gl_err
	var ok C.bool
	cause := captured(func() {
		ok = C.gl_cvec_set(c.ptr, (*C.float)(unsafe.Pointer(&dirs[0])), C.size_t(len(dirs)), C.int(c.m.info.NEmbd), C.int(start), C.int(end), &e)
	})
	if !ok {
		return &Error{Op: "apply control vectors", Path: path, Msg: "the engine failed: " + errText(&e) + cause}
	}
	c.ClearMemory()
	return nil
}
