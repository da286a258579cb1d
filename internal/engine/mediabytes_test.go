//go:build cgo && linux

package engine

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
)

// TestMediaBytes compares NBytes with what the process grows by, for projectors with an image's size of their own and for one that
// keeps its shape. Too many are counted of images that are no squares, and where a token has fewer patches than in most projectors.
func TestMediaBytes(t *testing.T) {
	if asan {
		t.Skip("the address sanitizer adds to what is allocated")
	}
	const alone = "GOLLAMA_TEST_ALONE"
	if os.Getenv(alone) == "" { // what other tests have freed would be taken again
		cmd := exec.Command(os.Args[0], "-test.run", "^TestMediaBytes$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "grown by") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	b, err := NewImageBitmap(640, 480, slices.Repeat([]byte{200, 100, 50}, 640*480))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mmproj-qwen2vl", "mmproj-pixtral", "mmproj-internvl"} {
		md := openMedia(t, name, nil)
		tokenize := func() *MediaChunks {
			c, err := md.Tokenize([]MediaPart{{Text: "a "}, {Media: b}}, true)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() }) // at the end of all: what is freed would be taken again
			return c
		}
		each := tokenize().NBytes() // and the heap has what scaling takes
		if each <= 0 {
			t.Fatalf("%s: %d bytes of an image", name, each)
		}
		n := min(32<<20/each+1, 100)
		before := ggml.ProcessMemory("VmRSS")
		for range n {
			tokenize()
		}
		grown, counted := ggml.ProcessMemory("VmRSS")-before, n*each
		t.Logf("%s: %d times %d bytes, grown by %d", name, n, each, grown)
		const noise = 8 << 20
		if grown > counted+counted/10+noise || grown < counted/4-noise {
			t.Errorf("%s: %d bytes counted, and the process grew by %d", name, counted, grown)
		}
	}
}
