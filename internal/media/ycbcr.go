package media

import "image"

// fromYCbCr converts with the chroma planes scaled up by a triangle filter, as libjpeg's and stb_image's decoders do it;
// image/color's own conversion repeats samples. video says that the values are those of BT.601 video, 16 to 235, which
// WebP has; JPEG's are 0 to 255.
func fromYCbCr(p *Picture, src *image.YCbCr, video bool) {
	r := src.Rect
	across, down := 1, 1
	switch src.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		across = 2
	case image.YCbCrSubsampleRatio420:
		across, down = 2, 2
	case image.YCbCrSubsampleRatio440:
		down = 2
	case image.YCbCrSubsampleRatio444:
	default: // 4:1:1 and 4:1:0, which are rare
		for y := range p.Height {
			for x := range p.Width {
				i, c := src.YOffset(r.Min.X+x, r.Min.Y+y), src.COffset(r.Min.X+x, r.Min.Y+y)
				putRGB(p.RGB[3*(y*p.Width+x):], int32(src.Y[i]), int32(src.Cb[c]), int32(src.Cr[c]), video)
			}
		}
		return
	}
	cw, ch := (p.Width+across-1)/across, (p.Height+down-1)/down
	cb, cr := make([]int32, p.Width), make([]int32, p.Width)
	line := make([]int32, cw)
	for y := range p.Height {
		chromaRow(cb, src.Cb, src.CStride, line, y, across, down, cw, ch)
		chromaRow(cr, src.Cr, src.CStride, line, y, across, down, cw, ch)
		luma := src.Y[src.YOffset(r.Min.X, r.Min.Y+y):]
		for x := range p.Width {
			putRGB(p.RGB[3*(y*p.Width+x):], int32(luma[x]), cb[x], cr[x], video)
		}
	}
}

// chromaRow writes row y of a chroma plane of cw by ch samples, scaled up across and down, to dst. line is scratch. A
// sample counts three times as much as its neighbour on the other side of the pixel.
func chromaRow(dst []int32, plane []byte, stride int, line []int32, y, across, down, cw, ch int) {
	near := y / down
	row := plane[near*stride:]
	unit := int32(1)
	if down == 2 {
		far := near - 1 + 2*(y&1)
		far = min(max(far, 0), ch-1)
		other := plane[far*stride:]
		unit = 4
		for i := range cw {
			line[i] = 3*int32(row[i]) + int32(other[i])
		}
	} else {
		for i := range cw {
			line[i] = int32(row[i])
		}
	}
	if across == 1 {
		for x := range dst {
			dst[x] = (line[x] + unit/2) / unit
		}
		return
	}
	for x := range dst {
		i := x / 2
		k := min(max(i-1+2*(x&1), 0), cw-1)
		dst[x] = (3*line[i] + line[k] + 2*unit) / (4 * unit)
	}
}

// putRGB converts a pixel. The factors are BT.601's, in 20 bits of fraction.
func putRGB(dst []byte, y, cb, cr int32, video bool) {
	const (
		bits    = 20
		half    = 1 << (bits - 1)
		crRed   = 1470103 // 1.402
		cbGreen = 360857  // 0.344136
		crGreen = 748830  // 0.714136
		cbBlue  = 1858077 // 1.772
		scaleY  = 1220949 // 255/219
		scaleC  = 1193377 // 255/224, 20 bits
	)
	cb, cr = cb-128, cr-128
	l := int64(y) << bits
	b64, r64 := int64(cb), int64(cr)
	if video {
		l = int64(y-16) * scaleY
		dst[0] = clamp((l + (r64*crRed*scaleC)>>bits + half) >> bits)
		dst[1] = clamp((l - (b64*cbGreen*scaleC)>>bits - (r64*crGreen*scaleC)>>bits + half) >> bits)
		dst[2] = clamp((l + (b64*cbBlue*scaleC)>>bits + half) >> bits)
		return
	}
	dst[0] = clamp((l + r64*crRed + half) >> bits)
	dst[1] = clamp((l - b64*cbGreen - r64*crGreen + half) >> bits)
	dst[2] = clamp((l + b64*cbBlue + half) >> bits)
}

func clamp(x int64) byte { return byte(min(max(x, 0), 255)) }
