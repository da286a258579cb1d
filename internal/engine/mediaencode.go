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
	"time"
	"unsafe"
)

// Embed returns the embeddings of media chunk i: NTokens rows of NEmbd floats, which the caller must not change. They come
// from the cache, or the encoder runs over all chunks of the medium. ctx cancels that with ErrCanceled.
func (md *Media) Embed(ctx context.Context, c *MediaChunks, i int) ([]float32, error) {
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
		} else {
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
	defer func() { md.stats.EncodeMS += time.Since(begin).Seconds() * 1e3 }()
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

// Decode evaluates media chunk i in context ctx at position pos0 of sequence seq, with logits for its last embedding if
// they are wanted. ErrContextFull means that there is no room for it. On an error the memory may hold a part of it.
func (md *Media) Decode(ctx context.Context, lctx *Context, c *MediaChunks, i, pos0, seq int, logits bool) error {
	if lctx == nil || lctx.ptr == nil {
		return ErrClosed
	}
	if lctx.m != md.m {
		return errors.New("decode: the projector was loaded for another model")
	}
	embd, err := md.Embed(ctx, c, i)
	if err != nil {
		return err
	}
	md.mu.RLock()
	defer md.mu.RUnlock()
	if md.ptr == nil || c.ptr == nil {
		return ErrClosed
	}
	chunk := &c.List[i]
	switch limit := min(lctx.NBatch(), lctx.NUBatch()); {
	case chunk.NonCausal && chunk.NTokens > limit:
		return &Error{Op: "decode", Msg: fmt.Sprintf("an image of %d tokens must fit one batch, and --batch-size and --ubatch-size take %d",
			chunk.NTokens, limit), Err: ErrMedia}
	case pos0 < 0 || seq < 0 || seq >= lctx.NSeqMax():
		return fmt.Errorf("decode: position %d of sequence %d, want 0 or more and below %d", pos0, seq, lctx.NSeqMax())
	}
	return lctx.decodeMedia(ctx, func(e *C.gl_err) C.int {
		return C.gl_media_decode(md.ptr, lctx.ptr, (*C.gl_chunks)(c.ptr), C.int(chunk.native), (*C.float)(unsafe.Pointer(&embd[0])),
			C.int(pos0), C.int(seq), C.bool(logits), e)
	}, chunk.NTokens, logits)
}

// decodeMedia runs a decode of n embeddings, the last with output if logits.
func (c *Context) decodeMedia(ctx context.Context, decode func(*C.gl_err) C.int, n int, logits bool) error {
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
	if logits {
		last := (n - 1) % c.NBatch()
		c.outs = make([]bool, last+1)
		c.outs[last] = true
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
