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
	"runtime"
	"slices"
	"time"
	"unsafe"
)

// Embed returns the embeddings of media chunk i: NTokens rows of NEmbd floats, which the caller must not change. They come
// from the cache, or the encoder runs over all chunks of the medium. ctx cancels that with ErrCanceled. lctx is the context
// that they are for, nil if there is none: its threads, which spin for a while after a batch, rest while the encoder has the
// processors.
func (md *Media) Embed(ctx context.Context, lctx *Context, c *MediaChunks, i int) ([]float32, error) {
	if md == nil {
		return nil, ErrClosed
	}
	md.mu.RLock()
	defer md.mu.RUnlock()
	if md.ptr == nil || c.ptr == nil {
		return nil, ErrClosed
	}
	if i < 0 || i >= len(c.List) || c.List[i].Kind == ChunkText {
		return nil, fmt.Errorf("encode: chunk %d of the prompt is no medium", i)
	}
	if c.List[i].placeholder { // libmtmd knows it of images; of a sound it would encode silence
		return nil, fmt.Errorf("encode: chunk %d of the prompt is a placeholder", i)
	}
	md.encoding.Lock()
	defer md.encoding.Unlock()
	chunk := c.List[i]
	embds := c.embds[chunk.Media]
	if embds == nil {
		group := c.group(i)
		key := c.key(group)
		if embds = md.cache.get(key); embds != nil {
			md.stats.CacheHits += len(group)
			c.Work.CacheHits += len(group)
		} else {
			if lctx != nil && lctx.ptr != nil {
				C.gl_ctx_rest(lctx.ptr)
			}
			var err error
			if embds, err = md.encode(ctx, c, group); err != nil {
				return nil, err
			}
			md.cache.put(key, embds)
		}
		c.embds[chunk.Media] = embds
	}
	return embds[chunk.Tile], nil
}

// encode runs the encoder over the chunks of a medium, several at once where it can. Chunks of two media never share a
// run: the same medium gets the same numbers whatever is beside it.
func (md *Media) encode(ctx context.Context, c *MediaChunks, group []int) ([][]float32, error) {
	if md.m.vocabOnl {
		return nil, &Error{Op: "encode", Path: md.m.info.Path, Msg: "the model was loaded without its weights"}
	}
	begin := time.Now()
	before := md.stats
	defer func() {
		md.stats.EncodeMS += time.Since(begin).Seconds() * 1e3
		c.Work.add(md.stats, before)
	}()
	out := make([][]float32, len(group))
	total := 0
	idx := make([]C.int32_t, len(group))
	for k, i := range group {
		idx[k] = C.int32_t(c.List[i].native)
		total += c.List[i].NTokens * md.info.NEmbd
	}
	if total == 0 {
		return nil, &Error{Op: "encode", Msg: "the medium has no tokens", Err: ErrMedia}
	}
	rows := make([]float32, total)
	for done, at := 0, 0; done < len(group); {
		n, err := md.encodeSome(ctx, c, idx[done:], rows[at:])
		if err != nil {
			return nil, err
		}
		md.stats.Runs++
		md.stats.Encodes += n
		for range n {
			size := c.List[group[done]].NTokens * md.info.NEmbd
			out[done] = rows[at : at+size : at+size]
			at += size
			done++
		}
	}
	return out, nil
}

func (md *Media) encodeSome(ctx context.Context, c *MediaChunks, idx []C.int32_t, dst []float32) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, canceled(err)
	}
	flag := C.gl_media_abort_flag(md.ptr)
	C.gl_flag_set(flag, 0)
	stop := context.AfterFunc(ctx, func() { C.gl_flag_set(flag, 1) })
	var e C.gl_err
	var n C.int
	cause := watched(func() {
		n = C.gl_media_encode(md.ptr, (*C.gl_chunks)(c.ptr), &idx[0], C.int(len(idx)), (*C.float)(unsafe.Pointer(&dst[0])), &e)
	})
	if !stop() {
		waitFlag(flag)
	}
	switch {
	case n > 0:
		return int(n), nil
	case ctx.Err() != nil:
		return 0, canceled(ctx.Err())
	}
	return 0, &Error{Op: "encode media", Msg: mediaCause(errText(&e), cause, "the encoder failed"), Err: ErrMedia}
}

// Decode evaluates media chunk i in context lctx at position pos0 of sequence seq, with logits for its last embedding if
// they are wanted. ErrContextFull means that there is no room for it. On an error the memory may hold a part of it.
func (md *Media) Decode(ctx context.Context, lctx *Context, c *MediaChunks, i, pos0, seq int, logits bool) error {
	return md.DecodeSpans(ctx, lctx, []MediaSpan{{Chunks: c, Chunk: i, Pos: pos0, Seq: seq, Logits: logits}})
}

// DecodeSpans does the same for chunks of several sequences, which are computed together: they fit one physical batch, and
// all or none of them are NonCausal. The logits of a span are those of its last token's place among the tokens of all.
func (md *Media) DecodeSpans(ctx context.Context, lctx *Context, spans []MediaSpan) error {
	if md == nil || lctx == nil || lctx.ptr == nil {
		return ErrClosed
	}
	if lctx.m != md.m {
		return errors.New("decode: the projector was loaded for another model")
	}
	if err := checkSpans(lctx, spans); err != nil {
		return err
	}
	list := make([]C.gl_span, len(spans))
	var pin runtime.Pinner
	defer pin.Unpin()
	var outs []bool
	for k, s := range spans {
		embd, err := md.Embed(ctx, lctx, s.Chunks, s.Chunk)
		if err != nil {
			return err
		}
		pin.Pin(&embd[0])
		chunk := &s.Chunks.List[s.Chunk]
		list[k] = C.gl_span{chunks: (*C.gl_chunks)(s.Chunks.ptr), chunk: C.int(chunk.native), embd: (*C.float)(unsafe.Pointer(&embd[0])),
			pos0: C.int(s.Pos), seq: C.int(s.Seq), logits: C.bool(s.Logits)}
		outs = append(outs, make([]bool, chunk.NTokens)...)
		outs[len(outs)-1] = s.Logits
	}
	md.mu.RLock()
	defer md.mu.RUnlock()
	if md.ptr == nil {
		return ErrClosed
	}
	return lctx.decodeMedia(ctx, func(e *C.gl_err) C.int {
		return C.gl_media_decode(md.ptr, lctx.ptr, &list[0], C.int(len(list)), e)
	}, outs)
}

// checkSpans refuses what llama_decode would assert on.
func checkSpans(lctx *Context, spans []MediaSpan) error {
	limit, total := min(lctx.NBatch(), lctx.NUBatch()), 0
	for _, s := range spans {
		if s.Chunks == nil || s.Chunk < 0 || s.Chunk >= len(s.Chunks.List) || s.Chunks.List[s.Chunk].Kind == ChunkText {
			return fmt.Errorf("decode: chunk %d of the prompt is no medium", s.Chunk)
		}
		chunk := &s.Chunks.List[s.Chunk]
		total += chunk.NTokens
		switch {
		case chunk.NTokens < 1:
			return &Error{Op: "decode", Msg: "the medium has no tokens", Err: ErrMedia}
		case chunk.NonCausal && chunk.NTokens > limit:
			return &Error{Op: "decode", Msg: fmt.Sprintf("an image of %d tokens must fit one batch, and --batch-size and --ubatch-size take %d",
				chunk.NTokens, limit), Err: ErrMedia}
		case s.Pos < 0 || s.Seq < 0 || s.Seq >= lctx.NSeqMax():
			return fmt.Errorf("decode: position %d of sequence %d, want 0 or more and below %d", s.Pos, s.Seq, lctx.NSeqMax())
		case chunk.NonCausal != spans[0].Chunks.List[spans[0].Chunk].NonCausal:
			return errors.New("decode: media with and without causal attention in one batch")
		}
	}
	if len(spans) == 0 || len(spans) > 1 && total > limit {
		return fmt.Errorf("decode: %d media of %d tokens in a batch of %d", len(spans), total, limit)
	}
	return nil
}

// decodeMedia runs a decode of embeddings, of which outs says which have output.
func (c *Context) decodeMedia(ctx context.Context, decode func(*C.gl_err) C.int, outs []bool) error {
	if err := ctx.Err(); err != nil {
		return canceled(err)
	}
	flag := C.gl_ctx_abort_flag(c.ptr)
	C.gl_flag_set(flag, 0)
	stop := context.AfterFunc(ctx, func() { C.gl_flag_set(flag, 1) })
	var e C.gl_err
	var rc C.int
	c.outs, c.base = nil, 0
	cause := watched(func() { rc = decode(&e) })
	if !stop() {
		waitFlag(flag)
	}
	if rc != 0 {
		return c.decodeError(ctx, int(rc), errText(&e), cause)
	}
	if slices.Contains(outs, true) {
		c.base = (len(outs) - 1) / c.NBatch() * c.NBatch() // of a long one, the last batch is there
		c.outs = outs[c.base:]
	}
	return nil
}

// DecodeAudio decodes a WAV, MP3 or FLAC file to mono at SampleRate, with libmtmd's own decoder, so that the samples are
// those that llama.cpp's tools get. data must have been looked at by internal/media: a header that promises more than
// memory holds is not noticed here.
func (md *Media) DecodeAudio(data []byte) (*Bitmap, error) {
	if md == nil {
		return nil, ErrClosed
	}
	md.mu.RLock()
	defer md.mu.RUnlock()
	switch {
	case md.ptr == nil:
		return nil, ErrClosed
	case !md.info.Audio:
		return nil, fmt.Errorf("%w: %s reads no sound", ErrNoModality, md.info.Path)
	case len(data) == 0:
		return nil, &Error{Op: "decode sound", Msg: "it is empty", Err: ErrMedia}
	}
	var e C.gl_err
	var n C.size_t
	p := C.gl_media_audio(md.ptr, (*C.uint8_t)(unsafe.Pointer(&data[0])), C.size_t(len(data)), &n, &e)
	defer C.free(unsafe.Pointer(p))
	if p == nil {
		return nil, &Error{Op: "decode sound", Msg: errText(&e), Err: ErrMedia}
	}
	if n == 0 {
		return nil, &Error{Op: "decode sound", Msg: "it has no samples", Err: ErrMedia}
	}
	b, err := NewAudioBitmap(append([]float32(nil), unsafe.Slice((*float32)(unsafe.Pointer(p)), int(n))...))
	if err != nil {
		return nil, &Error{Op: "decode sound", Msg: err.Error(), Err: ErrMedia}
	}
	return b, nil
}
