package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gollama/internal/engine"
)

// The test binary stands in for gollama. It uses one thread unless a test says otherwise: the models are so small that a
// second one costs more than it brings, and results do not depend on the number.
func TestMain(m *testing.M) {
	if os.Getenv(threadsEnv) == "" {
		_ = os.Setenv(threadsEnv, "1") // it cannot fail for this name
	}
	testscript.Main(m, map[string]func(){"gollama": main})
}

const threadsEnv = "LLAMA_ARG_THREADS"

// bash is a command line as a user types it, in dir, which is also the home. gollama is in the path: testscript.Main puts it
// there.
func bash(t *testing.T, dir, line string, env ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	cmd := exec.Command(path, "-c", line)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "HOME="+dir), env...)
	return cmd
}

const (
	storyModel  = "../../../shared/models/stories260K.gguf"
	storyVector = "../../internal/cvector/testdata/llama-mean.gguf" // a control vector for it
	// mediaFixtures has small projectors, text models for them, and media.
	mediaFixtures = "../../../shared/fixtures/mtmd"
)

// hasEngine tells a build with cgo from one without.
func hasEngine() bool { return engine.CheckGrammar(`root ::= "a"`) == nil }

func TestScripts(t *testing.T) {
	model, err := filepath.Abs(storyModel)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(model); err != nil {
		t.Logf("scripts with a model are skipped: %v", err)
		model = ""
	}
	fixtures, err := filepath.Abs(mediaFixtures)
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("S", model)
			e.Setenv(threadsEnv, "1")
			vector, err := filepath.Abs(storyVector)
			e.Setenv("V", vector)
			if err != nil {
				return err
			}
			e.Setenv("M", filepath.Join(fixtures, "models"))
			e.Setenv("P", filepath.Join(fixtures, "media"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "model":
				return model != "" && hasEngine(), nil
			case "engine":
				return hasEngine(), nil
			case "media":
				_, err := os.Stat(fixtures)
				return err == nil && hasEngine(), nil
			}
			return false, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// code N PROGRAM ARG... runs a program that must end with status N.
			"code": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: code N PROGRAM ARG...")
				}
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				got := 0
				if err := ts.Exec(args[1], args[2:]...); err != nil {
					exit, ok := err.(interface{ ExitCode() int })
					if !ok {
						ts.Fatalf("%v", err)
					}
					got = exit.ExitCode()
				}
				if got != want {
					ts.Fatalf("exit status %d, want %d", got, want)
				}
			},
			"adapter": adapterCommand,
			// lines LINE... compares standard output line by line.
			"lines": func(ts *testscript.TestScript, neg bool, args []string) {
				if got, want := ts.ReadFile("stdout"), strings.Join(args, "\n")+"\n"; neg || got != want {
					ts.Fatalf("standard output is %q, want %q", got, want)
				}
			},
			// output TEXT compares standard output byte for byte.
			"output": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: output TEXT")
				}
				if got := ts.ReadFile("stdout"); got != args[0] {
					ts.Fatalf("standard output is %q, want %q", got, args[0])
				}
			},
		},
	})
}
