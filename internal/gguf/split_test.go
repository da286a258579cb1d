package gguf

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// writeSplit writes the sample in dir and returns the path of the first shard.
func writeSplit(t *testing.T, dir string, limits SplitLimits) string {
	t.Helper()
	kvs, tensors, data := sample(64)
	prefix := filepath.Join(dir, "m")
	w, err := CreateSplit(prefix, kvs, tensors, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, ti := range tensors {
		if err := w.WriteTensor(ti.Name, bytes.NewReader(data[i])); err != nil {
			t.Fatal(err)
		}
	}
	n := len(w.parts)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return SplitPath(prefix, 0, n)
}

func TestSplit(t *testing.T) {
	kvs, tensors, data := sample(64)
	whole := read(t, write(t, kvs, tensors, data))
	for _, tt := range []struct {
		name   string
		limits SplitLimits
		files  string
	}{
		{"in 3", SplitLimits{Tensors: 2}, "m-00001-of-00003.gguf m-00002-of-00003.gguf m-00003-of-00003.gguf"},
		{"by bytes", SplitLimits{Bytes: 288 + 64}, "m-00001-of-00004.gguf m-00002-of-00004.gguf m-00003-of-00004.gguf m-00004-of-00004.gguf"},
		{"both", SplitLimits{Tensors: 4, Bytes: 480}, "m-00001-of-00002.gguf m-00002-of-00002.gguf"},
		{"tiny", SplitLimits{Bytes: 1}, ""},
		{"one", SplitLimits{}, "m-00001-of-00001.gguf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := writeSplit(t, dir, tt.limits)
			if got := folder(t, dir); tt.files != "" && got != tt.files {
				t.Errorf("got files %s, want %s", got, tt.files)
			}
			f, err := OpenModel(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			same(t, f, whole)
			for i, ti := range tensors {
				b, err := f.ReadTensor(i)
				if j, ok := f.Tensor(ti.Name); err != nil || !ok || j != i || !bytes.Equal(b, data[i]) {
					t.Errorf("tensor %q: index %d, %v, %v", ti.Name, j, ok, err)
				}
			}
		})
	}
}

func TestSplitKeys(t *testing.T) {
	dir := t.TempDir()
	path := writeSplit(t, dir, SplitLimits{Tensors: 2})
	for no := range 3 {
		f, err := Open(SplitPath(filepath.Join(dir, "m"), no, 3))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		own := KVs{{KeySplitNo, ValueOf(uint16(no))}, {KeySplitTensors, ValueOf(int32(6))}, {KeySplitCount, ValueOf(uint16(3))}}
		if no == 0 {
			kvs, _, _ := sample(64)
			own = append(kvs, own...)
		}
		sameKVs(t, f.KVs, own)
	}
	// A split of the joined model again, and a split of a split: the same files.
	f, err := OpenModel(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, kvs := range []KVs{f.KVs, first.KVs} {
		again := t.TempDir()
		w, err := CreateSplit(filepath.Join(again, "m"), kvs, f.Tensors, SplitLimits{Tensors: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		if err := rewrite(f, w); err != nil {
			t.Fatal(err)
		}
		for no := range 3 {
			got, err := os.ReadFile(SplitPath(filepath.Join(again, "m"), no, 3))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(f.Paths[no])
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("shard %d differs", no)
			}
		}
	}
}

func TestSplitAbort(t *testing.T) {
	dir := t.TempDir()
	kvs, tensors, data := sample(64)
	w, err := CreateSplit(filepath.Join(dir, "m"), kvs, tensors, SplitLimits{Tensors: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, ti := range tensors[:4] {
		if err := w.WriteTensor(ti.Name, bytes.NewReader(data[i])); err != nil {
			t.Fatal(err)
		}
	}
	mustContain(t, w.Close(), `m-00004-of-00006.gguf: tensor "moe": missing`)
	if got := folder(t, dir); got != "" {
		t.Errorf("the folder has %q, want nothing", got)
	}
}

func TestOpenModelErrors(t *testing.T) {
	single := func(t *testing.T, path string, kvs KVs) {
		if err := os.WriteFile(path, write(t, kvs, nil, nil), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shard := func(no, count uint16) KVs {
		return KVs{{KeySplitNo, ValueOf(no)}, {KeySplitCount, ValueOf(count)}}
	}
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, dir string) (path string)
		want string
	}{
		{"later shard", func(t *testing.T, dir string) string {
			return SplitPath(filepath.Join(dir, "m"), 1, 3)
		}, "m-00002-of-00003.gguf: split.no: got 1 of 3, want the first shard"},
		{"missing", func(t *testing.T, dir string) string {
			if err := os.Remove(SplitPath(filepath.Join(dir, "m"), 2, 3)); err != nil {
				t.Fatal(err)
			}
			return SplitPath(filepath.Join(dir, "m"), 0, 3)
		}, "m-00003-of-00003.gguf: no such file"},
		{"renamed", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "model.gguf")
			if err := os.Rename(SplitPath(filepath.Join(dir, "m"), 0, 3), path); err != nil {
				t.Fatal(err)
			}
			return path
		}, `model.gguf: first shard of 3, want a name that ends in "-00001-of-00003.gguf"`},
		{"wrong number", func(t *testing.T, dir string) string {
			single(t, SplitPath(filepath.Join(dir, "m"), 1, 3), shard(2, 3))
			return SplitPath(filepath.Join(dir, "m"), 0, 3)
		}, "m-00002-of-00003.gguf: split.no: got 2, want 1"},
		{"wrong count", func(t *testing.T, dir string) string {
			single(t, SplitPath(filepath.Join(dir, "m"), 1, 3), shard(1, 4))
			return SplitPath(filepath.Join(dir, "m"), 0, 3)
		}, "m-00002-of-00003.gguf: split.count: got 4, want 3"},
		{"no key", func(t *testing.T, dir string) string {
			single(t, SplitPath(filepath.Join(dir, "m"), 1, 3), nil)
			return SplitPath(filepath.Join(dir, "m"), 0, 3)
		}, "m-00002-of-00003.gguf: split.no: got 0, want 1"},
		{"tensors missing", func(t *testing.T, dir string) string {
			single(t, SplitPath(filepath.Join(dir, "m"), 1, 3), shard(1, 3))
			return SplitPath(filepath.Join(dir, "m"), 0, 3)
		}, "split.tensors.count: got 6, but the 3 shards have 4 tensors"},
		{"tensor twice", func(t *testing.T, dir string) string {
			b := write(t, shard(1, 3), []TensorInfo{{Name: "b.weight"}}, [][]byte{{1, 2, 3, 4}})
			path := SplitPath(filepath.Join(dir, "m"), 1, 3)
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			return SplitPath(filepath.Join(dir, "m"), 0, 3)
		}, `m-00002-of-00003.gguf: tensor "b.weight": also in `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeSplit(t, dir, SplitLimits{Tensors: 2})
			_, err := OpenModel(tt.do(t, dir))
			mustContain(t, err, tt.want)
		})
	}
}
