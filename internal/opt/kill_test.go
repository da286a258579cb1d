//go:build unix

package opt

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"gollama/internal/opt/data"
)

// childDir tells the test binary that it is the process to be killed.
const childDir = "GOLLAMA_OPT_TEST_RUN"

// killConfig saves often, so that many of the kills hit a save.
func killConfig() Config {
	cfg := testConfig()
	cfg.SaveEvery, cfg.EvalEvery = 2, 11
	return cfg
}

// slowly makes a run long enough to be hit.
type slowly struct{ examples }

func (s slowly) Example(i int) (*data.Example, error) {
	time.Sleep(time.Millisecond)
	return s.examples.Example(i)
}

// TestKillChild trains in the folder that the environment names; without it,
// there is nothing to do.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	run, err := OpenRun(RunConfig{Dir: dir, Resume: true, Keep: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := killConfig()
	cfg.Run = run
	if _, err := Fit(context.Background(), newBigram(16), slowly{walk(1, 100, 16)}, walk(2, 20, 16), cfg); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
}

// A run that is killed at random moments, also while it saves, and resumed each
// time, ends with the same bits as one that is left alone.
func TestKill(t *testing.T) {
	needEngine(t)
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole := t.TempDir()
	cfg := killConfig()
	cfg.Run = openRun(t, whole, false)
	mustFit(t, newBigram(16), cfg)
	want := results(t, whole, "75")

	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	dir := filepath.Join(t.TempDir(), "run")
	halves := 0
	for kills := 0; ; {
		cmd := exec.Command(self, "-test.run=^TestKillChild$")
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if kills < nKills {
			kill := time.AfterFunc(time.Duration(20+rng.IntN(230))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
		}
		err := cmd.Wait()
		if left, _ := filepath.Glob(filepath.Join(dir, checkpointsName, ".*")); len(left) > 0 {
			halves++
		}
		if err == nil {
			if kills >= nKills {
				break
			}
			// The run was over before its kill: begin another.
			if got := results(t, dir, "75"); !reflect.DeepEqual(got, want) {
				t.Fatalf("after %d kills the run ends differently", kills)
			}
			dir = filepath.Join(t.TempDir(), "run")
			continue
		}
		if cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("after %d kills: %v", kills, err)
		}
		kills++
	}
	if got := results(t, dir, "75"); !reflect.DeepEqual(got, want) {
		t.Error("the run ends differently")
	}
	t.Logf("%d kills, %d of them during a save", nKills, halves)
}
