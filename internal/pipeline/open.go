package pipeline

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow bounds what a zstd frame may ask for: what `zstd --ultra -22` writes needs 128 MiB.
const maxZstdWindow = 128 << 20

var (
	gzipMagic = []byte{0x1f, 0x8b, 8} // 8 is deflate, the only method there is
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// Open opens a file to read from its start to its end; "-" is standard input. What begins like a gzip or zstd stream is
// decompressed, whatever its name; several such streams one after the other are one. Errors of reading name the path. The
// memory is bounded by the stream's window (32 KiB for gzip, at most 128 MiB for zstd), not by its length.
//
// Close does not close standard input.
func Open(path string) (io.ReadCloser, error) {
	in := &input{path: path}
	file := os.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		if st, err := f.Stat(); err == nil && st.IsDir() {
			_ = f.Close() // nothing was written
			return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
		}
		file = f
		in.closers = append(in.closers, f.Close)
	}
	r, err := Decompress(file)
	if err != nil {
		_ = in.Close() // nothing was written
		return nil, in.name(err)
	}
	in.r = r
	in.closers = append(in.closers, r.Close)
	return in, nil
}

// OpenRegular opens a file that has a size and can be read anywhere. The error is an *fs.PathError; of a device, pipe or socket
// it wraps ErrNotRegular, before it is opened: opening a pipe waits for its writer.
func OpenRegular(path string) (*os.File, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: path, Err: notRegular(st)}
	}
	return os.Open(path)
}

// Decompress undoes gzip and zstd, known by their first bytes; other data it leaves as it is. Close frees the decoder
// and leaves r open.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 1<<18)
	head, err := br.Peek(len(zstdMagic))
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		return gzip.NewReader(br)
	case bytes.Equal(head, zstdMagic):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(br), nil
}

// OpenAt opens a file to read anywhere in what Open reads. A regular file that is not compressed is read itself; of others a
// copy is made in a file without a name, which is gone when it is closed.
func OpenAt(path string) (*os.File, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		head := make([]byte, len(zstdMagic))
		n, _ := f.ReadAt(head, 0) // what cannot be read shows again below
		st, err := f.Stat()
		if err == nil && st.Mode().IsRegular() && !bytes.HasPrefix(head, gzipMagic) && !bytes.Equal(head[:n], zstdMagic) {
			return f, nil
		}
		_ = f.Close() // nothing was written
	}
	in, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // it was read
	f, err := Scratch("")
	if err != nil {
		return nil, fmt.Errorf("a copy of %s: %w", path, err)
	}
	if f.temp != "" {
		_ = os.Remove(f.temp) // where an open file cannot be removed, the next Scratch does it
	}
	if _, err = io.Copy(f.File, in); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Abort()
		return nil, err
	}
	return f.File, nil
}

// input is an open file and the decoder over it.
type input struct {
	path    string
	r       io.Reader
	closers []func() error // in the order of opening
}

func (in *input) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	return n, in.name(err)
}

func (in *input) Close() error {
	var first error
	for i := len(in.closers) - 1; i >= 0; i-- {
		if err := in.closers[i](); err != nil && first == nil {
			first = in.name(err)
		}
	}
	in.closers = nil
	return first
}

// name adds the path to an error that does not have it. io.EOF stays as it is.
func (in *input) name(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if _, ok := err.(*os.PathError); ok {
		return err
	}
	path := in.path
	if path == "-" {
		path = "standard input"
	}
	return fmt.Errorf("read %s: %w", path, err)
}
