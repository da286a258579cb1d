package media

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"
)

// Picture is a decoded image.
type Picture struct {
	Width, Height int
	RGB           []byte // Width*Height*3 bytes: red, green, blue, row by row from the top
}

// codec reads a format.
type codec struct {
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
}

var codecs = map[string]codec{
	"png":  {png.DecodeConfig, png.Decode},
	"jpeg": {jpeg.DecodeConfig, jpeg.Decode},
	"gif":  {gif.DecodeConfig, decodeGIF},
	"bmp":  {bmp.DecodeConfig, bmp.Decode},
	"webp": {webp.DecodeConfig, webp.Decode},
	"tiff": {tiff.DecodeConfig, tiff.Decode},
	"pnm":  {pnmConfig, decodePNM},
}

// decodeGIF returns the first frame on its canvas, whose color is black.
func decodeGIF(r io.Reader) (image.Image, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	c, err := gif.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	frame, err := gif.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	canvas := image.NewNRGBA(image.Rect(0, 0, c.Width, c.Height))
	draw.Draw(canvas, frame.Bounds(), frame, frame.Bounds().Min, draw.Over)
	return canvas, nil
}

// readImage reads the size of an image.
func (f *File) readImage() error {
	c, err := f.config()
	if err != nil {
		return f.undecodable(err)
	}
	switch l := f.opt.Limits; {
	case c.Width < 1 || c.Height < 1:
		return f.errorf("%s image of %dx%d pixels", f.Format, c.Width, c.Height)
	case c.Width > l.Side || c.Height > l.Side:
		return f.errorf("%s image of %dx%d pixels, the limit of a side is %d", f.Format, c.Width, c.Height, l.Side)
	case int64(c.Width)*int64(c.Height) > l.Pixels:
		return f.errorf("%s image of %dx%d pixels, the limit is %d pixels", f.Format, c.Width, c.Height, l.Pixels)
	}
	f.Width, f.Height = c.Width, c.Height
	if !f.opt.NoEXIF {
		if f.Orientation = orientation(f.Format, f.Data); f.Orientation >= 5 {
			f.Width, f.Height = c.Height, c.Width
		}
	}
	return nil
}

func (f *File) config() (c image.Config, err error) {
	defer recovered(&err)
	return codecs[f.Format].config(bytes.NewReader(f.Data))
}

func (f *File) decode() (img image.Image, err error) {
	defer recovered(&err)
	return codecs[f.Format].decode(bytes.NewReader(f.Data))
}

// recovered makes an error of a panic in a decoder, so that one file does not end a run over many.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the decoder failed: %v", r)
	}
}

func (f *File) undecodable(err error) error {
	for _, text := range []string{"short Huffman data", "not enough pixel data", "too much pixel data", "unexpected EOF"} {
		if errors.Is(err, io.EOF) || strings.Contains(err.Error(), text) {
			return f.errorf("the %s image is truncated or damaged", f.Format)
		}
	}
	return f.errorf("%s image: %v", f.Format, err)
}

// Pixels decodes an image and turns it as its orientation says. Transparency is dropped and not blended, as llama.cpp's
// tools do: a transparent pixel has the color that the file gives it. Deeper colors keep their upper eight bits.
func (f *File) Pixels() (*Picture, error) {
	if f.Kind != Image {
		return nil, f.errorf("it is %s, not an image", f.Kind)
	}
	img, err := f.decode()
	if err != nil {
		return nil, f.undecodable(err)
	}
	if r := img.Bounds(); int64(r.Dx())*int64(r.Dy()) > f.opt.Pixels || r.Empty() {
		return nil, f.errorf("%s image: its header and its content have other sizes", f.Format)
	}
	p := toRGB(img, f.Format)
	if !f.opt.NoEXIF {
		p = turn(p, f.Orientation)
	}
	if p.Width != f.Width || p.Height != f.Height {
		return nil, f.errorf("%s image: its header and its content have other sizes", f.Format)
	}
	return p, nil
}

// toRGB converts an image of any kind.
func toRGB(img image.Image, format string) *Picture {
	r := img.Bounds()
	p := &Picture{Width: r.Dx(), Height: r.Dy(), RGB: make([]byte, 3*r.Dx()*r.Dy())}
	switch src := img.(type) {
	case *image.YCbCr:
		fromYCbCr(p, src, format == "webp")
	case *image.NYCbCrA:
		fromYCbCr(p, &src.YCbCr, format == "webp")
	case *image.NRGBA:
		for y := range p.Height {
			row := src.Pix[src.PixOffset(r.Min.X, r.Min.Y+y):]
			for x := range p.Width {
				copy(p.RGB[3*(y*p.Width+x):][:3], row[4*x:4*x+3])
			}
		}
	default:
		for y := range p.Height {
			for x := range p.Width {
				c := color.NRGBAModel.Convert(img.At(r.Min.X+x, r.Min.Y+y)).(color.NRGBA)
				copy(p.RGB[3*(y*p.Width+x):][:3], []byte{c.R, c.G, c.B})
			}
		}
	}
	return p
}
