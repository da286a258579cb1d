//go:build !cgo

package engine

import "context"

// Media cannot be made without cgo.
type Media struct{}

// NewMedia checks p and its file, and returns ErrNoCgo.
func NewMedia(_ context.Context, _ *Model, p *MediaParams) (*Media, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if _, err := ReadProjector(p.Path); err != nil {
		return nil, err
	}
	return nil, ErrNoCgo
}

// Info returns nothing.
func (md *Media) Info() MediaInfo { return MediaInfo{} }

// MinUBatch returns 0.
func (md *Media) MinUBatch() int { return 0 }

// Stats returns zeros.
func (md *Media) Stats() MediaStats { return MediaStats{} }

// Close does nothing.
func (md *Media) Close() error { return nil }

// Tokenize returns ErrNoCgo.
func (md *Media) Tokenize([]MediaPart, bool) (*MediaChunks, error) { return nil, ErrNoCgo }

// Close does nothing.
func (c *MediaChunks) Close() error { return nil }

// Embed returns ErrNoCgo.
func (md *Media) Embed(context.Context, *Context, *MediaChunks, int) ([]float32, error) {
	return nil, ErrNoCgo
}

// Decode returns ErrNoCgo.
func (md *Media) Decode(context.Context, *Context, *MediaChunks, int, int, int, bool) error {
	return ErrNoCgo
}

// DecodeSpans returns ErrNoCgo.
func (md *Media) DecodeSpans(context.Context, *Context, []MediaSpan) error { return ErrNoCgo }

// DecodeAudio returns ErrNoCgo.
func (md *Media) DecodeAudio([]byte) (*Bitmap, error) { return nil, ErrNoCgo }
