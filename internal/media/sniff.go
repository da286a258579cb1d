package media

import "bytes"

// What to do with files that are known and not read.
const (
	hintVideo = "take frames out of it first: ffmpeg -i FILE -vf fps=1 frame-%04d.png"
	hintImage = "convert it first, for example to PNG"
	hintSound = "convert it first: ffmpeg -i FILE -ar 16000 -ac 1 FILE.wav"
)

// signatures are the first bytes of files, with dots for any byte, and what begins so. Those with a hint are not read.
var signatures = []struct {
	magic, format string
	kind          Kind
	hint          string
}{
	{"\x89PNG\r\n\x1a\n", "png", Image, ""},
	{"\xff\xd8\xff", "jpeg", Image, ""},
	{"GIF87a", "gif", Image, ""},
	{"GIF89a", "gif", Image, ""},
	{"RIFF....WEBP", "webp", Image, ""},
	{"II*\x00", "tiff", Image, ""},
	{"MM\x00*", "tiff", Image, ""},
	{"RIFF....WAVE", "wav", Audio, ""},
	{"fLaC", "flac", Audio, ""},
	{"ID3", "mp3", Audio, ""},

	{"....ftyphei", "a HEIC image", Image, hintImage},
	{"....ftypmif1", "a HEIC image", Image, hintImage},
	{"....ftypavif", "an AVIF image", Image, hintImage},
	{"\x00\x00\x00\x0cJXL ", "a JPEG XL image", Image, hintImage},
	{"\xff\x0a", "a JPEG XL image", Image, hintImage},
	{"\x00\x00\x00\x0cjP  ", "a JPEG 2000 image", Image, hintImage},
	{"8BPS", "a Photoshop image", Image, hintImage},
	{"<svg", "an SVG image", Image, hintImage},
	{"<?xml", "an XML file", Image, hintImage},
	{"%PDF", "a PDF document", Image, hintImage},
	{"....ftypM4A", "M4A sound", Audio, hintSound},
	{"....ftyp", "an MP4 or QuickTime video", Image, hintVideo},
	{"OggS", "Ogg sound or video", Audio, hintSound},
	{"\x1a\x45\xdf\xa3", "a Matroska or WebM video", Image, hintVideo},
	{"RIFF....AVI ", "an AVI video", Image, hintVideo},
	{"FLV\x01", "an FLV video", Image, hintVideo},
	{"\x00\x00\x01\xba", "an MPEG video", Image, hintVideo},
	{"\x00\x00\x01\xb3", "an MPEG video", Image, hintVideo},
	{"FORM....AIFF", "AIFF sound", Audio, hintSound},
	{"FORM....AIFC", "AIFF sound", Audio, hintSound},
	{"#!AMR", "AMR sound", Audio, hintSound},
	{"\x30\x26\xb2\x75", "a Windows Media file", Audio, hintSound},
}

// sniff tells what data is by its first bytes; format is empty if it cannot. A hint says that it is not read.
func sniff(data []byte) (format string, kind Kind, hint string) {
	for _, s := range signatures {
		if matches(data, s.magic) {
			return s.format, s.kind, s.hint
		}
	}
	switch {
	case len(data) > 14 && data[0] == 'B' && data[1] == 'M' && data[6]|data[7]|data[8]|data[9] == 0:
		return "bmp", Image, ""
	case len(data) > 2 && data[0] == 'P' && (data[1] == '5' || data[1] == '6') && bytes.IndexByte([]byte(" \t\r\n#"), data[2]) >= 0:
		return "pnm", Image, ""
	case mp3Frame(data) > 0:
		return "mp3", Audio, ""
	}
	return "", Image, ""
}

func matches(data []byte, magic string) bool {
	if len(data) < len(magic) {
		return false
	}
	for i := range len(magic) {
		if magic[i] != '.' && magic[i] != data[i] {
			return false
		}
	}
	return true
}
