package opt

import (
	"bytes"
	"encoding/json"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestSchedule(t *testing.T) {
	type point struct {
		step  int64
		epoch int
		want  float64
	}
	for _, tt := range []struct {
		name   string
		s      Schedule
		points []point
	}{
		{"constant", Schedule{LR: 2}, []point{{0, 0, 2}, {99, 3, 2}}},
		{"warmup", Schedule{LR: 2, Warmup: 4}, []point{{0, 0, 0.5}, {1, 0, 1}, {3, 0, 2}, {4, 0, 2}}},
		{"linear", Schedule{Shape: Linear, LR: 2, MinLR: 1, Steps: 10, Warmup: 2}, []point{{0, 0, 1}, {1, 0, 2}, {2, 0, 2}, {6, 0, 1.5}, {10, 0, 1}, {50, 0, 1}}},
		{"cosine", Schedule{Shape: Cosine, LR: 2, Steps: 8}, []point{{0, 0, 2}, {2, 0, 1 + math.Sqrt2/2}, {4, 0, 1}, {6, 0, 1 - math.Sqrt2/2}, {8, 0, 0}, {9, 0, 0}}},
		{"wsd", Schedule{Shape: WSD, LR: 2, Steps: 10, Warmup: 2, DecaySteps: 4}, []point{{1, 0, 2}, {5, 0, 2}, {6, 0, 2}, {8, 0, 1}, {9, 0, 0.5}}},
		{"wsd that is all decay", Schedule{Shape: WSD, LR: 2, Steps: 10, Warmup: 2, DecaySteps: 100}, []point{{1, 0, 2}, {2, 0, 2}, {6, 0, 1}}},
		// What lr_opt of llama.cpp gives.
		{"halving", Schedule{Shape: Halving, LR: 8, MinLR: 1, Epochs: 3}, []point{{0, 0, 8}, {5, 1, 4}, {9, 2, 2}, {0, 3, 1}}},
		{"halving in fewer epochs", Schedule{Shape: Halving, LR: 8, MinLR: 2, Epochs: 5, DecayEpochs: 2}, []point{{0, 0, 8}, {0, 1, 4}, {0, 2, 2}, {0, 4, 2}}},
		{"halving beyond the end", Schedule{Shape: Halving, LR: 8, MinLR: 2, Epochs: 2, DecayEpochs: 7}, []point{{0, 1, 4}}},
		{"halving without a minimum", Schedule{Shape: Halving, LR: 8, MinLR: -1, Epochs: 2}, []point{{0, 1, 8}}},
	} {
		if err := tt.s.Validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, p := range tt.points {
			if got := tt.s.At(p.step, p.epoch); math.Abs(got-p.want) > 1e-12 {
				t.Errorf("%s: at step %d, epoch %d: %v, want %v", tt.name, p.step, p.epoch, got, p.want)
			}
		}
	}
	for _, bad := range []Schedule{{LR: -1}, {LR: math.NaN()}, {LR: 1, MinLR: 2}, {Shape: Cosine, LR: 1, MinLR: -1}, {LR: 1, Warmup: -1}, {LR: 1, Warmup: 11, Steps: 10}, {LR: 1, DecaySteps: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is called valid", bad)
		}
	}
}

// Trainings that share their parameters do not get those of each other's step.
func TestScheduledShared(t *testing.T) {
	const steps = 20000
	s := Schedule{Shape: Linear, LR: 0.5, Steps: steps}
	params := Scheduled(DefaultOptimizerParams(), s)
	var wg sync.WaitGroup
	for first := range 4 {
		wg.Go(func() {
			for step := int64(first); step < steps; step += 4 {
				if got, want := params(step, 0).LR, s.At(step, 0); got != want {
					t.Errorf("step %d: learning rate %g, want %g", step, got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestNames(t *testing.T) {
	for i, n := range kindNames {
		if k, err := ParseKind(strings.ToUpper(n)); err != nil || k != Kind(i) || k.String() != n {
			t.Errorf("%s: %v, %v", n, k, err)
		}
	}
	for i, n := range shapeNames {
		if k, err := ParseShape(n); err != nil || k != Shape(i) || k.String() != n {
			t.Errorf("%s: %v, %v", n, k, err)
		}
	}
	if _, err := ParseKind("adam"); err == nil || !strings.Contains(err.Error(), "adamw, sgd, muon") {
		t.Errorf("an unknown optimizer: %v", err)
	}
	if _, err := ParseShape("steps"); err == nil || !strings.Contains(err.Error(), "wsd") {
		t.Errorf("an unknown schedule: %v", err)
	}
}

// TestDamagedMetrics: a line that is none costs the curve and not the run, and is said with its number; a torn one at the end
// is what a process leaves that was killed.
func TestDamagedMetrics(t *testing.T) {
	dir := t.TempDir()
	said := ""
	r, err := OpenRun(RunConfig{Dir: dir}, func(s string) { said = s })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // nothing else has it
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"{\"step\":1}\n{\"step\":2}\n{\"st", 2, ""},
		{"{\"step\":1}\n{\"step\":\"2\"}\n", 1, "metrics.jsonl:2: step: got a string, want a whole number"},
		{"{\"step\":1}\n{\"step\":\n{\"step\":3}\n", 1, "metrics.jsonl:2: byte 8: unexpected end of JSON input"},
	} {
		if err := os.WriteFile(filepath.Join(dir, metricsName), []byte(tt.text), 0o666); err != nil {
			t.Fatal(err)
		}
		list, err := Reports(dir)
		if len(list) != tt.n || (err == nil) != (tt.want == "") || err != nil && !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%q: %d reports, %v, want %d, %q", tt.text, len(list), err, tt.n, tt.want)
		}
		said = ""
		if err := r.plot(); err != nil || !strings.HasSuffix(said, tt.want) || (said == "") != (tt.want == "") {
			t.Errorf("%q: %v, warned of %q", tt.text, err, said)
		}
	}
}

func TestLossCurve(t *testing.T) {
	dir := t.TempDir()
	r := openRun(t, dir, false)
	if err := r.plot(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "loss.png")); !os.IsNotExist(err) {
		t.Errorf("a curve of nothing was drawn: %v", err)
	}
	for i := range 50 {
		loss := 5 * math.Exp(-float64(i)/20)
		rep := Report{Step: int64(i), Loss: &loss}
		if i%10 == 0 {
			rep.ValLoss = &loss
		}
		if err := r.record(rep); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.plot(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "loss.png"))
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil || img.Bounds().Dx() < 400 || img.Bounds().Dy() < 300 {
		t.Errorf("%v, size %v", err, img.Bounds())
	}
	svg, err := os.ReadFile(filepath.Join(dir, "loss.svg"))
	if err != nil || !bytes.Contains(svg, []byte("<svg")) || !bytes.Contains(svg, []byte("validation")) {
		t.Errorf("loss.svg: %v, %d bytes", err, len(svg))
	}
}

// Whatever stands in a run folder's files, reading it is an error or not, and
// nothing worse.
func FuzzState(f *testing.F) {
	c := checkpointFile{Format: checkpointFormat, Settings: map[string]string{"lr": "1"}, State: state{Step: 3, Best: &Best{3, 1.5}}, Files: map[string]fileHash{}}
	text, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"step":1,"epoch":0.5,"loss":2.5,"tokens":8,"timing":{"elapsed_s":1}}` + "\n" + `{"st`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		r := &Run{cfg: RunConfig{Dir: dir, WeightsName: "params.gguf"}}
		if err := os.MkdirAll(r.dir(3), 0o777); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Join(r.dir(3), stateFileName), filepath.Join(dir, metricsName)} {
			if err := os.WriteFile(path, text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.readCheckpoint(3); err == nil {
			t.Error("a checkpoint without files was taken")
		}
		if reports, err := Reports(dir); err == nil {
			if c, ok := lossCurve(reports); ok {
				if _, err := c.PNG(); err != nil {
					t.Errorf("loss curve: %v", err)
				}
			}
		}
	})
}
