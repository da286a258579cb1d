package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		name, yaml string
		get        func(o *options) any
		want       any
	}{
		{"top", "ctx-size: 512\n", func(o *options) any { return o.NCtx }, 512},
		{"underscores", "ctx_size: 512\n", func(o *options) any { return o.NCtx }, 512},
		{"section over top", "run:\n  temp: 0\ntemp: 1\n", func(o *options) any { return o.Sampling.Temp }, float32(0)},
		{"int for a float", "temp: 1\n", func(o *options) any { return o.Sampling.Temp }, float32(1)},
		{"list", "stop: [a, b]\n", func(o *options) any { return o.Antiprompt }, []string{"a", "b"}},
		{"one of a list", "stop: a\n", func(o *options) any { return o.Antiprompt }, []string{"a"}},
		{"word or number", "n-gpu-layers: 4\n", func(o *options) any { return o.NGPULayers }, 4},
		{"on", "flash-attn: on\n", func(o *options) any { return o.FlashAttnType.String() }, "on"},
		{"another's section", "version:\n  json: true\n", func(o *options) any { return o.json }, false},
		{"another's key", "json: true\n", func(o *options) any { return o.json }, false},
		{"empty", "", func(o *options) any { return o.NCtx }, 0},
		{"comment only", "# nothing\n", func(o *options) any { return o.NCtx }, 0},
		{"empty section", "run:\n", func(o *options) any { return o.NCtx }, 0},
		{"anchor", "temp: &t 0.5\nrun:\n  top-p: *t\n", func(o *options) any { return o.Sampling.TopP }, float32(0.5)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := defaultOptions()
			list, err := configAssignments("run", "c.yaml", []byte(tt.yaml))
			if err == nil {
				err = o.apply(list)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.get(o); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct{ name, yaml, want string }{
		{"unknown key", "temp: 1\nbogus: 2\n", `c.yaml:2: unknown key "bogus"`},
		{"unknown in a section", "run:\n  bogus: 2\n", `c.yaml:2: unknown key "bogus"`},
		{"unknown in another section", "version:\n  temp: 2\n", `c.yaml:2: unknown key "temp"`},
		{"alias", "t: 2\n", `c.yaml:1: unknown key "t"`},
		{"duplicate", "temp: 1\ntemp: 2\n", `c.yaml:2: "temp" is given twice`},
		{"duplicate by underscore", "top-p: 1\ntop_p: 1\n", `c.yaml:2: "top_p" is given twice`},
		{"fraction for an int", "predict: 1.5\n", `c.yaml:1: "predict": want a whole number, got 1.5`},
		{"text for an int", "predict: \"1\"\n", `c.yaml:1: "predict": want a whole number, got the text "1"`},
		{"text for a float", "temp: hot\n", `c.yaml:1: "temp": want a number`},
		{"infinite", "temp: .inf\n", `c.yaml:1: "temp": want a number`},
		{"number for a text", "prompt: 5\n", `c.yaml:1: "prompt": want text, got 5`},
		{"word for a switch", "warmup: maybe\n", `c.yaml:1: "warmup": want true or false`},
		{"list for one", "temp: [1]\n", `c.yaml:1: "temp": want a number, got a list`},
		{"mapping for one", "temp: {a: 1}\n", `c.yaml:1: "temp": want a number, got keys and values`},
		{"nothing for one", "temp:\n", `c.yaml:1: "temp": want a number, got nothing`},
		{"out of range", "a: &x 7\ntop-p: 7\n", `c.yaml:1: unknown key "a"`},
		{"range", "top-p: 7\n", `c.yaml:1: top-p: 7 is too large`},
		{"refused", "hf-repo: a\n", `c.yaml:1: "hf-repo": not supported`},
		{"config in config", "config: a\n", `c.yaml:1: unknown key "config"`},
		{"no mapping", "- a\n", `c.yaml:1: want keys and values`},
		{"two documents", "temp: 1\n---\ntemp: 2\n", `more than one YAML document`},
		{"broken", "temp: [1\n", `c.yaml: line`},
		{"empty stop", "stop: ['']\n", `c.yaml:1: stop: an empty stop`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, err := configAssignments("run", "c.yaml", []byte(tt.yaml))
			if err == nil {
				err = defaultOptions().apply(list)
			}
			if exitCode(err) != exitUsage || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want a usage error with %q", err, tt.want)
			}
		})
	}
}

// TestPrecedence: defaults, config, environment, command line; a list of a
// higher level replaces the lower one's.
func TestPrecedence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("top-k: 1\ntop-p: 0.1\nmin-p: 0.1\nstop: [a, b]\nlora: [x]\nprompt: from config\nrope-scale: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) string {
		return map[string]string{"LLAMA_ARG_TOP_P": "0.2", "LLAMA_ARG_MIN_P": "0.2"}[name]
	}
	o, _, err := settingsOf("run", []string{"--config", path, "--min-p", "0.3", "-r", "c", "-r", "d", "--lora-scaled", "y:2", "-f", "file", "--rope-freq-scale", "0.1"}, env)
	if err != nil {
		t.Fatal(err)
	}
	s := o.Sampling
	if s.TopK != 1 || s.TopP != 0.2 || s.MinP != 0.3 || s.Temp != 0.8 {
		t.Errorf("top-k %d, top-p %g, min-p %g, temp %g, want 1, 0.2, 0.3, 0.8", s.TopK, s.TopP, s.MinP, s.Temp)
	}
	if !reflect.DeepEqual(o.Antiprompt, []string{"c", "d"}) {
		t.Errorf("stop: %q, want c and d", o.Antiprompt)
	}
	if len(o.LoRAAdapters) != 1 || o.LoRAAdapters[0].Path != "y" {
		t.Errorf("lora: %v, want y", o.LoRAAdapters)
	}
	if o.promptGiven || o.PromptFile != "file" || o.isSet("prompt") {
		t.Errorf("prompt %q, file %q, want the file", o.Prompt, o.PromptFile)
	}
	if o.RopeFreqScale != 0.1 {
		t.Errorf("rope-freq-scale %g, want 0.1", o.RopeFreqScale)
	}
}

// TestPrintConfig: what --print-config writes gives the same settings.
func TestPrintConfig(t *testing.T) {
	text := rapid.StringN(1, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		args := []string{"--prompt=" + text.Draw(t, "prompt")}
		for _, flag := range []string{"stop", "dry-sequence-breaker"} {
			for range rapid.IntRange(0, 3).Draw(t, flag) {
				args = append(args, "--"+flag+"="+text.Draw(t, flag))
			}
		}
		pick := rapid.SampledFrom([]string{"--temp=0.3", "-ngl=3", "-ngl=all", "--flash-attn=on", "-C=f0", "-Cr=2-9", "--lora=a,b",
			"--lora-scaled=\"x,y:z\":0.25", "--control-vector-layer-range=1,3", "--override-kv=a=str:b,c=int:4,d=float:0.5", "-ot=x=CPU",
			"-cmoe", "-ncmoe=2", "--rpc=a:1,b:2", "-ts=1,2.5", "-fitt=3", "-s=5", "--samplers=", "--samplers=top_k;xtc", "--no-repack",
			"-l=5-inf", "-l=6+0.1", "--rope-scaling=yarn", "--stop-token=7", "-lm=none", "-fit=off", "--dry-sequence-breaker=none", "-c=77", "-t=3", "-tb=4",
			"--no-perf", "-dev=none", "--log-colors=off", "-v", "--grammar=root ::= \"a\"", "--cpu-strict=1", "--keep=-1"})
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			args = append(args, pick.Draw(t, "arg"))
		}
		a, _, err := settingsOf("run", args, nil)
		if err != nil {
			t.Skip(err) // texts with zero bytes
		}
		if err := a.finish("run"); err != nil {
			t.Skip(err)
		}
		var b bytes.Buffer
		if err := writeConfig(&b, "run", a); err != nil {
			t.Fatal(err)
		}
		list, err := configAssignments("run", "printed", b.Bytes())
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		again := defaultOptions()
		if err := again.apply(list); err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if err := again.finish("run"); err != nil {
			t.Fatal(err)
		}
		var c bytes.Buffer
		if err := writeConfig(&c, "run", again); err != nil {
			t.Fatal(err)
		}
		if b.String() != c.String() {
			t.Fatalf("printed, read and printed again:\n%s\nwant\n%s", c.String(), b.String())
		}
		a.given, again.given, a.places, again.places, a.stdin, again.stdin = nil, nil, nil, nil, nil, nil
		a.Sampling.UserSamplingConfig, again.Sampling.UserSamplingConfig = 0, 0
		if !reflect.DeepEqual(a, again) {
			t.Fatalf("got %+v\nwant %+v", again, a)
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, s := range []string{"", "temp: 1\nrun:\n  stop: [a, \"\\n\"]\n", "a: &a [*a]\n", "run: {run: {run: 1}}", "temp: !!binary aGk=\n",
		"<<: {temp: 1}\n", "? [a]\n: b\n", "predict: 1_000\n", "predict: 0x10\n", "temp: 1e400\n", "---\n---\n", "\x00", "prompt: |\n  x\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := configAssignments("run", "c.yaml", data)
		if err == nil {
			err = defaultOptions().apply(list)
		}
		if err != nil && exitCode(err) != exitUsage {
			t.Errorf("%v is no usage error", err)
		}
	})
}
