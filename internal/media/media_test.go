package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
)

const fixtures = "../../../shared/fixtures/mtmd/media"

// pattern is an image in which no two pixels near each other are alike.
func pattern(w, h int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetNRGBA(x, y, color.NRGBA{uint8(10 * x), uint8(20 * y), uint8(x * y), 255})
		}
	}
	return img
}

func encoded(t testing.TB, format string, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "jpeg":
		err = jpeg.Encode(&b, img, &jpeg.Options{Quality: 100})
	case "bmp":
		err = bmp.Encode(&b, img)
	case "tiff":
		err = tiff.Encode(&b, img, nil)
	case "gif":
		err = gif.Encode(&b, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ppm is the same picture without compression.
func ppm(img *image.NRGBA) []byte {
	r := img.Bounds()
	b := []byte("P6\n# a comment\n" + itoa(r.Dx()) + " " + itoa(r.Dy()) + "\n255\n")
	for i := 0; i < len(img.Pix); i += 4 {
		b = append(b, img.Pix[i:i+3]...)
	}
	return b
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func pixels(t testing.TB, data []byte, o Options) (*File, *Picture) {
	t.Helper()
	f, err := Parse("x", data, o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Pixels()
	if err != nil {
		t.Fatal(err)
	}
	return f, p
}

func TestFormats(t *testing.T) {
	img := pattern(13, 7)
	_, want := pixels(t, ppm(img), Options{})
	if len(want.RGB) != 3*13*7 || !bytes.Equal(want.RGB[3*(13*2+5):][:3], []byte{50, 40, 10}) {
		t.Fatalf("got pixel %v, want 50 40 10", want.RGB[3*(13*2+5):][:3])
	}
	for _, format := range []string{"png", "bmp", "tiff"} {
		f, p := pixels(t, encoded(t, format, img), Options{})
		if f.Format != format || !bytes.Equal(p.RGB, want.RGB) {
			t.Errorf("%s: read as %s, the pixels differ: %v", format, f.Format, !bytes.Equal(p.RGB, want.RGB))
		}
	}
	// Quality 100 is not lossless: 4:2:0 blurs the color. 60 is what this pattern's steps lose at most.
	_, p := pixels(t, encoded(t, "jpeg", img), Options{})
	for i := range p.RGB {
		if d := int(p.RGB[i]) - int(want.RGB[i]); d > 60 || d < -60 {
			t.Fatalf("jpeg: byte %d: got %d, want about %d", i, p.RGB[i], want.RGB[i])
		}
	}
}

// TestAlpha: a transparent pixel has the color that the file gives it.
func TestAlpha(t *testing.T) {
	img := pattern(4, 4)
	img.SetNRGBA(1, 1, color.NRGBA{200, 100, 50, 0})
	img.SetNRGBA(2, 1, color.NRGBA{201, 101, 51, 77})
	_, p := pixels(t, encoded(t, "png", img), Options{})
	if got := p.RGB[3*5 : 3*7]; !bytes.Equal(got, []byte{200, 100, 50, 201, 101, 51}) {
		t.Errorf("got %v", got)
	}
	pal := image.NewPaletted(image.Rect(0, 0, 2, 1), color.Palette{color.NRGBA{9, 8, 7, 0}, color.NRGBA{1, 2, 3, 255}})
	pal.Pix[1] = 1
	if _, p := pixels(t, encoded(t, "png", pal), Options{}); !bytes.Equal(p.RGB, []byte{9, 8, 7, 1, 2, 3}) {
		t.Errorf("palette: got %v", p.RGB)
	}
	deep := image.NewNRGBA64(image.Rect(0, 0, 1, 1))
	deep.SetNRGBA64(0, 0, color.NRGBA64{0x12ff, 0x34ff, 0x56ff, 0x8000})
	if _, p := pixels(t, encoded(t, "png", deep), Options{}); p.RGB[0] != 0x12 || p.RGB[1] != 0x34 || p.RGB[2] != 0x56 {
		t.Errorf("16 bits: got %x, want 123456", p.RGB)
	}
}

func TestGIFFirstFrame(t *testing.T) {
	pal := color.Palette{color.NRGBA{255, 0, 0, 255}, color.NRGBA{0, 0, 255, 255}}
	a, b := image.NewPaletted(image.Rect(1, 0, 3, 2), pal), image.NewPaletted(image.Rect(0, 0, 4, 2), pal)
	for i := range b.Pix {
		b.Pix[i] = 1
	}
	var buf bytes.Buffer
	if err := gif.EncodeAll(&buf, &gif.GIF{Image: []*image.Paletted{a, b}, Delay: []int{1, 1}, Config: image.Config{Width: 4, Height: 2, ColorModel: pal}}); err != nil {
		t.Fatal(err)
	}
	f, p := pixels(t, buf.Bytes(), Options{})
	if f.Width != 4 || !bytes.Equal(p.RGB[:12], []byte{0, 0, 0, 255, 0, 0, 255, 0, 0, 0, 0, 0}) {
		t.Errorf("got %dx%d %v", f.Width, f.Height, p.RGB[:12])
	}
}

// withEXIF puts an APP1 segment with an orientation into a JPEG.
func withEXIF(jpeg []byte, orientation uint16) []byte {
	exif := []byte("\xff\xe1\x00\x22Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01")
	exif = binary.BigEndian.AppendUint16(exif, orientation)
	exif = append(exif, 0, 0, 0, 0, 0, 0)
	return slices.Concat(jpeg[:2], exif, jpeg[2:])
}

// TestOrientation compares with what the EXIF standard says of each value: where the first row and column are.
func TestOrientation(t *testing.T) {
	plain := encoded(t, "jpeg", pattern(32, 16))
	_, base := pixels(t, plain, Options{})
	at := func(p *Picture, x, y int) [3]byte { return [3]byte(p.RGB[3*(y*p.Width+x):]) }
	for o, corner := range map[uint16]func(p *Picture) [3]byte{ // of the seen picture, where the stored first pixel is
		1: func(p *Picture) [3]byte { return at(p, 0, 0) },
		2: func(p *Picture) [3]byte { return at(p, p.Width-1, 0) },
		3: func(p *Picture) [3]byte { return at(p, p.Width-1, p.Height-1) },
		4: func(p *Picture) [3]byte { return at(p, 0, p.Height-1) },
		5: func(p *Picture) [3]byte { return at(p, 0, 0) },
		6: func(p *Picture) [3]byte { return at(p, p.Width-1, 0) },
		7: func(p *Picture) [3]byte { return at(p, p.Width-1, p.Height-1) },
		8: func(p *Picture) [3]byte { return at(p, 0, p.Height-1) },
	} {
		f, p := pixels(t, withEXIF(plain, o), Options{})
		turned := o >= 5
		if f.Orientation != int(o) || (p.Width == 16) != turned || (f.Width == 16) != turned {
			t.Errorf("%d: got orientation %d, %dx%d", o, f.Orientation, p.Width, p.Height)
		}
		if got := corner(p); got != at(base, 0, 0) {
			t.Errorf("%d: the first pixel is not where it belongs: %v, want %v", o, got, at(base, 0, 0))
		}
		// Along the stored first row: one step to the right.
		var next [3]byte
		switch o {
		case 1:
			next = at(p, 5, 0)
		case 2:
			next = at(p, p.Width-6, 0)
		case 3:
			next = at(p, p.Width-6, p.Height-1)
		case 4:
			next = at(p, 5, p.Height-1)
		case 5:
			next = at(p, 0, 5)
		case 6:
			next = at(p, p.Width-1, 5)
		case 7:
			next = at(p, p.Width-1, p.Height-6)
		case 8:
			next = at(p, 0, p.Height-6)
		}
		if next != at(base, 5, 0) {
			t.Errorf("%d: the first row is not where it belongs", o)
		}
		if _, raw := pixels(t, withEXIF(plain, o), Options{NoEXIF: true}); !bytes.Equal(raw.RGB, base.RGB) {
			t.Errorf("%d: NoEXIF changes pixels", o)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	jpg, pg := encoded(t, "jpeg", pattern(64, 64)), encoded(t, "png", pattern(64, 64))
	for _, tt := range []struct {
		path, want string
		o          Options
	}{
		{dir, "it is a directory", Options{}},
		{pipe, "it is not a regular file", Options{}},
		{"/dev/zero", "it is not a regular file", Options{}},
		{filepath.Join(dir, "none"), "no such file", Options{}},
		{write("empty", nil), "it is empty", Options{}},
		{write("junk", []byte("hello, world, this is text")), "neither an image nor a sound", Options{}},
		{write("v.mp4", []byte("\x00\x00\x00\x20ftypisom\x00\x00")), "it is an MP4 or QuickTime video", Options{}},
		{write("h.heic", []byte("\x00\x00\x00\x20ftypheic\x00\x00")), "it is a HEIC image", Options{}},
		{write("o.ogg", []byte("OggS\x00\x02\x00\x00")), "it is Ogg", Options{}},
		{write("big.png", pg), "the limit is 100", Options{Limits: Limits{Bytes: 100}}},
		{write("many.png", pg), "64x64 pixels, the limit is 4095 pixels", Options{Limits: Limits{Pixels: 4095}}},
		{write("wide.png", pg), "the limit of a side is 63", Options{Limits: Limits{Side: 63}}},
		{write("head.png", pg[:20]), "the png image is truncated or damaged", Options{}},
		{write("bomb.ppm", []byte("P6 99999 99999 255\n")), "limit of a side", Options{}},
		{write("neg.ppm", []byte("P6 -1 5 255\n")), "pnm image", Options{}},
		{write("short.wav", wav(1, 16000, 16, 100, 200)), "it is truncated", Options{}},
		{write("long.wav", wav(1, 16000, 16, 64000, 64000)), "wav of 2 s, the limit is 1 s", Options{Limits: Limits{Seconds: 1}}},
		{write("rate.wav", wav(1, 1, 16, 640, 640)), "its sample rate", Options{}},
	} {
		_, err := Open(tt.path, tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), tt.path+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", filepath.Base(tt.path), err, tt.want)
		}
	}
	for name, data := range map[string][]byte{"jpeg": jpg[:len(jpg)/2], "png": pg[:len(pg)-30], "pnm": ppm(pattern(8, 8))[:60]} {
		f, err := Parse(name, data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Pixels(); !errors.Is(err, ErrMedia) || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("%s: got %v, want that it is truncated", name, err)
		}
	}
}

// wav is a WAV file whose header says that it has says bytes of sound and which has size.
func wav(channels, rate, bits, size, says int) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00")
	b = binary.LittleEndian.AppendUint16(b, uint16(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate*channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(bits))
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(says))
	return append(b, make([]byte, size)...)
}

func TestSound(t *testing.T) {
	f, err := Parse("x", wav(2, 48000, 16, 48000*4*3, 48000*4*3), Options{})
	if err != nil || f.Kind != Audio || f.Duration != 3 || f.SampleRate != 48000 || f.Channels != 2 {
		t.Errorf("got %+v, %v, want 3 s at 48000 Hz", f, err)
	}
	flac := append([]byte("fLaC\x00\x00\x00\x22"), make([]byte, 10)...)
	flac = binary.BigEndian.AppendUint64(flac, 44100<<44|1<<41|15<<36|44100*2)
	flac = append(flac, make([]byte, 16+200)...)
	if f, err := Parse("x", flac, Options{}); err != nil || f.Duration != 2 || f.Channels != 2 {
		t.Errorf("flac: got %+v, %v", f, err)
	}
	binary.BigEndian.PutUint64(flac[18:], 44100<<44|1<<41|15<<36|(1<<36-1))
	if _, err := Parse("x", flac, Options{Limits: Limits{Seconds: 1e9}}); err == nil || !strings.Contains(err.Error(), "more samples than fit") {
		t.Errorf("flac: got %v", err)
	}
	// 10 frames of 128 kbit/s at 44100 Hz, with a tag before them.
	frame := append([]byte{0xff, 0xfb, 0x90, 0xc0}, make([]byte, 413)...)
	mp3 := append([]byte("ID3\x04\x00\x00\x00\x00\x00\x03\x01\x02\x03"), bytes.Repeat(frame, 10)...)
	if f, err := Parse("x", mp3, Options{}); err != nil || f.Duration != 10*1152/44100.0 && f.Duration < 0.2612 || f.Channels != 1 {
		t.Errorf("mp3: got %+v, %v, want %v s", f, err, 10*1152/44100.0)
	}
	if data, err := os.ReadFile("../../.engine/src/tools/mtmd/test-2.mp3"); err == nil {
		// libmtmd's decoder finds 279034 samples at 16 kHz in it.
		if f, err := Parse("x", data, Options{}); err != nil || f.Duration < 17.4 || f.Duration > 17.6 {
			t.Errorf("test-2.mp3: got %v, %v, want 17.4 s and at most three frames more", f.Duration, err)
		}
	}
}

// TestFixtures opens the shared media: the three ways to store a red square have the same pixels.
func TestFixtures(t *testing.T) {
	entries, err := os.ReadDir(fixtures)
	if err != nil {
		t.Skipf("%v: this test reads the shared fixtures", err)
	}
	red := map[string][]byte{}
	for _, e := range entries {
		f, err := Open(filepath.Join(fixtures, e.Name()), Options{})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if f.Kind == Audio {
			continue
		}
		p, err := f.Pixels()
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if strings.HasPrefix(e.Name(), "red.") {
			red[e.Name()] = p.RGB
		}
	}
	if len(red) != 3 || !bytes.Equal(red["red.png"], red["red.bmp"]) || !bytes.Equal(red["red.png"], red["red.ppm"]) {
		t.Errorf("%d red squares, and they differ", len(red))
	}
}

// TestVideoRange: WebP's values are those of BT.601 video.
func TestVideoRange(t *testing.T) {
	for _, tt := range []struct {
		y, cb, cr int32
		video     bool
		want      [3]byte
	}{
		{16, 128, 128, true, [3]byte{0, 0, 0}}, {235, 128, 128, true, [3]byte{255, 255, 255}}, {126, 128, 128, true, [3]byte{128, 128, 128}},
		{81, 90, 240, true, [3]byte{254, 0, 0}}, {0, 128, 128, false, [3]byte{}}, {255, 128, 128, false, [3]byte{255, 255, 255}},
		{76, 85, 255, false, [3]byte{254, 0, 0}},
	} {
		var got [3]byte
		putRGB(got[:], tt.y, tt.cb, tt.cr, tt.video)
		if got != tt.want {
			t.Errorf("putRGB(%d, %d, %d, %v) = %v, want %v", tt.y, tt.cb, tt.cr, tt.video, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, format := range []string{"png", "jpeg", "bmp", "tiff", "gif"} {
		f.Add(encoded(f, format, pattern(9, 5)))
	}
	f.Add(ppm(pattern(3, 3)))
	f.Add(withEXIF(encoded(f, "jpeg", pattern(9, 5)), 6))
	f.Add(wav(2, 8000, 16, 64, 64))
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00"))
	f.Add(append([]byte("ID3\x04\x00\x00\x00\x00\x00\x03\x01\x02\x03"), 0xff, 0xfb, 0x90, 0xc0))
	o := Options{Limits: Limits{Pixels: 1 << 16, Bytes: 1 << 20}}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("x", data, o)
		if err != nil {
			if !errors.Is(err, ErrMedia) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q", err)
			}
			return
		}
		if m.Kind == Audio {
			if m.Duration <= 0 || m.Duration > 7200 {
				t.Errorf("a sound of %v s", m.Duration)
			}
			return
		}
		p, err := m.Pixels()
		if err != nil {
			if !errors.Is(err, ErrMedia) {
				t.Errorf("got %q", err)
			}
			return
		}
		if p.Width != m.Width || len(p.RGB) != 3*p.Width*p.Height {
			t.Errorf("%dx%d: %d bytes", p.Width, p.Height, len(p.RGB))
		}
	})
}
