//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime/cgo"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"

	"gollama/internal/engine/ggml"
)

// live counts open models, contexts and samplers; tests look for leaks with it.
var live atomic.Int64

// Model is a loaded model. Its methods may be called from several goroutines.
type Model struct {
	mu     sync.RWMutex // write: closing; read: a call into C
	ptr    *C.struct_llama_model
	refs   int // contexts and samplers that need ptr
	closed bool

	info     ModelInfo
	vocab    *Vocab
	file     modelFile
	fitCtx   uint32 // what fitting made of n_ctx, 0 if nothing
	lastCtx  atomic.Int64
	vocabOnl bool
}

var numaOnce sync.Once

// LoadModel loads p.Model with the settings of p, which must be valid. A file
// that is no model, or is damaged, is an error that wraps ErrModel and names
// the file and the cause. ctx and p.LoadProgressCallback can cancel, which
// gives ErrCanceled.
func LoadModel(ctx context.Context, p *Params) (*Model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, canceled(err)
	}
	if len(p.RPCServers) > 0 {
		if err := ggml.AddRPC(p.RPCServers); err != nil {
			return nil, err
		}
	}
	file, err := checkModelFile(p)
	if err != nil {
		return nil, err
	}
	// The vocabulary was read to check it: its memory goes back before the weights come.
	debug.FreeOSMemory()
	initEngine()
	if p.NUMA != NUMADisabled {
		numaOnce.Do(func() { C.gl_numa_init(C.int(p.NUMA)) })
	}
	m, err := load(ctx, p, file)
	if err != nil {
		return nil, err
	}
	live.Add(1)
	return m, nil
}

func canceled(cause error) error {
	if cause == nil {
		return ErrCanceled
	}
	return fmt.Errorf("%w: %w", ErrCanceled, cause)
}

func load(ctx context.Context, p *Params, file modelFile) (*Model, error) {
	var a arena
	defer a.free()
	cp := contextParams(p)
	a.ptrs = append(a.ptrs, ptrOf(cp))
	mp := modelParams(&a, p, file.paths)
	mp.load_mode = C.int(file.loadMode(p.LoadMode))
	flag := C.gl_flag_new()
	defer C.gl_flag_free(flag)
	mp.cancel = flag
	stop := context.AfterFunc(ctx, func() { C.gl_flag_set(flag, 1) })
	var prog progressState
	if p.LoadProgressCallback != nil {
		prog.f = p.LoadProgressCallback
		h := cgo.NewHandle(&prog)
		defer h.Delete()
		mp.progress = C.uintptr_t(h)
	}
	var ptr *C.struct_llama_model
	var e C.gl_err
	cause := captured(func() { ptr = C.gl_model_load(mp, cp, &e) })
	if !stop() {
		// The function that sets the flag has begun: let it end before the flag is freed.
		waitFlag(flag)
	}
	if ptr == nil {
		return nil, loadError(ctx, p.Model, &prog, errText(&e), cause)
	}
	m := &Model{ptr: ptr, file: file, vocabOnl: p.VocabOnly}
	if uint32(cp.n_ctx) != uint32(p.NCtx) {
		m.fitCtx = uint32(cp.n_ctx)
	}
	m.fillInfo(p.Model)
	m.vocab = newVocab(m)
	return m, nil
}

func loadError(ctx context.Context, path string, prog *progressState, thrown, logged string) error {
	switch {
	case prog.err != nil:
		return prog.err
	case ctx.Err() != nil:
		return canceled(ctx.Err())
	case prog.stopped:
		return ErrCanceled
	case thrown == "" && logged == "":
		thrown = "the engine cannot load it"
	case thrown == "":
		thrown = logged
	}
	return &Error{Op: "load model", Path: path, Msg: thrown, Err: ErrModel}
}

// modelParams converts p; what it points to lives in a.
func modelParams(a *arena, p *Params, paths []string) *C.gl_model_params {
	mp := (*C.gl_model_params)(C.calloc(1, C.sizeof_gl_model_params))
	a.ptrs = append(a.ptrs, ptrOf(mp))
	mp.paths, mp.n_paths = a.strs(paths), C.size_t(len(paths))
	if len(p.Devices) == 1 && p.Devices[0] == "none" {
		mp.no_devices = true
	} else {
		mp.devices, mp.n_devices = a.strs(p.Devices), C.int(len(p.Devices))
	}
	patterns := make([]string, len(p.TensorBuftOverrides))
	bufts := make([]string, len(p.TensorBuftOverrides))
	for i, o := range p.TensorBuftOverrides {
		patterns[i], bufts[i] = o.Pattern, o.Buft
	}
	mp.buft_patterns, mp.bufts, mp.n_bufts = a.strs(patterns), a.strs(bufts), C.int(len(bufts))
	kvs := make([]C.gl_kv, len(p.KVOverrides))
	for i, o := range p.KVOverrides {
		kvs[i] = kvOverride(a, o)
	}
	mp.kvs, mp.n_kvs = cArray(a, kvs), C.int(len(kvs))
	split := make([]C.float, len(p.TensorSplit))
	for i, x := range p.TensorSplit {
		split[i] = C.float(x)
	}
	mp.tensor_split, mp.n_tensor_split = cArray(a, split), C.int(len(split))
	target := make([]C.uint64_t, len(p.FitParamsTarget))
	for i, x := range p.FitParamsTarget {
		target[i] = C.uint64_t(x)
	}
	mp.fit_target, mp.n_fit_target = cArray(a, target), C.int(len(target))
	mp.n_gpu_layers, mp.main_gpu = C.int(p.NGPULayers), C.int(p.MainGPU)
	mp.split_mode, mp.lazy_mode = C.int(p.SplitMode), C.int(p.LazyMode)
	mp.vocab_only, mp.check_tensors = C.bool(p.VocabOnly), C.bool(p.CheckTensors)
	mp.no_extra_bufts, mp.no_host, mp.no_alloc = C.bool(p.NoExtraBufts), C.bool(p.NoHost), C.bool(p.NoAlloc)
	mp.fit = C.bool(p.FitParams && !p.VocabOnly && !bool(mp.no_devices) && bool(C.gl_have_gpu()))
	mp.fit_min_ctx = C.uint32_t(p.FitParamsMinCtx)
	return mp
}

func kvOverride(a *arena, o KVOverride) C.gl_kv {
	kv := C.gl_kv{key: a.str(o.Key)}
	switch v := o.Value.(type) { // the tags are enum llama_model_kv_override_type
	case int64:
		kv.tag, kv.i = 0, C.int64_t(v)
	case float64:
		kv.tag, kv.f = 1, C.double(v)
	case bool:
		kv.tag, kv.b = 2, C.bool(v)
	case string:
		kv.tag, kv.s = 3, a.str(v)
	}
	return kv
}

func (m *Model) fillInfo(path string) {
	var ci C.gl_model_info
	C.gl_model_get_info(m.ptr, &ci)
	m.info = ModelInfo{
		Path: path, Size: uint64(ci.size), NParams: uint64(ci.n_params),
		NCtxTrain: int(ci.n_ctx_train), NEmbd: int(ci.n_embd), NLayer: int(ci.n_layer),
		NHead: int(ci.n_head), NHeadKV: int(ci.n_head_kv), NVocab: int(ci.n_vocab),
		HasEncoder: bool(ci.has_encoder), HasDecoder: bool(ci.has_decoder),
		Recurrent: bool(ci.recurrent), Hybrid: bool(ci.hybrid), Diffusion: bool(ci.diffusion),
		DecoderStart: Token(ci.decoder_start),
	}
	m.info.Arch, _ = m.Meta("general.architecture")
	m.info.Name, _ = m.Meta("general.name")
	m.info.Desc, _ = cString(func(p *C.char, n C.size_t) C.int { return C.gl_model_desc(m.ptr, p, n) })
	m.info.FType, _ = cString(func(p *C.char, n C.size_t) C.int { return C.gl_model_ftype(m.ptr, p, n) })
}

// cString calls f with buffers until its whole text fits.
func cString(f func(*C.char, C.size_t) C.int) (string, bool) {
	buf := make([]C.char, 256)
	for {
		n := int(f(&buf[0], C.size_t(len(buf))))
		if n < 0 {
			return "", false
		}
		if n < len(buf) {
			return C.GoStringN(&buf[0], C.int(n)), true
		}
		buf = make([]C.char, n+1)
	}
}

// Info describes the model.
func (m *Model) Info() ModelInfo { return m.info }

// Vocab returns the model's vocabulary, which is usable until Close.
func (m *Model) Vocab() *Vocab { return m.vocab }

// Meta returns a metadata value as text, overrides included; arrays have none.
// A closed model has none at all.
func (m *Model) Meta(key string) (string, bool) {
	if !m.rlock() {
		return "", false
	}
	defer m.mu.RUnlock()
	var a arena
	defer a.free()
	k := a.str(key)
	return cString(func(p *C.char, n C.size_t) C.int { return C.gl_model_meta_val(m.ptr, k, p, n) })
}

// MetaKeys lists the metadata keys that Meta knows, sorted.
func (m *Model) MetaKeys() []string {
	if !m.rlock() {
		return nil
	}
	defer m.mu.RUnlock()
	n := int(C.gl_model_meta_count(m.ptr))
	keys := make([]string, 0, n)
	for i := range n {
		if k, ok := cString(func(p *C.char, n C.size_t) C.int { return C.gl_model_meta_key(m.ptr, C.int(i), p, n) }); ok {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	return keys
}

// ChatTemplate returns the model's chat template of that name, or its default
// one for "". Without one the result is empty.
func (m *Model) ChatTemplate(name string) string {
	if !m.rlock() {
		return ""
	}
	defer m.mu.RUnlock()
	if name == "" {
		return C.GoString(C.gl_model_chat_template(m.ptr, nil))
	}
	var a arena
	defer a.free()
	return C.GoString(C.gl_model_chat_template(m.ptr, a.str(name)))
}

// rlock takes the read lock; false means that the model is closed.
func (m *Model) rlock() bool {
	if m == nil {
		return false
	}
	m.mu.RLock()
	if m.ptr == nil {
		m.mu.RUnlock()
		return false
	}
	return true
}

// retain keeps the C model until release, also over Close.
func (m *Model) retain() error {
	if m == nil {
		return ErrClosed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.refs++
	return nil
}

func (m *Model) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refs--
	m.freeIfUnused()
}

func (m *Model) freeIfUnused() {
	if m.closed && m.refs == 0 && m.ptr != nil {
		C.gl_model_free(m.ptr)
		m.ptr = nil
		live.Add(-1)
	}
}

// Close frees the model; while contexts or samplers of it are open, when the
// last of them is closed. It may be called twice and on nil.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.freeIfUnused()
	return nil
}

// errNoVocab is for models with tokenizer.ggml.model "none".
var errNoVocab = errors.New("the model has no vocabulary")
