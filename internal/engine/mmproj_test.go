//go:build cgo

package engine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// tensorData is a tensor and what it holds.
type tensorData struct {
	info gguf.TensorInfo
	data []byte
}

// readAll reads a projector of the fixtures.
func readAll(t testing.TB, name string) (gguf.KVs, []tensorData) {
	t.Helper()
	f, err := gguf.Open(projectorFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out []tensorData
	for i, info := range f.Tensors {
		data, err := f.ReadTensor(i)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tensorData{info, data})
	}
	return slices.Clone(f.KVs), out
}

// write makes a file of keys and tensors, whose data is cut or repeated to their shapes.
func write(t testing.TB, path string, kvs gguf.KVs, tensors []tensorData) {
	t.Helper()
	var b bytes.Buffer
	infos := make([]gguf.TensorInfo, len(tensors))
	for i, x := range tensors {
		infos[i] = x.info
	}
	w, err := gguf.NewWriter(&b, kvs, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		data := bytes.Repeat(x.data, int(x.info.Size())/len(x.data)+1)[:x.info.Size()]
		if err := w.WriteTensor(x.info.Name, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// use loads a projector and encodes a picture or a sound with it.
func use(t *testing.T, m *Model, path string) error {
	p := DefaultMediaParams()
	p.Path, p.NThreads = path, 1
	md, err := NewMedia(t.Context(), m, &p)
	if err != nil {
		return err
	}
	defer func() { _ = md.Close() }()
	b, err := NewImageBitmap(40, 30, make([]byte, 3*40*30))
	if !md.info.Vision {
		b, err = NewAudioBitmap(make([]float32, 8000))
	}
	if err != nil {
		return err
	}
	c, err := md.Tokenize(look(b), true)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	i := slices.IndexFunc(c.List, func(x MediaChunk) bool { return x.Kind != ChunkText })
	_, err = md.Embed(t.Context(), nil, c, i)
	return err
}

// TestProjectorDamaged alters each projector of the fixtures in many ways. What matters is that the process lives; a
// file that cannot be used is an error that names it.
func TestProjectorDamaged(t *testing.T) {
	m := openMedia(t, "mmproj-mlp", nil).m
	path := filepath.Join(t.TempDir(), "x.gguf")
	tried, refused := 0, 0
	try := func(what string, mustFail bool) {
		t.Helper()
		tried++
		err := use(t, m, path)
		if err != nil {
			refused++
		}
		switch {
		case err == nil && mustFail:
			t.Errorf("%s: it is taken", what)
		case err != nil && (strings.Contains(err.Error(), "\n") || !errors.Is(err, ErrModel) && !errors.Is(err, ErrMedia)):
			t.Errorf("%s: got %q", what, err)
		case errors.Is(err, ErrModel) && !strings.HasPrefix(err.Error(), path+": "):
			t.Errorf("%s: %q does not name the file", what, err)
		}
	}
	for _, name := range []string{"nano-vision-mlp", "mmproj-gemma3", "mmproj-gemma4ua"} {
		whole, err := os.ReadFile(projectorFile(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for cut := 0; cut < len(whole); cut += max(1024, len(whole)/30) {
			if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			try(name+" cut", true)
		}
		kvs, tensors := readAll(t, name)
		for i, x := range tensors {
			write(t, path, kvs, slices.Delete(slices.Clone(tensors), i, i+1))
			try(name+" without "+x.info.Name, !strings.HasSuffix(x.info.Name, ".bias") && !strings.Contains(x.info.Name, "ln") && !strings.HasPrefix(x.info.Name, "mm.a."))
			for dim := range x.info.Shape {
				for _, n := range []uint64{1, x.info.Shape[dim] * 2, x.info.Shape[dim] + 1} {
					y := x
					y.info.Shape = slices.Clone(x.info.Shape)
					y.info.Shape[dim] = n
					list := slices.Clone(tensors)
					list[i] = y
					write(t, path, kvs, list)
					try(name+" shape of "+x.info.Name, false)
				}
			}
		}
		for _, kv := range kvs {
			write(t, path, kvs.Without(kv.Key), tensors)
			try(name+" without "+kv.Key, false)
			if kv.Value.Kind() != gguf.KindUint32 {
				continue
			}
			for _, n := range []uint32{0, 1, 3, 1000, 1 << 31, 1<<32 - 1} {
				write(t, path, kvs.With(kv.Key, gguf.ValueOf(n)), tensors)
				try(name+" "+kv.Key, false)
			}
			write(t, path, kvs.With(kv.Key, gguf.ValueOf("x")), tensors)
			try(name+" kind of "+kv.Key, true)
		}
		for typ := range projectors {
			write(t, path, kvs.With("clip.projector_type", gguf.ValueOf(typ)), tensors)
			try(name+" as "+typ, false)
		}
	}
	t.Logf("%d files, %d refused", tried, refused)
}

func TestProjectorWidth(t *testing.T) {
	m := openMedia(t, "mmproj-mlp", nil).m
	kvs, tensors := readAll(t, "mmproj-mlp")
	for i := range tensors {
		if strings.HasPrefix(tensors[i].info.Name, "mm.2.") {
			tensors[i].info.Shape = slices.Clone(tensors[i].info.Shape)
			tensors[i].info.Shape[len(tensors[i].info.Shape)-1] = 128
		}
	}
	path := filepath.Join(t.TempDir(), "wide.gguf")
	write(t, path, kvs, tensors)
	want := path + ": it is for a model with embeddings of 128, and those of " + m.info.Path + " have 64"
	if err := use(t, m, path); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReadProjector(t *testing.T) {
	for name, want := range map[string]ProjectorInfo{
		"mmproj-both":     {Vision: true, Audio: true, VisionType: "gemma4uv", AudioType: "gemma4ua"},
		"mmproj-mlp":      {Vision: true, VisionType: "mlp"},
		"mmproj-qwen2a":   {Audio: true, AudioType: "qwen2a"},
		"mmproj-qwen2vl":  {Vision: true, VisionType: "qwen2vl_merger"},
		"mmproj-internvl": {Vision: true, VisionType: "internvl"},
	} {
		p, err := ReadProjector(projectorFile(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if p.Vision != want.Vision || p.Audio != want.Audio || p.VisionType != want.VisionType || p.AudioType != want.AudioType || p.NEmbd != 64 {
			t.Errorf("%s: got %+v, want %+v", name, *p, want)
		}
	}
}

// TestSmartSize has sizes of the pinned mtmd_image_preprocessor_dyn_size: test-1.jpeg for gemma4uv (540 tokens) and for
// qwen2vl (23 x 17).
func TestSmartSize(t *testing.T) {
	for _, tt := range []struct{ w, h, align, lo, hi, width, height int }{
		{640, 488, 24, 70, 1120, 648, 480}, {640, 488, 28, 8, 4096, 644, 476},
	} {
		if w, h := smartSize(tt.w, tt.h, tt.align, tt.lo, tt.hi); w != tt.width || h != tt.height {
			t.Errorf("%+v: got %dx%d", tt, w, h)
		}
	}
}

func FuzzReadProjector(f *testing.F) {
	for _, name := range []string{"nano-vision-mlp", "mmproj-gemma4ua"} {
		if data, err := os.ReadFile(filepath.Join(mtmdFixtures, "models", name+".gguf")); err == nil {
			f.Add(data[:min(len(data), 2000)])
		}
	}
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		p := &ProjectorInfo{}
		if msg := checkProjector(file, p); msg == "" && p.NEmbd < 1 {
			t.Errorf("taken with embeddings of %d", p.NEmbd)
		}
	})
}
