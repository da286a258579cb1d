package gguf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"gollama/internal/pipeline"
)

// bufferSize is what a [Writer] holds back before it writes, and the piece in which it copies a tensor.
const bufferSize = 1 << 20

// ErrClosed is returned by the methods of a [Writer] after Close or Abort.
var ErrClosed = errors.New("gguf: writer is closed")

// Writer writes GGUF files, version 3, little endian, front to back. The data of the tensors comes in the order in
// which they were declared: [Writer.WriteTensor] for each, or [Writer.Next] and any number of [Writer.Write] calls.
// Padding is the Writer's business. After an error every method returns that error again, and what was written to
// disk is gone. A Writer is for one goroutine at a time.
type Writer struct {
	parts   []part
	outs    []*pipeline.File // of the parts begun; none for NewWriter
	dst     io.Writer        // for NewWriter
	bw      *bufio.Writer
	copyBuf []byte
	cur     int    // index in parts
	next    int    // index in the tensors of the part: the one after the open one
	left    uint64 // bytes missing of the open tensor
	written uint64 // bytes of the part
	err     error
}

// part is one file to write.
type part struct {
	path    string
	kvs     KVs
	tensors []TensorInfo // with offsets
	align   uint64
	version uint32
}

// Create begins the file at path with these keys and tensors; the Offset of a tensor is ignored. Everything is
// checked before anything is written. The file comes into being under its name when [Writer.Close] succeeds; until
// then an old one stays as it is. On Linux the data has no name either, where the file system can do that, so that
// not even a killed process leaves a temporary file.
func Create(path string, kvs KVs, tensors []TensorInfo) (*Writer, error) {
	p, err := newPart(path, kvs, tensors)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return begin(&Writer{parts: []part{p}})
}

// NewWriter writes one file to w, which may be a pipe; w is not closed. Otherwise it is as [Create].
func NewWriter(w io.Writer, kvs KVs, tensors []TensorInfo) (*Writer, error) {
	p, err := newPart("", kvs, tensors)
	if err != nil {
		return nil, err
	}
	return begin(&Writer{parts: []part{p}, dst: w})
}

// WriteTo writes all of f to w as one file, with the version of f: version 2 differs from 3 in its number only. A
// file that is little endian and has its tensors in order and without gaps comes out byte for byte. Of a big-endian
// file, some types are an error, as in [File.ReadTensor]. n is the number of bytes written.
func (f *File) WriteTo(w io.Writer) (n int64, err error) {
	p, err := newPart("", f.KVs, f.Tensors)
	if err != nil {
		return 0, err
	}
	p.version = f.Version
	counted := &counter{w: w}
	out, err := begin(&Writer{parts: []part{p}, dst: counted})
	if err != nil {
		return counted.n, err
	}
	for i, t := range f.Tensors {
		var r io.Reader = f.TensorReader(i)
		if f.shardOf(i).order == binary.BigEndian {
			b, err := f.ReadTensor(i)
			if err != nil {
				return counted.n, out.fail(err)
			}
			r = bytes.NewReader(b)
		}
		if err := out.WriteTensor(t.Name, r); err != nil {
			return counted.n, err
		}
	}
	err = out.Close()
	return counted.n, err
}

// counter counts the bytes that w took.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func begin(w *Writer) (*Writer, error) {
	w.bw = bufio.NewWriterSize(nil, bufferSize)
	if err := w.beginPart(); err != nil {
		return nil, w.fail(err)
	}
	return w, nil
}

// newPart checks what the header is made of and lays out the tensors.
func newPart(path string, kvs KVs, tensors []TensorInfo) (part, error) {
	p := part{path: path, kvs: slices.Clone(kvs), tensors: slices.Clone(tensors), align: defaultAlignment, version: writeVersion}
	if len(kvs) > maxKVs {
		return p, fmt.Errorf("got %d keys, want at most %d", len(kvs), maxKVs)
	}
	if len(tensors) > maxTensors {
		return p, fmt.Errorf("got %d tensors, want at most %d", len(tensors), maxTensors)
	}
	seen := make(map[string]struct{}, len(kvs))
	for i, kv := range kvs {
		if kv.Key == "" || len(kv.Key) > maxKey {
			return p, fmt.Errorf("key %d: got a name of %d bytes, want 1 to %d", i, len(kv.Key), maxKey)
		}
		if _, dup := seen[kv.Key]; dup {
			return p, fmt.Errorf("key %q: given twice", kv.Key)
		}
		seen[kv.Key] = struct{}{}
		if err := kv.Value.check(); err != nil {
			return p, fmt.Errorf("key %q: %w", kv.Key, err)
		}
		if kv.Key == KeyAlignment {
			a, err := alignment(kv.Value)
			if err != nil {
				return p, fmt.Errorf("key %q: %w", kv.Key, err)
			}
			p.align = uint64(a)
		}
	}
	return p, p.layOut()
}

// layOut checks the tensors and sets their offsets.
func (p *part) layOut() error {
	seen := make(map[string]struct{}, len(p.tensors))
	end := uint64(0)
	for i := range p.tensors {
		t := &p.tensors[i]
		if bad := t.check(); bad != nil {
			return fmt.Errorf("tensor %q: %s: %s", t.Name, bad.field, bad.msg)
		}
		if _, dup := seen[t.Name]; dup {
			return fmt.Errorf("tensor %q: given twice", t.Name)
		}
		seen[t.Name] = struct{}{}
		t.Shape = slices.Clone(t.Shape)
		t.Offset = end
		padded, ok := pad(t.Size(), p.align)
		if end += padded; !ok || end < padded {
			return fmt.Errorf("tensor %q: the data of all tensors does not fit in 64 bits", t.Name)
		}
	}
	return nil
}

// beginPart opens the output of the current part and writes its header.
func (w *Writer) beginPart() error {
	p := &w.parts[w.cur]
	dst := w.dst
	if dst == nil {
		out, err := pipeline.CreateAtomic(p.path)
		if err != nil {
			return err
		}
		w.outs = append(w.outs, out)
		dst = out
	}
	w.bw.Reset(dst)
	w.next, w.written = 0, 0
	b := append(make([]byte, 0, 4096), magic...)
	b = binary.LittleEndian.AppendUint32(b, p.version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.kvs)))
	for _, kv := range p.kvs {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(kv.Key)))
		b = append(b, kv.Key...)
		b = binary.LittleEndian.AppendUint32(b, uint32(kv.Value.kind))
		if err := errors.Join(w.put(appendPrefix(b, kv.Value)), w.put(kv.Value.raw)); err != nil {
			return err
		}
		b = b[:0]
	}
	for _, t := range p.tensors {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(t.Name)))
		b = append(b, t.Name...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for _, ne := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, ne)
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, t.Offset)
		if err := w.put(b); err != nil {
			return err
		}
		b = b[:0]
	}
	if err := w.put(b); err != nil {
		return err
	}
	if len(p.tensors) == 0 {
		return nil // nothing to align: gguf-py, which wrote upstream's vocabularies, ends the file here
	}
	return w.pad()
}

func (w *Writer) put(b []byte) error {
	n, err := w.bw.Write(b)
	w.written += uint64(n)
	return err
}

var zeros [4096]byte

func (w *Writer) pad() error {
	end, _ := pad(w.written, w.parts[w.cur].align)
	for w.written < end {
		if err := w.put(zeros[:min(uint64(len(zeros)), end-w.written)]); err != nil {
			return err
		}
	}
	return nil
}

// Next begins the data of the next tensor, which must be the one called name; [Writer.Write] then takes its bytes.
func (w *Writer) Next(name string) error {
	if w.err != nil {
		return w.err
	}
	if err := w.endTensor(); err != nil {
		return w.fail(err)
	}
	if w.next == len(w.parts[w.cur].tensors) && w.cur+1 < len(w.parts) {
		if err := w.bw.Flush(); err != nil {
			return w.fail(err)
		}
		w.cur++
		if err := w.beginPart(); err != nil {
			return w.fail(err)
		}
	}
	tensors := w.parts[w.cur].tensors
	if w.next == len(tensors) {
		return w.fail(fmt.Errorf("tensor %q: all declared tensors are written", name))
	}
	t := tensors[w.next]
	if t.Name != name {
		return w.fail(fmt.Errorf("tensor %q: want %q next", name, t.Name))
	}
	w.next++
	w.left = t.Size()
	return nil
}

// endTensor checks that the open tensor, if any, is complete and pads it.
func (w *Writer) endTensor() error {
	if w.next == 0 {
		return nil
	}
	if t := w.parts[w.cur].tensors[w.next-1]; w.left != 0 {
		return fmt.Errorf("tensor %q: got %d bytes, want %d", t.Name, t.Size()-w.left, t.Size())
	}
	return w.pad()
}

// Write adds p to the data of the tensor begun by [Writer.Next]. More bytes than it has are an error.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if uint64(len(p)) > w.left {
		if w.next == 0 {
			return 0, w.fail(errors.New("data before the first tensor was begun"))
		}
		t := w.parts[w.cur].tensors[w.next-1]
		return 0, w.fail(fmt.Errorf("tensor %q: got %d bytes or more, want %d", t.Name, t.Size()-w.left+uint64(len(p)), t.Size()))
	}
	before := w.written
	err := w.put(p)
	n := w.written - before
	w.left -= n
	return int(n), w.fail(err)
}

// WriteTensor writes the whole data of the next tensor, which must be the one called name. r must end after exactly
// its size.
func (w *Writer) WriteTensor(name string, r io.Reader) error {
	if err := w.Next(name); err != nil {
		return err
	}
	if w.copyBuf == nil {
		w.copyBuf = make([]byte, bufferSize)
	}
	for {
		n, err := r.Read(w.copyBuf)
		if n > 0 {
			if _, err := w.Write(w.copyBuf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return w.fail(fmt.Errorf("tensor %q: %w", name, err))
		}
	}
	if w.left != 0 {
		return w.fail(w.endTensor())
	}
	return nil
}

// Close completes the file or files: they are on disk under their names when it returns nil. An error, also that a
// tensor is missing, leaves none of them, unless several shards were written and renaming one of them failed: then the first is absent.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if err := w.endTensor(); err != nil {
		return w.fail(err)
	}
	if p := w.parts[w.cur]; w.next < len(p.tensors) {
		return w.fail(fmt.Errorf("tensor %q: missing", p.tensors[w.next].Name))
	}
	if w.cur+1 < len(w.parts) {
		return w.fail(fmt.Errorf("tensor %q: missing", w.parts[w.cur+1].tensors[0].Name))
	}
	if err := w.bw.Flush(); err != nil {
		return w.fail(err)
	}
	if len(w.outs) > 0 { // none to an io.Writer
		if err := pipeline.CommitAll(w.outs[0], w.outs[1:]...); err != nil {
			return w.fail(err)
		}
	}
	w.err = ErrClosed
	return nil
}

// Abort drops what was written. It may be called at any time, also after Close, where it does nothing: defer it.
func (w *Writer) Abort() {
	if w != nil && w.err == nil {
		_ = w.fail(ErrClosed)
	}
}

// fail drops the output on the first error and returns it.
func (w *Writer) fail(err error) error {
	if err == nil {
		return nil
	}
	if w.dst == nil && err != ErrClosed {
		err = fmt.Errorf("%s: %w", w.parts[w.cur].path, err)
	}
	w.err = err
	for _, out := range w.outs {
		out.Abort()
	}
	return err
}
