package media

import (
	"encoding/binary"
	"math"
)

// readSound reads the header of a sound and its duration. The engine's decoder makes as much room as a header says; so
// none reaches it that says more than the limit.
func (f *File) readSound() error {
	var msg string
	switch f.Format {
	case "wav":
		msg = f.readWAV()
	case "flac":
		msg = f.readFLAC()
	case "mp3":
		msg = f.readMP3()
	}
	switch {
	case msg != "":
		return f.errorf("%s: %s", f.Format, msg)
	case f.Duration > f.opt.Seconds:
		return f.errorf("%s of %.0f s, the limit is %.0f s", f.Format, f.Duration, f.opt.Seconds)
	case f.Duration <= 0:
		return f.errorf("%s: there is no sound in it", f.Format)
	}
	return nil
}

// maxRate is the highest sample rate that is taken, Hz; a low one would make much of few bytes.
const (
	minRate = 1000
	maxRate = 768000
)

func (f *File) readWAV() string {
	format := chunk(f.Data, 12, "fmt ", binary.LittleEndian, false)
	if len(format) < 16 {
		return "there is no format chunk"
	}
	f.Channels, f.SampleRate = int(binary.LittleEndian.Uint16(format[2:])), int(binary.LittleEndian.Uint32(format[4:]))
	block, bits := int(binary.LittleEndian.Uint16(format[12:])), int(binary.LittleEndian.Uint16(format[14:]))
	tag := binary.LittleEndian.Uint16(format)
	switch {
	case f.Channels < 1 || f.Channels > 254:
		return "its number of channels is not 1 to 254"
	case f.SampleRate < minRate || f.SampleRate > maxRate:
		return "its sample rate is not 1000 to 768000 Hz"
	case block < 1:
		return "its blocks have no bytes"
	}
	size, declared := wavData(f.Data)
	if declared < 0 {
		return "there is no data chunk"
	}
	if size < declared {
		return "it is truncated"
	}
	const adpcmMS, adpcmIMA = 2, 17
	switch tag {
	case adpcmMS, adpcmIMA: // half a byte a sample, roughly
		f.Duration = float64(size) * 2 / float64(f.Channels) / float64(f.SampleRate)
		return ""
	}
	if want := f.Channels * ((bits + 7) / 8); block < want {
		return "its blocks are too small for its channels"
	}
	f.Duration = float64(size/block) / float64(f.SampleRate)
	return ""
}

// wavData returns the bytes of the data chunk that are there, and how many it says it has, -1 if there is no such chunk.
// A recorder that could not go back says 0 or the largest number, and the chunk goes on to the end.
func wavData(data []byte) (size, declared int) {
	for at := 12; at+8 <= len(data); {
		length := binary.LittleEndian.Uint32(data[at+4:])
		rest := len(data) - at - 8
		if string(data[at:at+4]) == "data" {
			if length == math.MaxUint32 || length == 0 {
				return rest, rest
			}
			return min(rest, int(length)), int(length)
		}
		if uint64(length) > uint64(rest) {
			break
		}
		at += 8 + int(length) + int(length&1)
	}
	return 0, -1
}

func (f *File) readFLAC() string {
	const header = 4 + 4 + 34 // marker, block header, STREAMINFO
	if len(f.Data) < header || f.Data[4]&0x7f != 0 {
		return "there is no stream information"
	}
	info := binary.BigEndian.Uint64(f.Data[18:]) // 20 bits rate, 3 channels-1, 5 bits-1, 36 samples
	f.SampleRate, f.Channels = int(info>>44), int(info>>41&7)+1
	samples := info & (1<<36 - 1)
	switch {
	case f.SampleRate < minRate || f.SampleRate > maxRate:
		return "its sample rate is not 1000 to 768000 Hz"
	case samples == 0:
		return "it does not say how many samples it has"
	// A frame has 11 bytes or more and at most 65535 samples.
	case samples > uint64(len(f.Data)-header)/11*math.MaxUint16+math.MaxUint16:
		return "it says that it has more samples than fit into it"
	}
	f.Duration = float64(samples) / float64(f.SampleRate)
	return ""
}

// readMP3 adds up the frames.
func (f *File) readMP3() string {
	data := f.Data
	at := 0
	for at+10 <= len(data) && string(data[at:at+3]) == "ID3" { // a tag; its length has 7 bits a byte
		n := 0
		for _, b := range data[at+6 : at+10] {
			n = n<<7 | int(b&0x7f)
		}
		at += 10 + n
	}
	frames := 0
	for at < len(data) {
		n := mp3Frame(data[at:])
		if n == 0 {
			at++
			continue
		}
		samples, rate, channels := mp3Samples(data[at:])
		f.Duration += float64(samples) / float64(rate)
		f.SampleRate, f.Channels = rate, channels
		frames++
		at += n
	}
	if frames == 0 {
		return "there are no frames in it"
	}
	return ""
}

var (
	mp3BitratesV1 = [...]int{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320} // kbit/s, layer III
	mp3BitratesV2 = [...]int{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}
	mp3Rates      = [...]int{44100, 48000, 32000} // Hz, MPEG 1; half and a quarter of it in 2 and 2.5
)

// mp3Frame returns the bytes of the layer III frame that data begins with, 0 if it begins with none.
func mp3Frame(data []byte) int {
	if len(data) < 4 || data[0] != 0xff || data[1]&0xe6 != 0xe2 || data[1]&0x18 == 0x08 || data[2]&0x0c == 0x0c {
		return 0
	}
	bitrate := int(data[2] >> 4)
	if bitrate == 0 || bitrate == 15 { // free format, or none
		return 0
	}
	samples, rate, _ := mp3Samples(data)
	kbit := mp3BitratesV2[bitrate]
	if data[1]&0x18 == 0x18 {
		kbit = mp3BitratesV1[bitrate]
	}
	return samples/8*kbit*1000/rate + int(data[2]>>1&1)
}

// mp3Samples returns the samples of a frame, a channel's, their rate and the channels.
func mp3Samples(data []byte) (samples, rate, channels int) {
	samples, rate, channels = 1152, mp3Rates[data[2]>>2&3], 2
	switch data[1] & 0x18 {
	case 0x10: // MPEG 2
		samples, rate = 576, rate/2
	case 0x00: // MPEG 2.5
		samples, rate = 576, rate/4
	}
	if data[3]>>6 == 3 {
		channels = 1
	}
	return samples, rate, channels
}
