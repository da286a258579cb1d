package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

func TestTakeMedia(t *testing.T) {
	png := "iVBORw0KGgo="
	for _, tt := range []struct {
		line string
		refs []mediaRef
		left string // the other fields
		err  string
	}{
		{`{"media":"a, b.png","prompt":"x"}`, []mediaRef{{path: "a, b.png", name: "a, b.png"}}, `{"prompt":"x"}`, ""},
		{`{"images":["a.png","file:///tmp/b%20c.png"],"audio":null}`, []mediaRef{{path: "a.png", name: "a.png"}, {path: "/tmp/b c.png", name: "/tmp/b c.png"}}, `{}`, ""},
		{`{"image":"data:image/png;base64,` + png + `"}`, []mediaRef{{name: "data:image/png;base64", data: []byte("\x89PNG\r\n\x1a\n")}}, `{}`, ""},
		{`{"path_base64":"/2E="}`, []mediaRef{{path: "\xffa", name: "\xffa"}}, `{}`, ""},
		{`{"path_base64":""}`, nil, "", "path_base64: the name is empty"},
		{`{"body":{"image":"a.png","body":{"image":"b.png"}}}`, []mediaRef{{path: "a.png", name: "a.png"}}, `{"body":{"body":{"image":"b.png"}}}`, ""},
		{`{"media":"http://x/y.png"}`, nil, "", "media: http://x/y.png: gollama downloads nothing, give a file or a data: URL"},
		{`{"media":["a",7]}`, nil, "", "media: want a string, got a number"},
		{`{"media":""}`, nil, "", "media: the name is empty"},
		{`{"media":"data:image/png,xx"}`, nil, "", "media: data:image/png,xx: want data:TYPE;base64,DATA"},
		{`{"media":"data:image/png;base64,"}`, nil, "", "media: data:image/png;base64: it holds nothing"},
		{`{"media":"file://host/a"}`, nil, "", "media: file://host/a: want file:///PATH"},
		{`{"media":"a","messages":[]}`, nil, "", "media: there are messages, too: put each into the content of its message"},
		{`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"a.png"}},{"type":"text","text":"q"},{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}]}]}`,
			[]mediaRef{{path: "a.png", name: "a.png"}, {name: "input_audio", data: []byte("RIFF")}},
			`{"messages":[{"content":[{"type":"media_marker","text":"M"},{"type":"text","text":"q"},{"type":"media_marker","text":"M"}],"role":"user"}]}`, ""},
		{`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"a.png"},{"type":"image","image":"b.png"}]},{"role":"assistant","content":"t"}]}`,
			[]mediaRef{{path: "a.png", name: "a.png"}, {path: "b.png", name: "b.png"}},
			`{"messages":[{"content":[{"type":"media_marker","text":"M"},{"type":"media_marker","text":"M"}],"role":"user"},{"content":"t","role":"assistant"}]}`, ""},
		{`{"messages":[{"role":"user","content":[{"type":"media_marker","text":"M"}]}]}`, nil, "", "messages: message 1, part 1: media_marker is the program's own: want image_url, input_audio, image, audio or media"},
		{`{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"a.mp4"}}]}]}`, nil, "", "messages: message 1, part 1: " + noVideo},
		{`{"messages":[{"role":"user","content":[{"type":"picture"}]}]}`, nil, "", `messages: message 1, part 1: unknown type "picture", want one of text, image_url, input_audio, image, audio, media`},
	} {
		rec := pipeline.ParseRecord(1, []byte(tt.line))
		before, err := json.Marshal(rec.Fields)
		if err != nil || rec.Err != nil {
			t.Fatal(err, rec.Err)
		}
		rest, refs, err := takeMedia(rec, "M")
		if after, merr := json.Marshal(rec.Fields); merr != nil || string(after) != string(before) {
			t.Errorf("%s: the record was changed to %s (%v)", tt.line, after, merr)
		}
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%s: error %v, want %s", tt.line, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		left, err := json.Marshal(rest.Fields)
		if !reflect.DeepEqual(refs, tt.refs) || string(left) != tt.left || err != nil {
			t.Errorf("%s:\n refs %q\n want %q\n left %s\n want %s (%v)", tt.line, refs, tt.refs, left, tt.left, err)
		}
	}
}

// FuzzTakeMedia: no line of records ends in a panic, and what is left has no media.
func FuzzTakeMedia(f *testing.F) {
	for _, s := range []string{`{"media":"a"}`, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:x;base64,AA"}}]}]}`,
		`{"messages":[{"content":[{"type":"input_audio","input_audio":{"data":"AA=="}}]}]}`, `{"images":["file:///a",null]}`, `{"body":{"body":{"image":"a"}}}`, `{"path_base64":""}`, `{"messages":null,"path_base64":"/w=="}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		rec := pipeline.ParseRecord(1, line)
		if rec.Err != nil {
			return
		}
		rest, refs, err := takeMedia(rec, "M")
		if err != nil {
			return
		}
		for _, name := range mediaFields {
			if _, ok := rest.Fields[name]; ok {
				t.Errorf("%q: %s is left", line, name)
			}
		}
		for _, r := range refs {
			if (r.path == "") == (r.data == nil) {
				t.Errorf("%q: path %q with %d bytes", line, r.path, len(r.data))
			}
		}
	})
}

func TestMediaMessage(t *testing.T) {
	part := func(s string) engine.ChatPart { return engine.ChatPart{Type: "text", Text: s} }
	m := engine.ChatPart{Type: "media_marker", Text: "M"}
	for _, tt := range []struct {
		text, marker string
		n            int
		want         engine.ChatMessage
		err          bool
	}{
		{"q", "", 0, engine.ChatMessage{Content: "q"}, false},
		{"a <__media__>", "", 2, engine.ChatMessage{Parts: []engine.ChatPart{m, m, part("a <__media__>")}}, false},
		{"a # b #", "#", 2, engine.ChatMessage{Parts: []engine.ChatPart{part("a "), m, part(" b "), m}}, false},
		{"##", "#", 2, engine.ChatMessage{Parts: []engine.ChatPart{m, m}}, false},
		{"a", "#", 1, engine.ChatMessage{}, true},
		{"#", "#", 0, engine.ChatMessage{Content: "#"}, false},
	} {
		got, err := mediaMessage(tt.text, tt.marker, "M", tt.n)
		tt.want.Role = "user"
		if (err != nil) != tt.err || err == nil && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q with %q for %d: %+v (%v), want %+v", tt.text, tt.marker, tt.n, got, err, tt.want)
		}
	}
}

// recordsOf reads all records' ids and media.
func recordsOf(t *testing.T, in io.Reader) (list [][2]string) {
	t.Helper()
	r := pipeline.NewReader(in, "test")
	for {
		rec, err := r.Next(pipeline.Shard{})
		if err == io.EOF {
			return list
		}
		if err != nil || rec.Err != nil {
			t.Fatal(err, rec.Err)
		}
		_, refs, err := takeMedia(rec, "")
		if err != nil || len(refs) != 1 {
			t.Fatalf("%s: %v, %d media", rec.Raw, err, len(refs))
		}
		list = append(list, [2]string{rec.ID, refs[0].path})
	}
}

func TestListDir(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for i, name := range []string{"b.png", "a, 1.JPG", "c.txt", ".hidden.png", "z.heic", "sub/d.wav", "sub/.x/e.png", "new\nline.gif", "odd\xff.png"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Skipf("this file system does not take %q: %v", name, err)
		}
		if err := os.Chtimes(path, old, old.Add(time.Duration(-i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link.png": "b.png", "dirlink.png": "sub", "gone.bmp": "nothing"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		_ = os.Chtimes(filepath.Join(dir, link), old, old)
	}
	both := &engine.ProjectorInfo{Vision: true, Audio: true}
	for _, tt := range []struct {
		m    mediaOptions
		want []string
		left map[string]int
	}{
		{mediaOptions{}, []string{"a, 1.JPG", "b.png", "gone.bmp", "link.png", "new\nline.gif", "odd\xff.png"}, map[string]int{".heic": 1}},
		{mediaOptions{recursive: true}, []string{"a, 1.JPG", "b.png", "gone.bmp", "link.png", "new\nline.gif", "odd\xff.png", "sub/d.wav"}, map[string]int{".heic": 1}},
		{mediaOptions{recursive: true, glob: "*.wav"}, []string{"sub/d.wav"}, map[string]int{}},
		{mediaOptions{recursive: true, glob: "sub/*"}, []string{"sub/d.wav"}, map[string]int{}},
		{mediaOptions{glob: "[bc]*"}, []string{"b.png", "c.txt"}, map[string]int{}},
	} {
		tt.m.dir, tt.m.order = dir, "name"
		files, left, err := listDir(&tt.m, both)
		var got []string
		for _, f := range files {
			got = append(got, f.id)
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) || !reflect.DeepEqual(left, tt.left) {
			t.Errorf("%+v: %q, left out %v, error %v, want %q, %v", tt.m, got, left, err, tt.want, tt.left)
		}
	}
	files, _, err := listDir(&mediaOptions{dir: dir, order: "mtime", glob: "[ab]*"}, both)
	if err != nil || len(files) != 2 || files[0].id != "a, 1.JPG" {
		t.Errorf("by mtime: %v, %v", files, err)
	}
	files, left, err := listDir(&mediaOptions{dir: dir, order: "name", recursive: true}, &engine.ProjectorInfo{Vision: true})
	if err != nil || len(files) != 6 || left[".wav"] != 1 {
		t.Errorf("for a projector of images: %v, left out %v, %v", files, left, err)
	}
	var b strings.Builder
	for _, f := range files {
		line, err := fileRecord(f.id, f.path)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	got := recordsOf(t, strings.NewReader(b.String()))
	want := [][2]string{{`"a, 1.JPG"`, dir + "/a, 1.JPG"}, {`"b.png"`, dir + "/b.png"}, {`"gone.bmp"`, dir + "/gone.bmp"}, {`"link.png"`, dir + "/link.png"},
		{`"new\nline.gif"`, dir + "/new\nline.gif"}, {`"odd\\xff.png"`, dir + "/odd\xff.png"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
}

func TestReadNames(t *testing.T) {
	for _, tt := range []struct {
		text string
		null bool
		want []string
	}{
		{"a.png\r\n\nb, c.png", false, []string{"a.png", "b, c.png"}},
		{"a\nb\x00c\x00", true, []string{"a\nb", "c"}},
		{"", false, nil},
	} {
		r := readNames(context.Background(), io.NopCloser(strings.NewReader(tt.text)), tt.null)
		var got []string
		for _, rec := range recordsOf(t, r) {
			got = append(got, rec[1])
		}
		if !reflect.DeepEqual(got, tt.want) || r.Close() != nil {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	src, w := io.Pipe() // gives nothing
	r := readNames(ctx, src, false)
	cancel(errInterrupted)
	if _, err := r.Read(make([]byte, 1)); err != errInterrupted {
		t.Errorf("after a signal: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("the source is not closed")
	}
}

func TestSidecars(t *testing.T) {
	dir := t.TempDir()
	p := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(p("there.txt"), []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := &sidecars{ext: ".txt", taken: map[string]string{}}
	for _, tt := range []struct{ medium, want, err string }{
		{p("a.png"), p("a.txt"), ""},
		{p("a.png"), p("a.txt"), ""}, // the same image again
		{p("a.jpg"), "", "--sidecar: " + p("a.txt") + " is that of " + p("a.png")},
		{p("x.tar.png"), p("x.tar.txt"), ""},
		{p("noext"), p("noext.txt"), ""},
		{p("self.txt"), "", "--sidecar: " + p("self.txt") + " would be replaced by the text about it"},
		{p("there.png"), "", "--sidecar: " + p("there.txt") + " exists"},
		{"", "", "--sidecar: there is no file that it could be beside"},
	} {
		got, err := s.take([]mediaRef{{path: tt.medium}})
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s: %q, %v, want %q, %s", tt.medium, got, err, tt.want, tt.err)
		}
	}
	s.overwrite = true
	if got, err := s.take([]mediaRef{{path: p("there.png")}}); got != p("there.txt") || err != nil {
		t.Errorf("with --overwrite: %q, %v", got, err)
	}
	if err := writeSidecar(p("there.txt"), "a text\n\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(p("there.txt")); string(b) != "a text\n" || err != nil {
		t.Errorf("the file holds %q (%v)", b, err)
	}
	if err := writeSidecar(filepath.Join(dir, "no", "x.txt"), "t"); exitCode(err) != exitWrite {
		t.Errorf("into a folder that is not there: %v", err)
	}
}

func TestPromptTemplate(t *testing.T) {
	tmpl, err := promptTemplate("{{.Index}} {{.Name}} {{.Stem}} {{.Dir}} {{.Path}}")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := tmpl.Execute(&b, newPromptFields("x/y z.tar.png", 3)); err != nil || b.String() != "3 y z.tar.png y z.tar x x/y z.tar.png" {
		t.Errorf("%q, %v", b.String(), err)
	}
	for text, want := range map[string]string{"{{.Nmae}}": "Nmae", "{{": "unclosed action", "{{.Path | foo}}": `"foo" not defined`} {
		if _, err := promptTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
