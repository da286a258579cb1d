package opt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Only the newest checkpoint that is whole counts.
func TestDamagedCheckpoint(t *testing.T) {
	needEngine(t)
	t.Parallel() // most of the time is waiting for the disk
	whole := t.TempDir()
	cfg := testConfig()
	cfg.SaveEvery, cfg.EvalEvery, cfg.Run = 60, 100, openRun(t, whole, false)
	mustFit(t, newBigram(16), cfg)
	want := results(t, whole, "75")
	for _, file := range []string{"params.gguf", optimizerName, stateFileName} {
		for _, damage := range []string{"cut", "flip", "remove"} {
			t.Run(damage+" "+file, func(t *testing.T) {
				t.Parallel()
				dir, cfg := t.TempDir(), cfg
				cfg.Run = openRun(t, dir, false)
				mustFit(t, newBigram(16), cfg)
				if err := cfg.Run.Close(); err != nil {
					t.Fatal(err)
				}
				damageFile(t, filepath.Join(dir, checkpointsName, "step-75", file), damage)
				warned := ""
				run, err := OpenRun(RunConfig{Dir: dir, Resume: true, Keep: 2, Settings: map[string]string{"lr": "0.05"}}, func(s string) { warned = s })
				if err != nil {
					t.Fatal(err)
				}
				m := newBigram(16)
				cfg.Run = run
				mustFit(t, m, cfg)
				if err := run.Close(); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(warned, "step-75") || m.calls == 0 {
					t.Errorf("warned %q, %d calls", warned, m.calls)
				}
				if got := results(t, dir, "75"); !reflect.DeepEqual(got, want) {
					t.Error("the resumed run ends differently")
				}
			})
		}
	}
}

func damageFile(t *testing.T, path, damage string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch damage {
	case "cut":
		err = os.WriteFile(path, b[:len(b)/2], 0o666)
	case "flip":
		b[len(b)/2] ^= 1
		err = os.WriteFile(path, b, 0o666)
	case "remove":
		err = os.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An error while saving leaves the checkpoints there were.
func TestSaveFails(t *testing.T) {
	needEngine(t)
	t.Parallel() // most of the time is waiting for the disk
	dir := t.TempDir()
	m := newBigram(16)
	full, saves := errors.New("no space left"), 0
	run, err := OpenRun(RunConfig{Dir: dir, Keep: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := run.writeWeights(m.Params())
	run.cfg.WriteWeights = nil
	cfg := testConfig()
	cfg.Run, cfg.SaveEvery = run, 5
	cfg.OnReport = func(Report) {
		if saves++; saves == 12 {
			cfg.Run.cfg.WriteWeights = func(path string) error {
				if err := write(path); err != nil {
					return err
				}
				return full
			}
		}
	}
	_, err = Fit(context.Background(), m, walk(1, 100, 16), nil, cfg)
	if !errors.Is(err, full) {
		t.Fatalf("%v, want the error of the write", err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, checkpointsName))
	if err != nil || len(entries) != 2 || entries[1].Name() != "step-5" {
		t.Errorf("%v (%v), want step-10 and step-5", entries, err)
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
}

func TestRunFolderRefuses(t *testing.T) {
	needEngine(t)
	t.Parallel() // most of the time is waiting for the disk
	dir := t.TempDir()
	cfg := testConfig()
	cfg.MaxSteps, cfg.Run = 3, openRun(t, dir, false)
	mustFit(t, newBigram(16), cfg)
	if _, err := OpenRun(RunConfig{Dir: dir, Resume: true}, nil); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a folder in use: %v", err)
	}
	if err := cfg.Run.Close(); err != nil {
		t.Fatal(err)
	}
	var exists *RunExistsError
	if _, err := OpenRun(RunConfig{Dir: dir}, nil); !errors.As(err, &exists) {
		t.Errorf("a folder with a run: %v", err)
	}
	r, err := OpenRun(RunConfig{Dir: dir, Resume: true, Settings: map[string]string{"lr": "0.1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Run = r
	var other *SettingsError
	if _, err := Fit(context.Background(), newBigram(16), walk(1, 100, 16), nil, cfg); !errors.As(err, &other) || other.Key != "lr" || other.Want != "0.05" {
		t.Errorf("other settings: %v", err)
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
