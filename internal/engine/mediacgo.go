//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim_media.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// Media turns images and sound into embeddings for a model: a projector file, loaded. Tokenize, Info and DecodeAudio may
// be called from several goroutines; Embed and Decode wait for one another.
type Media struct {
	mu   sync.RWMutex // write: closing; read: a call into C
	ptr  *C.gl_media
	m    *Model
	proj *ProjectorInfo
	p    MediaParams
	info MediaInfo
	min  int // MinUBatch

	encoding sync.Mutex // one encode at a time; guards what follows
	cache    *embdCache
	stats    MediaStats
}

// NewMedia loads a projector file for m, which may be loaded without weights: media can then be tokenized and not
// encoded. The file is checked first, as far as libmtmd would assert on it; what is wrong is an error that wraps ErrModel
// and names the file. ctx and p.Progress can cancel, which gives ErrCanceled.
func NewMedia(ctx context.Context, m *Model, p *MediaParams) (*Media, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	proj, err := ReadProjector(p.Path)
	if err != nil {
		return nil, err
	}
	if err := proj.checkTokens(p); err != nil {
		return nil, err
	}
	if err := m.retain(); err != nil {
		return nil, err
	}
	media, err := newMedia(ctx, m, p, proj)
	if err != nil {
		m.release()
		return nil, err
	}
	live.Add(1)
	return media, nil
}

func newMedia(ctx context.Context, m *Model, p *MediaParams, proj *ProjectorInfo) (*Media, error) {
	bad := func(msg string) error { return &Error{Op: "load projector", Path: p.Path, Msg: msg, Err: ErrModel} }
	if n := m.nEmbdInp(); n > 0 && n != proj.NEmbd {
		return nil, bad(fmt.Sprintf("it is for a model with embeddings of %d, and those of %s have %d", proj.NEmbd, m.info.Path, n))
	}
	if m.vocab.typ == vocabNone {
		return nil, bad(errNoVocab.Error())
	}
	if err := ctx.Err(); err != nil {
		return nil, canceled(err)
	}
	var a arena
	defer a.free()
	prog := progressState{f: func(x float32) bool { return ctx.Err() == nil && (p.Progress == nil || p.Progress(x)) }}
	h := cgo.NewHandle(&prog)
	defer h.Delete()
	threads := p.NThreads
	if threads < 0 {
		threads = defaultThreads()
	}
	cp := C.gl_media_params{
		path: a.str(p.Path), use_gpu: C.bool(p.UseGPU), device: a.str(p.Device), n_threads: C.int(threads), flash_attn: C.int(p.FlashAttn),
		warmup: C.bool(p.Warmup), min_tokens: C.int(p.ImageMinTokens), max_tokens: C.int(p.ImageMaxTokens),
		batch_max_tokens: C.int(p.BatchMaxTokens), progress: C.uintptr_t(h),
	}
	var e C.gl_err
	media := &Media{m: m, proj: proj, p: *p, cache: newEmbdCache(p.CacheBytes)}
	cause := captured(func() { media.ptr = C.gl_media_new(m.ptr, &cp, &e) })
	if media.ptr == nil {
		if err := loadError(ctx, p.Path, &prog, errText(&e), cause); !errors.Is(err, ErrModel) {
			return nil, err
		}
		return nil, bad(mediaCause(errText(&e), cause, "the engine cannot load it"))
	}
	var ci C.gl_media_info
	C.gl_media_get_info(media.ptr, &ci)
	media.info = MediaInfo{
		Path: p.Path, Vision: bool(ci.vision), Audio: bool(ci.audio), VisionType: proj.VisionType, AudioType: proj.AudioType,
		SampleRate: max(int(ci.sample_rate), 0), MRoPE: bool(ci.mrope), NonCausal: bool(ci.non_causal_image), NEmbd: proj.NEmbd,
	}
	if err := media.measure(); err != nil {
		C.gl_media_free(media.ptr)
		return nil, err
	}
	return media, nil
}

// mediaCause picks the text of an error: what was thrown, what was logged, or other.
func mediaCause(thrown, logged, other string) string {
	switch {
	case thrown != "":
		return thrown
	case logged != "":
		return logged
	}
	return other
}

// nEmbdInp returns the floats of an embedding that the model takes, 0 if that is not known without its weights.
func (m *Model) nEmbdInp() int {
	if !m.vocabOnl {
		return int(C.gl_model_n_embd_inp(m.ptr))
	}
	n := 0
	if s, ok := m.Meta(m.info.Arch + ".embedding_length"); ok {
		_, _ = fmt.Sscan(s, &n) // 0 is not known
	}
	if s, ok := m.Meta(m.info.Arch + ".n_deepstack_layers"); ok {
		layers := 0
		_, _ = fmt.Sscan(s, &layers)
		n *= 1 + layers
	}
	return n
}

// measure sets min: by the type's limit, and by images of the shapes that make the most tokens.
func (md *Media) measure() error {
	if !md.info.NonCausal {
		return nil
	}
	_, md.min = md.proj.tokenLimits(&md.p)
	for _, size := range [][2]int{{8192, 8192}, {8192, 4096}, {4096, 8192}, {8192, 1024}, {1024, 8192}, {512, 512}, {8192, 128}, {128, 8192}} {
		b, err := NewImagePlaceholder(size[0], size[1])
		if err != nil {
			return err
		}
		c, err := md.Tokenize([]MediaPart{{Media: b}}, false)
		if err != nil {
			return err
		}
		for i := range c.List {
			if c.List[i].NonCausal {
				md.min = max(md.min, c.List[i].NTokens)
			}
		}
		_ = c.Close()
	}
	return nil
}

// Info says what the projector can do.
func (md *Media) Info() MediaInfo { return md.info }

// MinUBatch returns the tokens of the largest image that must be evaluated in one physical batch, 0 if none must. A
// context that is to read such images needs that many as NUBatch and NBatch.
func (md *Media) MinUBatch() int { return md.min }

// Stats returns what was counted so far.
func (md *Media) Stats() MediaStats {
	md.encoding.Lock()
	defer md.encoding.Unlock()
	s := md.stats
	s.CacheBytes = md.cache.bytes
	return s
}

// Close frees the projector. It may be called twice and on nil.
func (md *Media) Close() error {
	if md == nil {
		return nil
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	if md.ptr != nil {
		C.gl_media_free(md.ptr)
		md.ptr = nil
		md.m.release()
		live.Add(-1)
	}
	return nil
}

// Tokenize makes chunks of a prompt, and scales its images and transforms its sounds for the encoder. What is text is
// never taken for a medium. addSpecial adds BOS and EOS where the vocabulary wants them, once.
func (md *Media) Tokenize(parts []MediaPart, addSpecial bool) (*MediaChunks, error) {
	if md == nil {
		return nil, ErrClosed
	}
	md.mu.RLock()
	defer md.mu.RUnlock()
	if md.ptr == nil {
		return nil, ErrClosed
	}
	if err := md.checkParts(parts); err != nil {
		return nil, err
	}
	c := &MediaChunks{embds: map[int][][]float32{}, proj: md.proj}
	if len(parts) > 0 {
		if err := md.tokenize(c, parts); err != nil {
			return nil, err
		}
	}
	if addSpecial {
		c.addSpecial(md.m.vocab)
	}
	return c, nil
}

func (md *Media) checkParts(parts []MediaPart) error {
	if err := md.m.vocab.checkSpecials(); err != nil {
		return err
	}
	for i, p := range parts {
		b := p.Media
		switch {
		case b == nil && len(p.Text) > math.MaxInt32/2:
			return fmt.Errorf("part %d of the prompt: got %d bytes of text, want at most %d", i, len(p.Text), math.MaxInt32/2)
		case b == nil:
		case b.Audio && !md.info.Audio:
			return fmt.Errorf("%w: %s reads no sound", ErrNoModality, md.info.Path)
		case !b.Audio && !md.info.Vision:
			return fmt.Errorf("%w: %s reads no images", ErrNoModality, md.info.Path)
		case b.Audio && b.NSamples < 2, !b.Audio && (b.Width < 1 || b.Height < 1 || b.Width > maxSide || b.Height > maxSide),
			b.RGB != nil && len(b.RGB) != 3*b.Width*b.Height, b.Samples != nil && len(b.Samples) != b.NSamples:
			return fmt.Errorf("part %d of the prompt: the medium's sizes do not fit its data", i)
		case !b.Audio:
			if n, ok := md.proj.tooLong(b.Width, b.Height, &md.p); ok {
				return &Error{Op: "tokenize media", Msg: fmt.Sprintf("an image of %dx%d has %d patches in a row, and the projector has positions for %d",
					b.Width, b.Height, n, md.proj.posRows), Err: ErrMedia}
			}
		}
	}
	return nil
}

func (md *Media) tokenize(c *MediaChunks, parts []MediaPart) error {
	var a arena
	defer a.free()
	var pin runtime.Pinner
	defer pin.Unpin()
	list := make([]C.gl_media_part, len(parts))
	var ids []string
	var empty []bool
	for i, p := range parts {
		switch b := p.Media; {
		case b == nil:
			list[i] = C.gl_media_part{text: a.str(p.Text), len: C.size_t(len(p.Text)), parse_special: C.bool(p.ParseSpecial)}
			continue
		case b.Audio:
			list[i] = C.gl_media_part{kind: 2, n_samples: C.size_t(b.NSamples)}
			if b.Samples != nil {
				pin.Pin(&b.Samples[0])
				list[i].pcm = (*C.float)(unsafe.Pointer(&b.Samples[0]))
			}
		default:
			list[i] = C.gl_media_part{kind: 1, nx: C.uint32_t(b.Width), ny: C.uint32_t(b.Height)}
			if b.RGB != nil {
				pin.Pin(&b.RGB[0])
				list[i].rgb = (*C.uint8_t)(unsafe.Pointer(&b.RGB[0]))
			}
		}
		ids, empty = append(ids, p.Media.ID), append(empty, p.Media.Placeholder())
	}
	var ptr *C.gl_chunks
	var e C.gl_err
	run := func() { ptr = C.gl_media_tokenize(md.ptr, &list[0], C.int(len(list)), &e) }
	if run(); ptr == nil {
		// Again, for the cause: it stands in the log only, and the log is everybody's.
		if cause := captured(run); ptr == nil {
			return &Error{Op: "tokenize media", Msg: mediaCause(errText(&e), cause, "the engine cannot prepare it"), Err: ErrMedia}
		}
	}
	c.ptr = unsafe.Pointer(ptr)
	c.fill(ptr, ids, empty)
	live.Add(1)
	return nil
}

func (c *MediaChunks) fill(ptr *C.gl_chunks, ids []string, empty []bool) {
	n := int(C.gl_chunks_count(ptr))
	if n == 0 {
		return
	}
	infos := make([]C.gl_chunk, n)
	C.gl_chunks_get(ptr, &infos[0])
	tiles := make([]int, len(ids))
	for i, ci := range infos {
		chunk := MediaChunk{Kind: ChunkKind(ci.kind), NTokens: int(ci.n_tokens), NPos: int(ci.n_pos), Media: int(ci.media),
			NonCausal: bool(ci.non_causal), native: i}
		if chunk.Kind == ChunkText {
			chunk.Tokens = append([]Token(nil), unsafe.Slice((*Token)(unsafe.Pointer(ci.tokens)), chunk.NTokens)...)
		} else {
			chunk.ID, chunk.Tile, chunk.placeholder = ids[chunk.Media], tiles[chunk.Media], empty[chunk.Media]
			tiles[chunk.Media]++
		}
		c.List = append(c.List, chunk)
	}
}

// Close frees the media of the prompt. It may be called twice and on nil.
func (c *MediaChunks) Close() error {
	if c != nil && c.ptr != nil {
		C.gl_chunks_free((*C.gl_chunks)(c.ptr))
		c.ptr, c.embds = nil, nil
		live.Add(-1)
	}
	return nil
}
