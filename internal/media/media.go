// Package media opens images and sounds: what a file is, by its bytes and not its name, how large it is before anything
// is decoded, and an image's pixels. It trusts no header: sizes are checked against limits and against the file first.
// Sounds are decoded by the engine; here their headers are read.
package media

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
)

// Kind is what a file is.
type Kind int

// The kinds of files.
const (
	Image Kind = iota
	Audio
)

// String returns image or audio.
func (k Kind) String() string {
	switch k {
	case Image:
		return "image"
	case Audio:
		return "audio"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Limits bound what a file may be. A zero field means its default.
type Limits struct {
	Bytes   int64   // of the file; 1 GiB
	Pixels  int64   // width times height; 1<<27
	Side    int     // of an image, pixels; 65535
	Seconds float64 // of a sound; 7200
}

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = 1 << 30
	}
	if l.Pixels == 0 {
		l.Pixels = 1 << 27
	}
	if l.Side == 0 {
		l.Side = math.MaxUint16
	}
	if l.Seconds == 0 {
		l.Seconds = 7200
	}
	return l
}

// Options say how files are opened.
type Options struct {
	Limits
	NoEXIF bool // leave an image as it lies in the file, whatever its EXIF orientation says
}

// File is an image or a sound whose header has been read.
type File struct {
	Path, Name string // Name is the path's last element
	Kind       Kind
	Format     string // png, jpeg, gif, bmp, webp, tiff or pnm; wav, mp3 or flac
	Data       []byte
	SHA256     string // of Data, hex

	Width, Height int // of an image as it is shown, after its orientation
	Orientation   int // of an image: the EXIF value, 1 to 8; 1 if there is none

	Duration   float64 // of a sound, seconds
	SampleRate int     // of a sound in the file, Hz
	Channels   int     // of a sound in the file

	opt Options
}

// ErrMedia is what every error about a file's content wraps.
var ErrMedia = errors.New("not a usable image or sound")

// Error is an error about a file. Its text is one line that begins with the path.
type Error struct {
	Path string
	Msg  string
	Hint string // what to do, may be empty
	Err  error  // of the system; nil if the content is at fault
}

// Error returns path and message.
func (e *Error) Error() string { return e.Path + ": " + e.Msg }

// Unwrap returns the system's error, or ErrMedia.
func (e *Error) Unwrap() error {
	if e.Err != nil {
		return e.Err
	}
	return ErrMedia
}

// Open reads the file at path, which must be a regular one, and its header. Nothing is decoded. Errors are *Error.
func Open(path string, o Options) (*File, error) {
	fail := func(msg string, err error) (*File, error) { return nil, &Error{Path: path, Msg: msg, Err: err} }
	// Before it is opened: opening a pipe waits for its writer.
	if st, err := os.Stat(path); err != nil {
		return fail(cause(err), err)
	} else if msg := unusable(st, o.withDefaults().Bytes); msg != "" {
		return fail(msg, nil)
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(cause(err), err)
	}
	defer func() { _ = f.Close() }() // only read from
	st, err := f.Stat()
	if err != nil {
		return fail(cause(err), err)
	}
	if msg := unusable(st, o.withDefaults().Bytes); msg != "" {
		return fail(msg, nil)
	}
	data := make([]byte, st.Size())
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fail(cause(err), err)
	}
	return Parse(path, data[:n], o)
}

// unusable says why a file is not read, "" if it is.
func unusable(st fs.FileInfo, most int64) string {
	switch {
	case st.IsDir():
		return "it is a directory"
	case !st.Mode().IsRegular():
		return "it is not a regular file"
	case st.Size() == 0:
		return "it is empty"
	case st.Size() > most:
		return fmt.Sprintf("it has %d bytes, the limit is %d", st.Size(), most)
	}
	return ""
}

// cause returns the reason of err without the path.
func cause(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}

// Parse is Open for bytes that are in memory already, which the File keeps; path is what errors say.
func Parse(path string, data []byte, o Options) (*File, error) {
	o.Limits = o.withDefaults()
	sum := sha256.Sum256(data)
	f := &File{Path: path, Name: filepath.Base(path), Data: data, SHA256: hex.EncodeToString(sum[:]), Orientation: 1, opt: o}
	if int64(len(data)) > o.Bytes {
		return nil, f.errorf("it has %d bytes, the limit is %d", len(data), o.Bytes)
	}
	if len(data) == 0 {
		return nil, f.errorf("it is empty")
	}
	var hint string
	f.Format, f.Kind, hint = sniff(data)
	switch {
	case f.Format == "":
		return nil, &Error{Path: path, Msg: "it is neither an image nor a sound that is known", Hint: readable}
	case hint != "":
		return nil, &Error{Path: path, Msg: "it is " + f.Format + ", which is not read", Hint: hint}
	case f.Kind == Audio:
		return f, f.readSound()
	}
	return f, f.readImage()
}

// readable is the hint that lists what is.
const readable = "images: PNG, JPEG, GIF, BMP, WebP, TIFF, PNM; sound: WAV, MP3, FLAC"

func (f *File) errorf(format string, args ...any) error {
	return &Error{Path: f.Path, Msg: fmt.Sprintf(format, args...)}
}
