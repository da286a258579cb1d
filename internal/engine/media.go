package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"
)

// MediaParams say how a Media is made. The zero value is not usable; begin with DefaultMediaParams.
type MediaParams struct {
	Path           string // the projector file (mmproj)
	UseGPU         bool
	Device         string // empty means the first GPU
	NThreads       int    // -1 means DefaultThreads
	FlashAttn      FlashAttnType
	Warmup         bool  // compute buffers are made at once and not with the first image
	ImageMinTokens int   // 0 or less: the file's
	ImageMaxTokens int   // 0 or less: the file's
	BatchMaxTokens int   // tokens of chunks that are encoded together; one chunk may have more
	CacheBytes     int64 // of embeddings that are kept; 0 keeps none
	// Progress gets values that rise from 0 to 1 while the file loads; returning false cancels that with ErrCanceled.
	Progress func(progress float32) bool
}

// DefaultMediaParams returns mtmd_context_params_default's values, and 256 MiB of embeddings.
func DefaultMediaParams() MediaParams {
	return MediaParams{UseGPU: true, NThreads: -1, FlashAttn: FlashAttnAuto, Warmup: true,
		ImageMinTokens: -1, ImageMaxTokens: -1, BatchMaxTokens: 1024, CacheBytes: 256 << 20}
}

// Media returns what p says of media.
func (p *Params) Media() MediaParams {
	mp := DefaultMediaParams()
	mp.Path, mp.UseGPU, mp.Device = p.MMProj, p.MMProjUseGPU, p.MMProjDevice
	mp.NThreads, mp.FlashAttn, mp.Warmup = p.CPUParams.NThreads, p.FlashAttnType, p.Warmup
	mp.ImageMinTokens, mp.ImageMaxTokens, mp.BatchMaxTokens = p.ImageMinTokens, p.ImageMaxTokens, p.MTMDBatchMaxTokens
	mp.Progress = p.LoadProgressCallback
	return mp
}

// check refuses numbers that libmtmd computes nonsense from.
func (p *MediaParams) check() error {
	switch lo, hi := p.ImageMinTokens, p.ImageMaxTokens; {
	case p.BatchMaxTokens < 1:
		return fmt.Errorf("--mtmd-batch-max-tokens: got %d, want 1 or more", p.BatchMaxTokens)
	case lo > maxImageTokens || hi > maxImageTokens:
		return fmt.Errorf("--image-min-tokens, --image-max-tokens: got %d, want at most %d", max(lo, hi), maxImageTokens)
	case lo > 0 && hi > 0 && lo > hi:
		return fmt.Errorf("--image-min-tokens: got %d, want at most the %d of --image-max-tokens", lo, hi)
	}
	return nil
}

// maxImageTokens bounds the tokens of an image that may be asked for: libmtmd multiplies them by a patch's pixels in an int.
const maxImageTokens = 1 << 16

// MediaInfo says what a Media can do.
type MediaInfo struct {
	Path                  string
	Vision, Audio         bool
	VisionType, AudioType string // projector types, e.g. gemma3
	SampleRate            int    // of sound, Hz; 0 without
	MRoPE                 bool   // an image's positions are fewer than its tokens
	NonCausal             bool   // an image's tokens see one another; it is evaluated in one physical batch
	NEmbd                 int    // floats of a token's embedding
}

// MediaStats count work.
type MediaStats struct {
	Encodes    int     // media chunks that were encoded
	Runs       int     // of the encoder; several chunks may share one
	CacheHits  int     // media chunks whose embeddings were there already
	CacheBytes int64   // kept now
	EncodeMS   float64 // in the encoder
}

// add adds the work between two counts.
func (s *MediaStats) add(after, before MediaStats) {
	s.Encodes += after.Encodes - before.Encodes
	s.Runs += after.Runs - before.Runs
	s.EncodeMS += after.EncodeMS - before.EncodeMS
}

// Bitmap is a decoded image or sound.
type Bitmap struct {
	ID string // SHA-256 of what it is, in hex: of its kind, its size and its pixels or samples

	Width, Height int
	RGB           []byte // Width*Height*3 bytes; nil in a placeholder

	Audio    bool
	Samples  []float32 // mono, at the Media's SampleRate; nil in a placeholder
	NSamples int
}

// Placeholder reports whether b is good for counting tokens only.
func (b *Bitmap) Placeholder() bool { return b.RGB == nil && b.Samples == nil }

// An image's bounds: libmtmd multiplies sides in int32, after scaling them.
const (
	maxSide   = 1 << 16
	maxPixels = 1 << 28
)

// NewImageBitmap returns an image of w by h pixels of three bytes, red, green, blue, row by row. It keeps rgb.
func NewImageBitmap(w, h int, rgb []byte) (*Bitmap, error) {
	b, err := NewImagePlaceholder(w, h)
	if err != nil {
		return nil, err
	}
	if len(rgb) != 3*w*h {
		return nil, fmt.Errorf("image of %dx%d: got %d bytes, want %d", w, h, len(rgb), 3*w*h)
	}
	b.RGB = rgb
	b.ID = contentID("image", w, h, rgb)
	return b, nil
}

// NewImagePlaceholder returns an image whose tokens can be counted and no more.
func NewImagePlaceholder(w, h int) (*Bitmap, error) {
	if w < 1 || h < 1 || w > maxSide || h > maxSide || w*h > maxPixels {
		return nil, fmt.Errorf("image of %dx%d: want sides of 1 to %d and at most %d pixels", w, h, maxSide, maxPixels)
	}
	return &Bitmap{Width: w, Height: h, ID: contentID("image", w, h, nil)}, nil
}

// NewAudioBitmap returns a sound; samples are mono and at the Media's SampleRate. It keeps samples.
func NewAudioBitmap(samples []float32) (*Bitmap, error) {
	// One sample is an assertion in mtmd.cpp.
	if n := len(samples); n < 2 || n > math.MaxInt32/2 {
		return nil, fmt.Errorf("sound: got %d samples, want 2 to %d", n, math.MaxInt32/2)
	}
	for i, x := range samples {
		if !finite(x) {
			return nil, fmt.Errorf("sound: sample %d is %v", i, x)
		}
	}
	data := unsafe.Slice((*byte)(unsafe.Pointer(&samples[0])), 4*len(samples))
	return &Bitmap{Audio: true, Samples: samples, NSamples: len(samples), ID: contentID("audio", len(samples), 1, data)}, nil
}

func contentID(kind string, w, h int, data []byte) string {
	sum := sha256.New()
	head := binary.LittleEndian.AppendUint64([]byte(kind), uint64(w))
	head = binary.LittleEndian.AppendUint64(head, uint64(h))
	_, _ = sum.Write(head) // a hash takes all
	_, _ = sum.Write(data)
	return hex.EncodeToString(sum.Sum(nil))
}

// MediaPart is a part of a prompt: text, or an image or a sound.
type MediaPart struct {
	Text         string
	ParseSpecial bool    // control tokens are recognized in Text
	Media        *Bitmap // if it is set, Text is not used
}

// ChunkKind is what a chunk of a prompt is.
type ChunkKind int

// The kinds of chunks, as enum mtmd_input_chunk_type.
const (
	ChunkText ChunkKind = iota
	ChunkImage
	ChunkAudio
)

// String returns text, image or audio.
func (k ChunkKind) String() string {
	if k < ChunkText || k > ChunkAudio {
		return fmt.Sprintf("ChunkKind(%d)", int(k))
	}
	return []string{"text", "image", "audio"}[k]
}

// MediaChunk is a piece of a tokenized prompt. An image or sound can make several.
type MediaChunk struct {
	Kind    ChunkKind
	Tokens  []Token // of text
	NTokens int     // cells that it takes in a context
	NPos    int     // positions that it takes; fewer than cells for an image under M-RoPE
	ID      string  // Bitmap.ID, empty for text
	Media   int     // its medium's number in the prompt, -1 for text
	Tile    int     // which of its medium's chunks it is
	// NonCausal says that it must fit one physical batch.
	NonCausal bool

	placeholder bool // its medium is one: it cannot be encoded
	native      int  // number in C, -1 for one that Go made
}

// MediaChunks is a tokenized prompt. It holds preprocessed media until Close.
type MediaChunks struct {
	List []MediaChunk
	Work MediaStats // that it took to embed them

	ptr   unsafe.Pointer      // gl_chunks, nil if there is none
	proj  *ProjectorInfo      // that it is for
	embds map[int][][]float32 // by medium: the embeddings of its chunks, once they are computed
}

// MediaSpan is a media chunk on its way into a sequence of a context.
type MediaSpan struct {
	Chunks *MediaChunks
	Chunk  int // number in Chunks.List
	Pos    int // its first position
	Seq    int
	Logits bool // there are some after its last token
}

// NTokens returns the cells that the prompt takes.
func (c *MediaChunks) NTokens() int {
	n := 0
	for i := range c.List {
		n += c.List[i].NTokens
	}
	return n
}

// soundBytes is what the spectrum of half a minute of sound takes, which is what a chunk has: 3000 columns of 128 floats.
const soundBytes = 3000 * 128 * 4

// NBytes returns about how many bytes the scaled images and the spectra of the prompt take until Close, rather too many.
func (c *MediaChunks) NBytes() int64 {
	n := int64(0)
	for i := range c.List {
		switch x := &c.List[i]; {
		case c.proj == nil || x.placeholder:
		case x.Kind == ChunkImage:
			n += 12 * int64(max(c.proj.tile, x.NTokens*c.proj.square)) // three floats a pixel
		case x.Kind == ChunkAudio:
			n += soundBytes
		}
	}
	return n
}

// NPos returns the positions that the prompt takes.
func (c *MediaChunks) NPos() int {
	n := 0
	for i := range c.List {
		n += c.List[i].NPos
	}
	return n
}

// addSpecial puts BOS at the front and EOS at the end, where the vocabulary wants them and they are not there yet.
func (c *MediaChunks) addSpecial(v *Vocab) {
	if v.AddBOS() && !c.endsIn(0, 0, v.BOS()) {
		c.List = withToken(c.List, 0, v.BOS())
	}
	if v.AddEOS() && !c.endsIn(len(c.List)-1, -1, v.EOS()) {
		c.List = withToken(c.List, len(c.List), v.EOS())
	}
}

// endsIn reports whether chunk i is text that begins, with at 0, or ends in t.
func (c *MediaChunks) endsIn(i, at int, t Token) bool {
	if i < 0 || i >= len(c.List) || len(c.List[i].Tokens) == 0 {
		return false
	}
	tokens := c.List[i].Tokens
	return tokens[(at+len(tokens))%len(tokens)] == t
}

// withToken adds a token before all chunks, or after all.
func withToken(list []MediaChunk, at int, t Token) []MediaChunk {
	text := MediaChunk{Kind: ChunkText, Media: -1, native: -1}
	if at == 0 {
		if len(list) > 0 && list[0].Kind == ChunkText {
			text, list = list[0], list[1:]
		}
		text.Tokens = append([]Token{t}, text.Tokens...)
		list = append([]MediaChunk{text}, list...)
	} else {
		if n := len(list); n > 0 && list[n-1].Kind == ChunkText {
			text, list = list[n-1], list[:n-1]
		}
		text.Tokens = append(text.Tokens, t)
		list = append(list, text)
		at = len(list) - 1
	}
	list[at].NTokens, list[at].NPos = len(list[at].Tokens), len(list[at].Tokens)
	return list
}

// group returns the chunks of the medium of chunk i.
func (c *MediaChunks) group(i int) []int {
	var out []int
	for k := range c.List {
		if c.List[k].Media == c.List[i].Media {
			out = append(out, k)
		}
	}
	return out
}

// key names the embeddings of a group of chunks. One picture can be encoded in several ways: deepseek4v pads it by where it
// stands in the prompt, which shows in the number of tokens.
func (c *MediaChunks) key(group []int) string {
	var b strings.Builder
	b.WriteString(c.List[group[0]].ID)
	for _, i := range group {
		fmt.Fprintf(&b, " %d", c.List[i].NTokens)
	}
	return b.String()
}

// NewMediaMarker returns a text that no prompt has, to stand for a medium in a conversation until the template is applied.
func NewMediaMarker() string { return "<__media_" + rand.Text() + "__>" }

// SplitMediaMarkers makes parts of a text in which each marker stands for one of media, in their order. The error says
// how many there are of each if they are not as many.
func SplitMediaMarkers(text, marker string, parseSpecial bool, media []*Bitmap) ([]MediaPart, error) {
	return splitMarkers([]ChatSegment{{Text: text, Literal: !parseSpecial}}, marker, media)
}

// MediaParts makes parts of a rendered conversation, in which marker stands for each of media, in their order.
func (p *ChatPrompt) MediaParts(marker string, media []*Bitmap) ([]MediaPart, error) {
	return splitMarkers(p.Segments, marker, media)
}

func splitMarkers(segments []ChatSegment, marker string, media []*Bitmap) ([]MediaPart, error) {
	if marker == "" {
		return nil, errors.New("the media marker is empty")
	}
	var parts []MediaPart
	n := 0
	for _, s := range segments {
		for i, text := range strings.Split(s.Text, marker) {
			if i > 0 {
				if n < len(media) {
					parts = append(parts, MediaPart{Media: media[n]})
				}
				n++
			}
			if text != "" {
				parts = append(parts, MediaPart{Text: text, ParseSpecial: !s.Literal})
			}
		}
	}
	if n != len(media) {
		return nil, fmt.Errorf("the prompt has %d media markers for %d media", n, len(media))
	}
	return parts, nil
}
