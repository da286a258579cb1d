package engine

import (
	"errors"
	"io/fs"
	"math"
	"slices"

	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

// modelFile is what LoadModel needs of the GGUF header.
type modelFile struct {
	paths  []string
	arch   string
	shapes map[string][4]uint64
	align  uint32 // of the tensors in the file, bytes
}

// tensorAlignment is TENSOR_ALIGNMENT, ggml/src/ggml-impl.h.
const tensorAlignment = 32

// loadMode returns mode or, for a file whose tensors lie too loosely to be used
// where they are (ggml_backend_cpu_buffer_from_ptr asserts), the same without
// mapping.
func (m modelFile) loadMode(mode LoadMode) LoadMode {
	switch {
	case m.align >= tensorAlignment:
	case mode == LoadAuto, mode == LoadMmap:
		return LoadNone
	case mode == LoadMmapMlock:
		return LoadMlock
	}
	return mode
}

// checkModelFile opens p.Model and returns what it found. llama.cpp asserts on
// some damaged files and overrides; those must not reach it.
func checkModelFile(p *Params) (modelFile, error) {
	path := p.Model
	bad := func(msg string) (modelFile, error) {
		return modelFile{}, &Error{Op: "load model", Path: path, Msg: msg, Err: ErrModel}
	}
	if path == "" {
		return bad("no model file was given")
	}
	f, err := openGGUF("load model", path, gguf.OpenModel)
	if err != nil {
		return modelFile{}, err
	}
	defer f.Close()
	arch, err := f.Architecture()
	if err != nil {
		return bad(err.Error())
	}
	h := hparams{f: f, arch: arch, over: make(map[string]any, len(p.KVOverrides))}
	for _, o := range slices.Backward(p.KVOverrides) {
		h.over[o.Key] = o.Value // of two, llama.cpp takes the first
	}
	if msg := h.checkVocab(); msg != "" {
		return bad(msg)
	}
	if msg := h.check(); msg != "" && !p.VocabOnly {
		return bad(msg)
	}
	m := modelFile{paths: f.Paths, arch: arch, shapes: make(map[string][4]uint64, len(f.Tensors)), align: f.Alignment}
	for _, t := range f.Tensors {
		m.shapes[t.Name] = shape4(t)
	}
	return m, nil
}

// openGGUF opens a file with open, which is gguf's; its errors name the file.
func openGGUF(op, path string, open func(string) (*gguf.File, error)) (*gguf.File, error) {
	f, err := open(path)
	if err != nil {
		return nil, fileError(op, path, err)
	}
	return f, nil
}

// shape4 pads a shape with ones.
func shape4(t gguf.TensorInfo) [4]uint64 {
	s := [4]uint64{1, 1, 1, 1}
	copy(s[:], t.Shape)
	return s
}

// fileError makes an error of package gguf, which names the path itself, one
// of ours.
func fileError(op, path string, err error) error {
	var pe *fs.PathError
	var fe *gguf.FormatError
	e := &Error{Op: op, Path: path, Msg: err.Error(), Err: ErrModel}
	switch {
	case errors.As(err, &pe):
		e.Path, e.Msg = pe.Path, pipeline.Cause(pe).Error()
	case errors.As(err, &fe):
		// Its own text, which names the shard of a split model.
		return &pathError{msg: err.Error(), err: ErrModel}
	}
	return e
}

// pathError is an error whose text has the path already.
type pathError struct {
	msg string
	err error
}

func (e *pathError) Error() string { return e.msg }
func (e *pathError) Unwrap() error { return e.err }

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }
