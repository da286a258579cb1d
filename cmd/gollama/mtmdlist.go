package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// Files that --dir takes when --glob does not say, and those that it might be expected to take, by extension.
var (
	imageExtensions = []string{".png", ".jpg", ".jpeg", ".jfif", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pnm"}
	soundExtensions = []string{".wav", ".mp3", ".flac"}
	otherExtensions = []string{".heic", ".heif", ".avif", ".svg", ".psd", ".ogg", ".opus", ".m4a", ".aac", ".wma", ".mp4", ".mov", ".mkv", ".webm", ".avi"}
)

// listedFile is a file to answer for.
type listedFile struct {
	id    string // below --dir
	path  string
	mtime time.Time
}

// listDir returns the files of --dir in their order, and how many of each kind that the projector cannot read were left out.
func listDir(m *mediaOptions, proj *engine.ProjectorInfo) (files []listedFile, left map[string]int, err error) {
	left = map[string]int{}
	err = filepath.WalkDir(m.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(m.dir, p)
		if err != nil || rel == "." {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".")
		if d.IsDir() {
			if hidden || !m.recursive {
				return fs.SkipDir
			}
			return nil
		}
		rel = filepath.ToSlash(rel)
		if hidden || !m.wanted(rel, proj, left) {
			return nil
		}
		st, err := os.Stat(p) // what a link leads to
		if err == nil && st.IsDir() {
			return nil
		}
		f := listedFile{id: rel, path: p}
		if err == nil { // else reading it tells
			f.mtime = st.ModTime()
		}
		files = append(files, f)
		return nil
	})
	slices.SortStableFunc(files, func(a, b listedFile) int {
		if m.order == "mtime" {
			if c := a.mtime.Compare(b.mtime); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.id, b.id)
	})
	return files, left, err
}

// wanted reports whether --dir takes a file, by its path below the folder.
func (m *mediaOptions) wanted(rel string, proj *engine.ProjectorInfo, left map[string]int) bool {
	if m.glob != "" {
		name := rel
		if !strings.Contains(m.glob, "/") {
			name = path.Base(rel)
		}
		ok, err := path.Match(m.glob, name)
		return ok && err == nil
	}
	ext := strings.ToLower(path.Ext(rel))
	image, sound := slices.Contains(imageExtensions, ext), slices.Contains(soundExtensions, ext)
	if image && proj.Vision || sound && proj.Audio {
		return true
	}
	if image || sound || slices.Contains(otherExtensions, ext) {
		left[ext]++
	}
	return false
}

// fileRecord returns the record of a file. A name that is not UTF-8, which JSON cannot hold, is written in base64.
func fileRecord(id, path string) ([]byte, error) {
	if utf8.ValidString(path) {
		return pipeline.Marshal(struct {
			ID    string `json:"id"`
			Media string `json:"media"`
		}{id, path})
	}
	return pipeline.Marshal(struct {
		ID   string `json:"id"`
		Path string `json:"path_base64"`
	}{strings.Trim(strconv.Quote(id), `"`), base64.StdEncoding.EncodeToString([]byte(path))})
}

// openRecords opens what names the files, as records; total is how many there are, 0 if it is not known.
func (o *options) openRecords(ctx context.Context, e *env, l *logging) (in io.ReadCloser, name string, total int, err error) {
	m := &o.media
	switch {
	case m.dir != "":
		return o.openDir(l)
	case m.filesFrom != "":
		src, err := pipeline.Open(m.filesFrom)
		if err != nil {
			return nil, "", 0, &inputError{err: err}
		}
		return readNames(ctx, src, m.null), inputName(m.filesFrom), 0, nil
	}
	if in, err = pipeline.Open(o.recordsFile); err != nil {
		return nil, "", 0, &inputError{err: fmt.Errorf("records: %w", err)}
	}
	if st, err := os.Stat(o.recordsFile); err == nil && st.Mode().IsRegular() && !l.quiet {
		if n, err := pipeline.CountLines(o.recordsFile); err == nil {
			total = n
		}
	}
	return in, inputName(o.recordsFile), total, nil
}

// openDir makes records of the files of --dir.
func (o *options) openDir(l *logging) (in io.ReadCloser, name string, total int, err error) {
	proj, err := engine.ReadProjector(o.MMProj)
	if err != nil {
		return nil, "", 0, err
	}
	files, left, err := listDir(&o.media, proj)
	if err != nil {
		return nil, "", 0, &inputError{err: err}
	}
	if n := 0; len(left) > 0 {
		var kinds []string
		for ext, k := range left {
			n += k
			kinds = append(kinds, ext)
		}
		slices.Sort(kinds)
		l.warnf("%d files of kinds that the projector cannot read are left out: %s", n, strings.Join(kinds, " "))
	}
	if len(files) == 0 {
		hint := "--recursive looks in the folders below, --glob takes other names"
		return nil, "", 0, &inputError{err: fmt.Errorf("--dir %s: no file of it matches", o.media.dir), hint: hint}
	}
	var b bytes.Buffer
	for _, f := range files {
		line, err := fileRecord(f.id, f.path)
		if err != nil {
			return nil, "", 0, err
		}
		b.Write(append(line, '\n'))
	}
	return io.NopCloser(&b), o.media.dir, len(files), nil
}

// readNames makes records of names that end with a newline, or with a zero byte. Closing what it returns closes src; a read
// of src that does not return, of a terminal say, is left to the process's end.
func readNames(ctx context.Context, src io.ReadCloser, null bool) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		_ = w.CloseWithError(writeNames(w, src, null)) // always nil
	}()
	return &namesReader{r, src}
}

func writeNames(w io.Writer, src io.Reader, null bool) error {
	sep := byte('\n')
	if null {
		sep = 0
	}
	names := bufio.NewReader(src)
	for {
		name, err := names.ReadString(sep)
		name = strings.TrimSuffix(name, string(sep))
		if !null {
			name = strings.TrimSuffix(name, "\r")
		}
		if name != "" {
			line, err := fileRecord(name, name)
			if err != nil {
				return err
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

type namesReader struct {
	*io.PipeReader
	src io.Closer
}

// Close ends the goroutine behind the reader.
func (r *namesReader) Close() error { return errors.Join(r.PipeReader.Close(), r.src.Close()) }
