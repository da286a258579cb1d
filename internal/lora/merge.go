package lora

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

const (
	// blockElements is how many values are converted at a time: 1 MiB as float32, which stays in a second-level cache
	// together with what is made of it.
	blockElements = 1 << 18
	// copyBytes is the piece in which a tensor is copied.
	copyBytes = 1 << 20
	// sampleEvery is the share of blocks whose loss by quantization is measured where no report is wanted.
	sampleEvery = 8
)

// block is a piece of the output: some rows of a target, or some bytes of one that is copied.
type block struct {
	t       *target
	loaded  *loading
	first   bool // of its target
	row     int  // first row, counted over all dimensions above the first
	rows    int
	off     int64 // for a copy: bytes
	size    int64
	measure bool

	buf  *buffers
	out  []byte // in buf, or on its own
	err  error
	done chan struct{}
}

// buffers are what a worker needs for a block; they go round with the blocks.
type buffers struct {
	raw  []byte
	x, w []float32
	d    []float64
	out  []uint16
}

// Run merges into w, which must have been made for p.Keys and p.Tensors, and completes it. Workers read, merge and
// convert blocks of rows while the caller's goroutine writes them in order; a few blocks for each thread are in memory
// at a time. progress, if not nil, gets the bytes written so far. When ctx ends, so does Run, with its error; the
// output is dropped on every error.
func (p *Plan) Run(ctx context.Context, w *gguf.Writer, progress func(done uint64)) error {
	defer w.Abort()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	depth := 2*p.opt.Threads + 1
	work, order := make(chan *block), make(chan *block, depth)
	free := make(chan *buffers, depth+1)
	for range depth + 1 {
		free <- &buffers{}
	}
	wg.Go(func() {
		defer close(work)
		defer close(order)
		p.produce(ctx, func(b *block) bool {
			select {
			case order <- b:
			case <-ctx.Done():
				return false
			}
			select {
			case work <- b:
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	for range p.opt.Threads {
		wg.Go(func() { p.makeAll(ctx, work, free) })
	}
	done := uint64(0)
	for b := range order {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.write(b, w); err != nil {
			return err
		}
		done += uint64(len(b.out))
		free <- b.buf
		if progress != nil {
			progress(done)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return &writeError{err}
	}
	return nil
}

// makeAll makes blocks with buffers from free.
func (p *Plan) makeAll(ctx context.Context, work <-chan *block, free <-chan *buffers) {
	for b := range work {
		select {
		case b.buf = <-free:
			b.err = p.make(b, b.buf)
		case <-ctx.Done():
			b.err = ctx.Err()
		}
		close(b.done)
	}
}

func (p *Plan) write(b *block, w *gguf.Writer) error {
	if b.err != nil {
		return fmt.Errorf("tensor %q: %w", b.t.info.Name, b.err)
	}
	if b.first {
		if err := w.Next(b.t.info.Name); err != nil {
			return &writeError{err}
		}
	}
	if _, err := w.Write(b.out); err != nil {
		return &writeError{err}
	}
	return nil
}

// ErrWrite is wrapped by errors of writing the output.
var ErrWrite = errors.New("write")

// writeError is an error of the writer, whose text names the file.
type writeError struct{ err error }

func (e *writeError) Error() string        { return e.err.Error() }
func (e *writeError) Unwrap() error        { return e.err }
func (e *writeError) Is(target error) bool { return target == ErrWrite }

// produce cuts the output into blocks, in order, until send returns false.
func (p *Plan) produce(ctx context.Context, send func(*block) bool) {
	for _, t := range p.targets {
		loaded := &loading{t: t, float64: p.opt.Float64}
		if !p.cut(t, loaded, send) {
			return
		}
	}
}

// cut cuts one target.
func (p *Plan) cut(t *target, loaded *loading, send func(*block) bool) bool {
	if t.copied() {
		size := int64(t.info.Size())
		for off := int64(0); off == 0 || off < size; off += copyBytes {
			b := &block{t: t, first: off == 0, off: off, size: min(copyBytes, size-off), done: make(chan struct{})}
			if !send(b) {
				return false
			}
		}
		return true
	}
	rows, perMatrix := t.rows()
	step := max(1, min(perMatrix, blockElements/t.width()))
	n := 0
	for matrix := 0; matrix < rows; matrix += perMatrix {
		for row := matrix; row < matrix+perMatrix; row += step {
			b := &block{
				t: t, loaded: loaded, first: row == 0, row: row, rows: min(step, matrix+perMatrix-row), done: make(chan struct{}),
				measure: p.opt.Measure || t.info.Type != gguf.TypeF32 && n%sampleEvery == 0,
			}
			n++
			if !send(b) {
				return false
			}
		}
	}
	return true
}

// rows returns the rows of a target and those of each of its matrices.
func (t *target) rows() (rows, perMatrix int) {
	perMatrix = 1
	if len(t.info.Shape) > 1 {
		perMatrix = int(t.info.Shape[1])
	}
	return int(t.info.Elements()) / t.width(), perMatrix
}

// width returns the values of a row.
func (t *target) width() int {
	if len(t.info.Shape) == 0 {
		return 1
	}
	return int(t.info.Shape[0])
}

// make fills b.out, from a worker.
func (p *Plan) make(b *block, buf *buffers) error {
	r := p.base.TensorReader(b.t.src)
	if b.t.copied() {
		buf.raw = grow(buf.raw, int(b.size))
		b.out = buf.raw
		return readFull(r, b.out, b.off)
	}
	n := b.t.width()
	rowSize, _ := b.t.from.RowSize(uint64(n)) // the file was checked
	buf.raw = grow(buf.raw, b.rows*int(rowSize))
	if err := readFull(r, buf.raw, int64(b.row)*int64(rowSize)); err != nil {
		return err
	}
	buf.x = grow(buf.x, b.rows*n)
	if err := toFloats(buf.x, b.t.from, buf.raw); err != nil {
		return err
	}
	if b.measure || b.t.hasWhole() {
		buf.w = append(buf.w[:0], buf.x...)
	}
	if err := b.loaded.add(b, buf); err != nil {
		return err
	}
	if err := p.convert(b, buf); err != nil {
		return err
	}
	if b.measure {
		return b.t.stats.add(b, buf)
	}
	return nil
}

// readFull reads all of p; the file is at least as long, unless it has shrunk.
func readFull(r interface {
	ReadAt([]byte, int64) (int, error)
}, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	return fmt.Errorf("read %d bytes at %d of the tensor: %w", len(p), off, err)
}

// ErrOverflow is wrapped by the error that a merged value does not fit the output type.
var ErrOverflow = errors.New("value out of range")

// convert makes b.out of buf.x.
func (p *Plan) convert(b *block, buf *buffers) error {
	typ, n := b.t.info.Type, b.t.width()
	limit := float32(math.MaxFloat32)
	if typ != gguf.TypeF32 && typ != gguf.TypeBF16 {
		limit = 65504 // of F16, which also holds the scales of blocks
	}
	if m := ggml.MaxAbs(buf.x); !(m <= limit) {
		for i, v := range buf.x {
			if !(float32(math.Abs(float64(v))) <= limit) {
				return fmt.Errorf("%w: %g at row %d, column %d, want a finite one within %g for %s", ErrOverflow, v, b.row+i/n, i%n, limit, typ)
			}
		}
	}
	switch typ {
	case gguf.TypeF32:
		b.out = byteView(buf.x)
	case gguf.TypeF16:
		buf.out = grow(buf.out, len(buf.x))
		ggml.F32ToF16(buf.out, buf.x)
		b.out = byteView(buf.out)
	case gguf.TypeBF16:
		buf.out = grow(buf.out, len(buf.x))
		ggml.F32ToBF16(buf.out, buf.x)
		b.out = byteView(buf.out)
	default:
		var weight []float32
		if b.t.weight != nil {
			_, perMatrix := b.t.rows()
			at := b.row / perMatrix * n
			weight = b.t.weight[at : at+n]
		}
		var err error
		b.out, err = ggml.Quantize(ggml.Type(typ), buf.x, n, weight)
		return err
	}
	return nil
}

// grow returns a slice of n elements, in the memory of s if that has room.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
