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
	"math"
	"path/filepath"

	"gollama/internal/pipeline"
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
	fail := func(err error) (*File, error) {
		return nil, &Error{Path: path, Msg: pipeline.Cause(err).Error(), Err: err}
	}
	f, err := pipeline.OpenRegular(path)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = f.Close() }() // only read from
	st, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if err := o.checkBytes(path, st.Size()); err != nil {
		return nil, err
	}
	data := make([]byte, st.Size())
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fail(err)
	}
	return Parse(path, data[:n], o)
}

// checkBytes refuses a file of n bytes that has none or too many.
func (l Limits) checkBytes(path string, n int64) error {
	switch most := l.withDefaults().Bytes; {
	case n == 0:
		return &Error{Path: path, Msg: "it is empty"}
	case n > most:
		return &Error{Path: path, Msg: fmt.Sprintf("it has %d bytes, the limit is %d", n, most)}
	}
	return nil
}

// Parse is Open for bytes that are in memory already, which the File keeps; path is what errors say.
func Parse(path string, data []byte, o Options) (*File, error) {
	o.Limits = o.withDefaults()
	if err := o.checkBytes(path, int64(len(data))); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	f := &File{Path: path, Name: filepath.Base(path), Data: data, SHA256: hex.EncodeToString(sum[:]), Orientation: 1, opt: o}
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
