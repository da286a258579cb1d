package media

import "encoding/binary"

// orientation returns the EXIF orientation of an image, 1 to 8; 1 if there is none or it is damaged.
func orientation(format string, data []byte) int {
	switch format {
	case "jpeg":
		return tiffOrientation(jpegEXIF(data))
	case "png":
		return tiffOrientation(chunk(data, 8, "eXIf", binary.BigEndian, true))
	case "webp":
		exif := chunk(data, 12, "EXIF", binary.LittleEndian, false)
		if len(exif) > 6 && string(exif[:6]) == "Exif\x00\x00" {
			exif = exif[6:]
		}
		return tiffOrientation(exif)
	case "tiff":
		return tiffOrientation(data)
	}
	return 1
}

// jpegEXIF returns the TIFF file within a JPEG's APP1 segment, nil if there is none.
func jpegEXIF(data []byte) []byte {
	for i := 2; i+4 <= len(data) && data[i] == 0xff; {
		marker, size := data[i+1], int(binary.BigEndian.Uint16(data[i+2:]))
		switch {
		case marker == 0xff: // fill byte
			i++
			continue
		case marker == 0xda, marker == 0xd9, size < 2: // the image itself
			return nil
		case marker == 0xe1 && size >= 8 && i+2+size <= len(data) && string(data[i+4:i+10]) == "Exif\x00\x00":
			return data[i+10 : i+2+size]
		}
		i += 2 + size
	}
	return nil
}

// chunk returns the content of the first chunk named name of a file that has chunks from byte at on: length and name, or
// in RIFF, name and length; a PNG's have a sum behind.
func chunk(data []byte, at int, name string, order binary.ByteOrder, png bool) []byte {
	for at+8 <= len(data) {
		head := data[at : at+8]
		id, length := string(head[:4]), order.Uint32(head[4:])
		if png {
			id, length = string(head[4:]), order.Uint32(head)
		}
		rest := data[at+8:]
		if uint64(length) > uint64(len(rest)) {
			return nil
		}
		if id == name {
			return rest[:length]
		}
		at += 8 + int(length)
		if png {
			at += 4
		} else {
			at += int(length & 1)
		}
	}
	return nil
}

// tiffOrientation reads the orientation tag of a TIFF file's first directory.
func tiffOrientation(data []byte) int {
	if len(data) < 8 {
		return 1
	}
	var order binary.ByteOrder
	switch string(data[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 1
	}
	const (
		tagOrientation = 0x112
		typeShort      = 3
		entry          = 12
	)
	at := uint64(order.Uint32(data[4:]))
	if at+2 > uint64(len(data)) {
		return 1
	}
	n := int(order.Uint16(data[at:]))
	for i := range n {
		from := at + 2 + uint64(entry*i)
		if from+entry > uint64(len(data)) {
			return 1
		}
		e := data[from : from+entry]
		if order.Uint16(e) == tagOrientation && order.Uint16(e[2:]) == typeShort {
			if o := int(order.Uint16(e[8:])); o >= 1 && o <= 8 {
				return o
			}
			return 1
		}
	}
	return 1
}

// turn returns the picture as its orientation says it is to be seen.
func turn(p *Picture, orientation int) *Picture {
	if orientation <= 1 || orientation > 8 {
		return p
	}
	w, h := p.Width, p.Height
	out := &Picture{Width: w, Height: h, RGB: make([]byte, len(p.RGB))}
	if orientation >= 5 {
		out.Width, out.Height = h, w
	}
	for y := range out.Height {
		for x := range out.Width {
			var sx, sy int // where the pixel comes from
			switch orientation {
			case 2:
				sx, sy = w-1-x, y
			case 3:
				sx, sy = w-1-x, h-1-y
			case 4:
				sx, sy = x, h-1-y
			case 5:
				sx, sy = y, x
			case 6:
				sx, sy = y, h-1-x
			case 7:
				sx, sy = w-1-y, h-1-x
			case 8:
				sx, sy = w-1-y, x
			}
			copy(out.RGB[3*(y*out.Width+x):][:3], p.RGB[3*(sy*w+sx):][:3])
		}
	}
	return out
}
