package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"gollama/internal/pipeline"
)

// File is what [Open], [OpenModel] and [Read] found. Its methods may be called from several goroutines at once,
// except Close.
type File struct {
	Version    uint32           // 2 or 3
	ByteOrder  binary.ByteOrder // of the file; values are decoded, tensor data is not
	Alignment  uint32           // bytes, a power of two
	KVs                         // in file order
	Tensors    []TensorInfo     // in file order
	DataOffset int64            // bytes from the start of the file to the first tensor
	Paths      []string         // the files that make up the model, first shard first; none after Read

	shards []shard
	holder []int32 // of each tensor: its index in shards; nil if there is one shard
	byName map[string]int
}

// shard is one file with tensor data.
type shard struct {
	r          io.ReaderAt
	closer     io.Closer
	dataOffset int64
	order      binary.ByteOrder
}

// Open reads keys and tensor descriptions of the file at path, which stays open until [File.Close]. One shard of a
// split model is opened as the file it is; see [OpenModel]. The data of tensors is read with pread when it is asked
// for and not mapped: who reads it needs each byte once, and where a file shrinks while it is mapped, the process ends
// by SIGBUS and not with an error. Errors name the path; they wrap a [FormatError] where the
// file breaks the format.
func Open(path string) (*File, error) {
	f, err := pipeline.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	file, err := openFile(f)
	if err != nil {
		_ = f.Close() // only read from
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file.Paths = []string{path}
	return file, nil
}

func openFile(f *os.File) (*File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file, err := Read(f, st.Size())
	if err != nil {
		return nil, err
	}
	file.shards[0].closer = f
	return file, nil
}

// Read reads keys and tensor descriptions from r, which holds size bytes. r is used by the File as long as that is in
// use, and is not closed. What breaks the format is a [FormatError]; errors of r are returned as they are, wrapped.
func Read(r io.ReaderAt, size int64) (*File, error) {
	if size < 0 {
		return nil, fmt.Errorf("gguf: size %d", size)
	}
	c := &cursor{r: r, size: size}
	f := &File{Alignment: defaultAlignment}
	nTensors, nKV, err := f.readCounts(c)
	if err != nil {
		return nil, err
	}
	if err := f.readKVs(c, nKV); err != nil {
		return nil, err
	}
	offsets, err := f.readTensors(c, nTensors)
	if err != nil {
		return nil, err
	}
	if err := f.place(c, offsets); err != nil {
		return nil, err
	}
	f.shards = []shard{{r: r, dataOffset: f.DataOffset, order: f.ByteOrder}}
	return f, nil
}

// readCounts reads everything before the first key.
func (f *File) readCounts(c *cursor) (nTensors, nKV uint64, err error) {
	b, err := c.peek(len(magic), "magic")
	if err != nil {
		return 0, 0, err
	}
	if string(b[:len(magic)]) != magic {
		return 0, 0, c.fail(0, "magic", "got %q, want %q: it is no GGUF file", b[:len(magic)], magic)
	}
	c.pos += int64(len(magic))
	version, err := c.u32("version")
	if err != nil {
		return 0, 0, err
	}
	f.ByteOrder = binary.LittleEndian
	if version&0xffff == 0 { // upstream's test for the other byte order
		c.pos -= 4
		c.big = true
		f.ByteOrder = binary.BigEndian
		if version, err = c.u32("version"); err != nil {
			return 0, 0, err
		}
	}
	if version != 2 && version != 3 {
		return 0, 0, c.fail(4, "version", "got %d, want 2 or 3", version)
	}
	f.Version = version
	if nTensors, err = c.count("tensor count", minTensorSize, maxTensors); err != nil {
		return 0, 0, err
	}
	nKV, err = c.count("key count", minKVSize, maxKVs)
	return nTensors, nKV, err
}

func (f *File) readKVs(c *cursor, n uint64) error {
	f.KVs = make(KVs, 0, n)
	seen := make(map[string]struct{}, n)
	c.item = "key"
	for c.idx = range int(n) {
		c.name = ""
		at := c.pos
		b, err := c.str("name", maxKey)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return c.fail(at, "name", "got an empty name")
		}
		c.name = string(b)
		if _, dup := seen[c.name]; dup {
			return c.fail(at, "name", "it is there twice")
		}
		seen[c.name] = struct{}{}
		at = c.pos
		v, err := c.value()
		if err != nil {
			return err
		}
		if c.name == KeyAlignment {
			if f.Alignment, err = alignment(v); err != nil {
				return c.fail(at+4, "value", "%v", err) // after the kind
			}
		}
		f.KVs = append(f.KVs, KV{c.name, v})
	}
	c.item, c.name = "", ""
	return nil
}

// alignment returns the alignment that v, the value of KeyAlignment, asks for.
func alignment(v Value) (uint32, error) {
	a, ok := As[uint32](v)
	if !ok {
		return 0, fmt.Errorf("got kind %s, want %s", v.kind, KindUint32)
	}
	if a == 0 || a&(a-1) != 0 {
		return 0, fmt.Errorf("got %d, want a power of two", a)
	}
	return a, nil
}

// readTensors reads the descriptions. offsets are where in the file each Offset stands, for errors.
func (f *File) readTensors(c *cursor, n uint64) (offsets []int64, err error) {
	f.Tensors = make([]TensorInfo, 0, n)
	f.byName = make(map[string]int, n)
	offsets = make([]int64, 0, n)
	c.item = "tensor"
	for c.idx = range int(n) {
		c.name = ""
		t, fields, err := c.tensor()
		if err != nil {
			return nil, err
		}
		if bad := t.check(); bad != nil {
			return nil, c.fail(fields.of(bad), bad.field, "%s", bad.msg)
		}
		if _, dup := f.byName[t.Name]; dup {
			return nil, c.fail(fields.name, "name", "it is there twice")
		}
		f.byName[t.Name] = c.idx
		if t.Offset%uint64(f.Alignment) != 0 {
			return nil, c.fail(fields.offset, "offset", "got %d, want a multiple of the alignment %d", t.Offset, f.Alignment)
		}
		f.Tensors = append(f.Tensors, t)
		offsets = append(offsets, fields.offset)
	}
	c.item, c.name = "", ""
	return offsets, nil
}

// place finds the start of the data and checks that each tensor lies in the file and on no other.
func (f *File) place(c *cursor, offsets []int64) error {
	f.DataOffset = c.pos
	if len(f.Tensors) == 0 {
		return nil
	}
	start, _ := pad(uint64(c.pos), uint64(f.Alignment)) // a file's size and 2^31 do not overflow
	if start > uint64(c.size) {
		return c.fail(c.pos, "data", "starts at %d by the alignment %d, want at most the file's size %d", start, f.Alignment, c.size)
	}
	f.DataOffset = int64(start)
	room := uint64(c.size) - start
	byOffset, sizes := make([]int32, len(f.Tensors)), make([]uint64, len(f.Tensors))
	for i, t := range f.Tensors {
		byOffset[i], sizes[i] = int32(i), t.Size()
		if size := sizes[i]; t.Offset > room || size > room-t.Offset {
			c.item, c.name = "tensor", t.Name
			return c.fail(offsets[i], "offset", "got %d with %d bytes of data, want an end at %d at most: the file has %d bytes", t.Offset, size, room, c.size)
		}
	}
	slices.SortStableFunc(byOffset, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.Tensors[a].Offset, f.Tensors[b].Offset), cmp.Compare(sizes[a], sizes[b]))
	})
	for i, b := range byOffset[1:] {
		prev, t := f.Tensors[byOffset[i]], f.Tensors[b]
		if end := prev.Offset + sizes[byOffset[i]]; end > t.Offset {
			c.item, c.name = "tensor", t.Name
			return c.fail(offsets[b], "offset", "got %d, but tensor %q has the bytes %d to %d", t.Offset, prev.Name, prev.Offset, end)
		}
	}
	return nil
}

// Tensor returns the index in Tensors of the tensor called name.
func (f *File) Tensor(name string) (i int, ok bool) {
	i, ok = f.byName[name]
	return i, ok
}

// TensorReader returns a reader over the data of tensor i, without padding, in the byte order of the file. It panics
// if there is no tensor i.
func (f *File) TensorReader(i int) *io.SectionReader {
	s, t := f.shardOf(i), f.Tensors[i]
	return io.NewSectionReader(s.r, s.dataOffset+int64(t.Offset), int64(t.Size()))
}

// ReadTensor returns the data of tensor i, little endian whatever the file's order. Of a big-endian file, a type of
// blocks whose byte order is not settled is an error. It panics if there is no tensor i.
func (f *File) ReadTensor(i int) ([]byte, error) {
	t, s := f.Tensors[i], f.shardOf(i)
	b := make([]byte, t.Size())
	if err := readAt(s.r, b, s.dataOffset+int64(t.Offset)); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if s.order == binary.BigEndian {
		if err := turn(b, t.Type); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return b, nil
}

func (f *File) shardOf(i int) *shard {
	if f.holder == nil {
		return &f.shards[0]
	}
	return &f.shards[f.holder[i]]
}

// Close closes what [Open] or [OpenModel] opened. It may be called twice and on nil. Tensor data cannot be read
// afterwards; everything else stays usable.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	var errs []error
	for i := range f.shards {
		if c := f.shards[i].closer; c != nil {
			errs = append(errs, c.Close())
			f.shards[i].closer = nil
		}
	}
	return errors.Join(errs...)
}
