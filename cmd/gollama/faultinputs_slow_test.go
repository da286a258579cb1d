//go:build slow && linux

package main

import (
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var faultInput = regexp.MustCompile(`IN/([^:,]+)`)

// inputs returns the files that a job reads, by their names in IN.
func (j *job) inputs(t *testing.T, in string) (files []string) {
	t.Helper()
	var names []string
	for _, m := range faultInput.FindAllStringSubmatch(strings.Join(j.args, ","), -1) {
		names = append(append(names, m[1]), together[m[1]]...)
	}
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(in, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				path, err = filepath.Rel(in, path)
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// damage returns data cut off, altered in its first part or anywhere, or replaced by noise or by another file.
func damage(rng *rand.Rand, data []byte, kind int, other func(int) []byte) []byte {
	if len(data) == 0 {
		kind = 4
	}
	bad := slices.Clone(data)
	within := len(bad)
	switch kind {
	case 0:
		return bad[:rng.IntN(len(bad))]
	case 1:
		within = min(len(bad), 20000)
	case 2:
	case 3:
		bad = bad[:min(len(bad), 5000)]
		for i := range bad {
			bad[i] = byte(rng.Uint32())
		}
		return bad
	default:
		return other(rng.IntN(1 << 20))
	}
	for range 1 + rng.IntN(20) {
		bad[rng.IntN(within)] = byte(rng.Uint32())
	}
	return bad
}

// TestFaultInputs damages each input of each job.
func TestFaultInputs(t *testing.T) {
	in := faultInputs(t)
	others := []string{"model.gguf", "prompt.txt", "pics/a.png", "vector.gguf", "requests.jsonl", "config.yaml", "part1.gguf", "adapter.gguf", "sound.wav", "mmproj.gguf"}
	for _, j := range slices.Concat(jobs, readers) {
		t.Run(j.name, func(t *testing.T) {
			files := j.inputs(t, in)
			counts := map[int]int{}
			for _, name := range files {
				good, err := os.ReadFile(filepath.Join(in, name))
				if err != nil {
					t.Fatal(err)
				}
				h := fnv.New64a()
				_, _ = h.Write([]byte(j.name + name))
				rng := rand.New(rand.NewPCG(1, h.Sum64()))
				for i := range 4 * *faults {
					kind := []int{0, 1, 1, 2, 1, 0, 3, 4}[i%8]
					bad := damage(rng, good, kind, func(n int) []byte {
						if n %= len(others) + 1; n < len(others) {
							b, err := os.ReadFile(filepath.Join(in, others[n]))
							if err != nil {
								t.Fatal(err)
							}
							return b
						}
						return nil
					})
					j.tryInput(t, in, files, name, bad, i, counts)
				}
			}
			t.Logf("%d changes of %d files; statuses %v", 4**faults*len(files), len(files), counts)
		})
	}
}

// tryInput does a job with one of its inputs replaced by bad.
func (j *job) tryInput(t *testing.T, in string, files []string, name string, bad []byte, change int, counts map[int]int) {
	t.Helper()
	mine, out := t.TempDir(), t.TempDir()
	for _, f := range files {
		data := bad
		if f != name {
			b, err := os.ReadFile(filepath.Join(in, f))
			if err != nil {
				t.Fatal(err)
			}
			data = b
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(mine, f)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mine, f), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o := j.do(t, mine, out)
	counts[o.code]++
	wrong := ""
	switch {
	case !slices.Contains([]int{0, 1, 3, 4, 5, 64}, o.code) || o.crashed():
		wrong = "the status is none for bad input, or it crashed"
	case o.code != 0 && strings.Count("\n"+o.stderr, "error: ") != 1 && o.code != 3:
		wrong = "not one error"
	}
	if len(j.outs) > 0 && !j.records && !slices.Contains([]int{0, 3, 5}, o.code) {
		if _, err := os.Stat(filepath.Join(out, j.outs[0])); err == nil {
			wrong = "it failed, and there is a " + j.outs[0]
		}
	}
	if wrong != "" {
		kept, err := os.CreateTemp("", "fault-*-"+filepath.Base(name))
		if err == nil {
			_, err = kept.Write(bad)
			_ = kept.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s, change %d: %s: status %d: %s(the file is kept as %s)", name, change, wrong, o.code, o.stderr, kept.Name())
	}
	_ = os.RemoveAll(mine) // t.TempDir keeps them to the end of the test
	_ = os.RemoveAll(out)
}
