package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"gollama/internal/builtin"
)

// block returns the first code block of a page, of the given language, that has a text in it.
func block(t *testing.T, page, language, with string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], with) {
			return m[1]
		}
	}
	t.Fatalf("%s has no block of %s with %q", page, language, with)
	return ""
}

// indexedJob is what counts of a Kubernetes Job.
type indexedJob struct {
	Spec struct {
		CompletionMode       string `yaml:"completionMode"`
		Completions          int
		BackoffLimitPerIndex int `yaml:"backoffLimitPerIndex"`
		PodFailurePolicy     struct {
			Rules []struct {
				Action      string
				OnExitCodes struct {
					Operator string
					Values   []int
				} `yaml:"onExitCodes"`
			}
		} `yaml:"podFailurePolicy"`
		Template struct {
			Spec struct {
				RestartPolicy string `yaml:"restartPolicy"`
				Containers    []struct {
					Command, Args []string
				}
			}
		}
	}
}

// shardTexts returns the texts, or the codes of the errors, by the id of the record.
func shardTexts(t *testing.T, files ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var r struct {
				ID, Text string
				Error    struct{ Code string }
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if _, ok := found[r.ID]; ok {
				t.Errorf("%s: record %s was done twice", f, r.ID)
			}
			found[r.ID] = r.Text + r.Error.Code
		}
	}
	return found
}

// The two manifests of docs/batch.md, their tasks run one by one as the cluster would run them: together they make what
// one process makes, and a task whose records failed has done its work.
func TestManifests(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	dir := t.TempDir()
	model, err := builtin.Model()
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	weights, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	write("model.gguf", weights)
	requests := "{\"id\":\"bad\",\"prompt\":7}\n"
	for i := range 17 {
		requests += fmt.Sprintf("{\"id\":\"r%d\",\"prompt\":\"Once upon a time\",\"max_tokens\":6}\n", i)
	}
	write("requests.jsonl", []byte(requests))
	run := func(script string, env ...string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", env, err, out)
		}
	}
	run("gollama run -q -m model.gguf --records requests.jsonl -o whole.jsonl || [ $? = 3 ]")
	want := shardTexts(t, filepath.Join(dir, "whole.jsonl"))
	if len(want) != 18 {
		t.Fatalf("%d records in one run, want 18", len(want))
	}
	compare := func(tasks int) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "answers-*.jsonl"))
		if err != nil || len(files) != tasks {
			t.Fatalf("%d files, want %d (%v)", len(files), tasks, err)
		}
		if got := shardTexts(t, files...); !maps.Equal(got, want) {
			t.Errorf("the tasks made\n%v\nand one run\n%v", got, want)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}

	script := block(t, "../../docs/batch.md", "sh", "#SBATCH")
	var first, last int
	if _, err := fmt.Sscanf(regexp.MustCompile(`--array=[0-9-]+`).FindString(script), "--array=%d-%d", &first, &last); err != nil {
		t.Fatal(err)
	}
	for i := first; i <= last; i++ {
		run(script, fmt.Sprint("SLURM_ARRAY_TASK_ID=", i), fmt.Sprint("SLURM_ARRAY_TASK_COUNT=", last-first+1), fmt.Sprint("SLURM_ARRAY_TASK_MIN=", first))
	}
	compare(last - first + 1)

	var job indexedJob
	if err := yaml.Unmarshal([]byte(block(t, "../../docs/batch.md", "yaml", "kind: Job")), &job); err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.Template.Spec
	// Kubernetes takes a podFailurePolicy with this restartPolicy only, and counts by index in indexed Jobs only.
	if pod.RestartPolicy != "Never" || job.Spec.CompletionMode != "Indexed" || job.Spec.BackoffLimitPerIndex == 0 || len(pod.Containers) != 1 {
		t.Errorf("%+v", job)
	}
	for _, r := range job.Spec.PodFailurePolicy.Rules {
		if r.Action != "FailJob" || !slices.Equal(r.OnExitCodes.Values, []int{exitUsage}) {
			t.Errorf("rule %+v", r)
		}
	}
	c := pod.Containers[0]
	if !slices.Equal(c.Command, []string{"sh", "-c"}) || len(c.Args) != 1 {
		t.Fatalf("command %q, args %q", c.Command, c.Args)
	}
	for i := range job.Spec.Completions {
		run(strings.ReplaceAll(c.Args[0], "/data/", dir+"/"), fmt.Sprint("JOB_COMPLETION_INDEX=", i))
	}
	compare(job.Spec.Completions)
}
