package media

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
)

// pnmHeader is a binary PGM's or PPM's.
type pnmHeader struct {
	channels, width, height, max int
}

// readPNM reads a header, up to the byte before the pixels.
func readPNM(r *bufio.Reader) (h pnmHeader, err error) {
	var magic [2]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return h, err
	}
	switch string(magic[:]) {
	case "P5":
		h.channels = 1
	case "P6":
		h.channels = 3
	default:
		return h, errors.New("it is not a binary PGM or PPM")
	}
	for _, p := range []*int{&h.width, &h.height, &h.max} {
		if *p, err = pnmNumber(r); err != nil {
			return h, err
		}
	}
	if h.max < 1 || h.max > 65535 {
		return h, fmt.Errorf("largest value: got %d, want 1 to 65535", h.max)
	}
	return h, nil
}

// pnmNumber reads a number and the one byte after it. White space and comments may come first.
func pnmNumber(r *bufio.Reader) (int, error) {
	n, digits := 0, 0
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		switch {
		case b == '#' && digits == 0:
			if _, err := r.ReadBytes('\n'); err != nil {
				return 0, io.ErrUnexpectedEOF
			}
		case b >= '0' && b <= '9':
			n = 10*n + int(b-'0')
			if digits++; digits > 9 {
				return 0, errors.New("a number in the header is too large")
			}
		case digits > 0:
			return n, nil
		case b != ' ' && b != '\t' && b != '\n' && b != '\r':
			return 0, fmt.Errorf("byte %q in the header", b)
		}
	}
}

func pnmConfig(r io.Reader) (image.Config, error) {
	h, err := readPNM(bufio.NewReader(r))
	return image.Config{ColorModel: color.NRGBAModel, Width: h.width, Height: h.height}, err
}

func decodePNM(r io.Reader) (image.Image, error) {
	br := bufio.NewReader(r)
	h, err := readPNM(br)
	if err != nil {
		return nil, err
	}
	img := image.NewNRGBA(image.Rect(0, 0, h.width, h.height))
	wide := h.max > 255 // two bytes, the upper one first
	size := h.channels
	if wide {
		size *= 2
	}
	row := make([]byte, h.width*size)
	for y := range h.height {
		if _, err := io.ReadFull(br, row); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		for x := range h.width {
			px := img.Pix[img.PixOffset(x, y):]
			for c := range 3 {
				from := x*size + min(c, h.channels-1)*(size/h.channels)
				px[c] = row[from]
			}
			px[3] = 255
		}
	}
	return img, nil
}
