package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gollama/internal/engine"
)

// settingsOf reads a command line as main does, up to the settings.
func settingsOf(cmd string, args []string, getenv func(string) string) (*options, []string, error) {
	c := findCommand(cmd)
	line, written, help, err := canonical(cmd, args)
	if err != nil || help {
		return nil, nil, err
	}
	values, rest, err := parseWithCLI(c, line)
	if err != nil {
		return nil, nil, err
	}
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	o, err := (&env{getenv: getenv}).settings(c, values, written)
	return o, rest, err
}

func TestFlagTable(t *testing.T) {
	for _, cmd := range commandNames() {
		seen := map[string]string{}
		add := func(name, flag string) {
			if old, ok := seen[name]; ok {
				t.Errorf("%s: %s is in the table for --%s and --%s", cmd, name, old, flag)
			}
			if isHelp(name) {
				t.Errorf("%s: --%s takes %s from the help", cmd, flag, name)
			}
			seen[name] = flag
		}
		for _, f := range flagTable {
			if !f.takenBy(cmd) {
				continue
			}
			add("--"+f.name, f.name)
			for _, a := range f.alias {
				add(a, f.name)
			}
			for name := range f.fixed {
				add(name, f.name)
			}
			if f.env != "" {
				add(f.env, f.name)
			}
		}
	}
	for _, f := range flagTable {
		refused := f.reject != ""
		switch {
		case f.set == nil:
			t.Errorf("--%s: no set", f.name)
		case !refused && (f.group == "" || f.help == ""):
			t.Errorf("--%s: no group or no help", f.name)
		case f.takesValue() != (f.arg != ""):
			t.Errorf("--%s: takesValue %v with arg %q", f.name, f.takesValue(), f.arg)
		case f.kind == kindList && f.reset == nil:
			t.Errorf("--%s: a list without reset", f.name)
		case f.in == "":
			t.Errorf("--%s: in no subcommand", f.name)
		}
		for _, text := range []string{f.help, f.reject} {
			if strings.HasSuffix(text, ".") {
				t.Errorf("--%s: %q ends with a full stop", f.name, text)
			}
		}
	}
}

// TestDefaultsAreValid sets each flag to what it is without being set.
func TestDefaultsAreValid(t *testing.T) {
	for _, f := range flagTable {
		if f.get == nil {
			continue
		}
		o := defaultOptions()
		switch v := f.get(o).(type) {
		case nil, []string:
		default:
			text := fmt.Sprint(v)
			if text == "" {
				continue
			}
			if err := f.set(o, text); err != nil {
				t.Errorf("--%s %s, its default: %v", f.name, text, err)
			}
		}
	}
}

var (
	upstreamFlag     = regexp.MustCompile(`"(--?[a-zA-Z][a-zA-Z0-9-]*)"`)
	upstreamExamples = regexp.MustCompile(`set_examples\(\{?([^)}]*)`)
)

// upstreamFlags returns the spellings of each of an upstream tool's flags, by
// what common/arg.cpp says: those of the given LLAMA_EXAMPLE, of all tools, and
// of the sampling group.
func upstreamFlags(source, example string) [][]string {
	var flags [][]string
	for _, opt := range strings.Split(source, "add_opt(common_arg(")[1:] {
		if i := strings.Index(opt, "\n    ))"); i >= 0 && !strings.Contains(opt[:i], "set_examples") {
			opt = opt[:i]
		}
		if m := upstreamExamples.FindStringSubmatch(opt); m != nil &&
			!strings.Contains(strings.Replace(m[1], "mmproj_examples", "LLAMA_EXAMPLE_MTMD", 1), example) && !strings.Contains(m[1], "LLAMA_EXAMPLE_COMMON") {
			continue
		}
		head := opt
		for _, end := range []string{"string_format(", "[](", "\",\n"} {
			if i := strings.Index(head, end); i >= 0 {
				head = head[:i]
			}
		}
		var names []string
		for _, m := range upstreamFlag.FindAllStringSubmatch(head, -1) {
			names = append(names, m[1])
		}
		if len(names) > 0 && !isHelp(names[0]) {
			flags = append(flags, names)
		}
	}
	return flags
}

// upstreamTools are the subcommands that stand in for a tool with llama.cpp's common flags, and its LLAMA_EXAMPLE.
var upstreamTools = map[string]string{
	"run": "LLAMA_EXAMPLE_COMPLETION", "mtmd": "LLAMA_EXAMPLE_MTMD", "imatrix": "LLAMA_EXAMPLE_IMATRIX", "cvector-generate": "LLAMA_EXAMPLE_CVECTOR_GENERATOR",
	"export-lora": "LLAMA_EXAMPLE_EXPORT_LORA", "finetune": "LLAMA_EXAMPLE_FINETUNE", "tokenize": "LLAMA_EXAMPLE_TOKENIZE",
}

// upstreamSource returns the text of common/arg.cpp.
func upstreamSource(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("../../.engine/src/common/arg.cpp")
	if err != nil {
		t.Skipf("the engine's sources are not here: %v", err)
	}
	return string(source)
}

// upstreamHint returns "" for a flag that a subcommand takes, and else why it does not.
func upstreamHint(t *testing.T, cmd, flag string) string {
	t.Helper()
	if s, ok := lookup(spellings(cmd), flag); ok {
		return s.flag.reject
	}
	err := unknownFlag(cmd, spellings(cmd), flag)
	if strings.HasPrefix(err.Error(), "unknown flag") {
		t.Errorf("%s: %s is a flag of upstream's tool: %v", cmd, flag, err)
	}
	return err.hint
}

// TestUpstreamFlags: every flag of the tool that a subcommand stands in for is
// either taken or refused with a hint that says why.
func TestUpstreamFlags(t *testing.T) {
	source := upstreamSource(t)
	for cmd, example := range upstreamTools {
		names := slices.Concat(upstreamFlags(source, example)...)
		if len(names) < 150 {
			t.Fatalf("%d flags found of %s, want 150 or more", len(names), example)
		}
		for _, n := range names {
			upstreamHint(t, cmd, n)
		}
	}
	for _, n := range strings.Fields("--threads -t --device -d --host -H --port -p --cache -c") { // rpc-server has a parser of its own
		if why := upstreamHint(t, "rpc-server", n); why != "" {
			t.Errorf("rpc-server: %s is refused: %s", n, why)
		}
	}
}

func TestSettings(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i+1 < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	cpus := func(lo, hi int) (list []int) {
		for c := lo; c <= hi; c++ {
			list = append(list, c)
		}
		return list
	}
	for _, tt := range []struct {
		name string
		args string
		env  func(string) string
		get  func(o *options) any
		want any
	}{
		{"last spelling wins", "-c 1 --ctx-size 2 --ctx_size=3 -c 4", nil, func(o *options) any { return o.NCtx }, 4},
		{"one dash for a long name", "-ctx-size 5", nil, func(o *options) any { return o.NCtx }, 5},
		{"environment", "", env("LLAMA_ARG_CTX_SIZE", "7"), func(o *options) any { return o.NCtx }, 7},
		{"line over environment", "-c 8", env("LLAMA_ARG_CTX_SIZE", "7"), func(o *options) any { return o.NCtx }, 8},
		{"empty environment", "", env("LLAMA_ARG_CTX_SIZE", ""), func(o *options) any { return o.NCtx }, 0},
		{"negated", "--no-warmup", nil, func(o *options) any { return o.Warmup }, false},
		{"negated, then not", "--no-warmup --warmup", nil, func(o *options) any { return o.Warmup }, true},
		{"value for a switch", "--warmup=off", nil, func(o *options) any { return o.Warmup }, false},
		{"opposite field", "-nkvo", nil, func(o *options) any { return o.NoKVOffload }, true},
		{"negated by environment", "", env("LLAMA_ARG_NO_REPACK", "1"), func(o *options) any { return o.NoExtraBufts }, true},
		{"shift by environment", "", env("LLAMA_ARG_CONTEXT_SHIFT", "true"), func(o *options) any { return o.overflow }, "shift"},
		{"shift", "--context-shift", nil, func(o *options) any { return o.overflow }, "shift"},
		{"mlock", "--mlock", nil, func(o *options) any { return o.LoadMode }, engine.LoadMmapMlock},
		{"no mmap", "--no-mmap", nil, func(o *options) any { return o.LoadMode }, engine.LoadNone},
		{"negative number", "-n -2", nil, func(o *options) any { return o.NPredict }, -2},
		{"random seed", "-s -1", nil, func(o *options) any { return o.Sampling.Seed }, engine.RandomSeed},
		{"largest seed", "-s 4294967295", nil, func(o *options) any { return o.Sampling.Seed }, uint32(4294967295)},
		{"stops add up", "-r a --stop b,c --reverse-prompt d", nil, func(o *options) any { return o.Antiprompt }, []string{"a", "b,c", "d"}},
		{"logit bias", "-l 317-100 -l 5+1.5", nil, func(o *options) any { return o.Sampling.LogitBias }, []engine.LogitBias{{Token: 317, Bias: -100}, {Token: 5, Bias: 1.5}}},
		{"user's temperature", "--temp 0.8", nil, func(o *options) any { return o.Sampling.UserSamplingConfig }, engine.ConfigTemp},
		{"samplers by letters", "--sampler-seq kt", nil, func(o *options) any { return o.Sampling.Samplers }, []engine.SamplerType{engine.SamplerTopK, engine.SamplerTemperature}},
		{"layers", "-ngl all", nil, func(o *options) any { return o.NGPULayers }, -2},
		{"flash attention", "-fa 1", nil, func(o *options) any { return o.FlashAttnType }, engine.FlashAttnOn},
		{"LoRA", "--lora a.gguf,b.gguf --lora-scaled c:d.gguf:0.5", nil, func(o *options) any { return o.LoRAAdapters },
			[]engine.LoRAInfo{{Path: "a.gguf", Scale: 1}, {Path: "b.gguf", Scale: 1}, {Path: "c:d.gguf", Scale: 0.5}}},
		{"layer range", "--control-vector-layer-range 2 4", nil, func(o *options) any { return [2]int{o.ControlVectorLayerStart, o.ControlVectorLayerEnd} }, [2]int{2, 4}},
		{"metadata", "--override-kv a=int:4,b=bool:true", nil, func(o *options) any { return o.KVOverrides }, []engine.KVOverride{{Key: "a", Value: int64(4)}, {Key: "b", Value: true}}},
		{"CPU mask", "-C 0xf0", nil, func(o *options) any { return o.CPUParams.CPUMask }, cpus(4, 7)},
		{"CPU range", "-Cr 2-3", nil, func(o *options) any { return o.CPUParams.CPUMask }, cpus(2, 3)},
		{"fit target", "-fitt 1,2", nil, func(o *options) any { return o.FitParamsTarget }, []uint64{1 << 20, 2 << 20}},
		{"rope scale", "--rope-scale 4", nil, func(o *options) any { return o.RopeFreqScale }, float32(0.25)},
		{"DRY breakers replace", "--dry-sequence-breaker x --dry-sequence-breaker y", nil, func(o *options) any { return o.Sampling.DRYSequenceBreakers }, []string{"x", "y"}},
		{"what is always so", "-no-cnv --no-jinja --offline --simple-io --no-display-prompt", nil, func(o *options) any { return o.DisplayPrompt }, false},
		{"verbose", "-v", nil, func(o *options) any { return o.Verbosity }, 5},
		{"remote devices", "--rpc a:1,b:2", nil, func(o *options) any { return o.RPCServers }, []string{"a:1", "b:2"}},
		{"refused by environment", "", env("LLAMA_ARG_HF_REPO", "a", "LLAMA_ARG_N_PARALLEL", "4"), func(o *options) any { return len(o.warnings) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, rest, err := settingsOf("run", strings.Fields(tt.args), tt.env)
			if err != nil || len(rest) > 0 {
				t.Fatalf("%s: %v, rest %q", tt.args, err, rest)
			}
			if got := tt.get(o); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.args, got, tt.want)
			}
		})
	}
}

// TestWrongValues: every wrong value is a usage error that names the flag.
func TestWrongValues(t *testing.T) {
	for _, line := range []string{
		"-n 4x", "-n -3", "-n 1.5", "-n 99999999999", "-c -5", "-c x", "-b 0", "-ub 0", "-t 0", "-t -2", "-t 513", "-tb 0",
		"-s 5000000000", "-s -2", "-s x", "--top-p 7", "--top-p nan", "--top-p 0x1", "--temp -3", "--temp inf", "--min-p 2",
		"--top-k -2", "--repeat-last-n -1", "--repeat-penalty 0", "--presence-penalty inf", "--dry-base 0.5", "--mirostat 3",
		"--adaptive-decay 1", "--samplers top_k;bogus", "--sampler-seq kz", "-l 1", "-l x+1", "-l 1+x", "-l 1+-1", "-l -1+1", "-l +1",
		"--stop=", "--stop-token=", "--stop-token -1", "--keep -2", "--on-overflow no", "--format xml", "--logprobs -1",
		"-fa maybe", "-ctk f17", "-ctv x", "-lm x", "-lzm x", "--numa x", "--rope-scaling x", "--rope-scale 0", "-sm x", "-ts a", "-ts ,",
		"-mg -1", "-ngl -1", "-ngl some", "-fit maybe", "-fitt x", "-ot x", "-ot =CPU", "-ncmoe -1", "--rpc x", "--rpc x:0", "--rpc x:1,",
		"-dev ,", "-C xyz", "-C 0", "-Cr 5", "-Cr 3-2", "-Cr 0-512", "--cpu-strict 2", "--prio 4", "--poll 101",
		"--lora-scaled a", "--lora-scaled a:x", "--lora-scaled :1", "--lora=", "--control-vector-scaled a",
		"--control-vector-layer-range 2 1", "--control-vector-layer-range 0 1", "--override-kv a", "--override-kv a=b:c", "--override-kv a=int:x",
		"--override-kv a=bool:1", "--log-colors x", "-lv 6", "-m=", "-o=", "-f=", "--warmup=maybe", "--no-warmup=1", "--ignore-eos=x",
		"-m", "-p -n 3", "--control-vector-layer-range 1", "--nonsense", "-hf a", "-mu a", "-mli", "--in-prefix a",
		"-gan 2", "-dt 1", "-ptc 1", "--list-devices", "--reasoning maybe", "--reasoning-budget -2", "--reasoning-format x", "--now x", "--now -1",
		"--chat-template-kwargs []", "--chat-template-kwargs {", "--special-in-input x", "--messages=",
	} {
		t.Run(line, func(t *testing.T) {
			_, _, err := settingsOf("run", strings.Fields(line), nil)
			if code := exitCode(err); code != exitUsage {
				t.Errorf("%s: exit %d (%v), want %d", line, code, err, exitUsage)
			}
			name, _, _ := strings.Cut(strings.Fields(line)[0], "=")
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %q does not name %s", line, err, name)
			}
		})
	}
}

// TestNoPanic: no combination of flags and values panics, and every error is a
// usage error of one line.
func TestNoPanic(t *testing.T) {
	var names []string
	for _, f := range flagTable {
		names = append(names, "--"+f.name, strings.ReplaceAll("--"+f.name, "-", "_"))
		names = append(names, f.alias...)
		for n := range f.fixed {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	values := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "0", "-1", "1", "4x", "1e9", "on", "off", "auto", "all", "none",
		"a:1", "a=int:1", "1-2", "0x1f", "1,2", "x+1", "top_k", "k", ",", "-", "--", "=", "\x00", "\xff"}), rapid.SampledFrom(names))
	rapid.Check(t, func(t *rapid.T) {
		var args []string
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			name := rapid.OneOf(rapid.SampledFrom(names), rapid.String()).Draw(t, "name")
			switch rapid.IntRange(0, 2).Draw(t, "form") {
			case 0:
				args = append(args, name)
			case 1:
				args = append(args, name+"="+values.Draw(t, "value"))
			case 2:
				args = append(args, name, values.Draw(t, "value"))
			}
		}
		cmd := rapid.SampledFrom(commandNames()).Draw(t, "cmd")
		args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(strings.TrimLeft(a, "-"), "config") })
		o, _, err := settingsOf(cmd, args, func(string) string { return values.Draw(t, "env") })
		if err == nil && o != nil && o.grammarFile == "" && o.schemaFile == "" {
			err = o.finish(cmd)
		}
		if err == nil {
			return
		}
		if exitCode(err) != exitUsage {
			t.Fatalf("%q: %v is no usage error", args, err)
		}
		if strings.Contains(oneLine(err), "\n") {
			t.Fatalf("%q: %q has more than one line", args, err)
		}
	})
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errBrokenPipe, 0}, {fmt.Errorf("x: %w", errBrokenPipe), 0},
		{fmt.Errorf("model"), 1}, {&inputError{err: os.ErrNotExist}, 4}, {&incompleteError{"cut"}, 5},
		{&writeError{os.ErrPermission}, 6}, {usagef("x"), 64}, {fmt.Errorf("x: %w", errInterrupted), 130}, {errTerminated, 143},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("exitCode(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`a\nb`: "a\nb", `\t\r\\\"\'`: "\t\r\\\"'", `\x41\x4`: `A\x4`, `\q\`: `\q\`, `C:\new`: "C:\new", `\xzz`: `\xzz`,
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCSV(t *testing.T) {
	for in, want := range map[string][]string{
		"a,b": {"a", "b"}, `"a,b",c`: {"a,b", "c"}, `"a""b"`: {`a"b`}, `a"b`: {`a"b`}, "": {""},
	} {
		if got := splitCSV(in); !reflect.DeepEqual(got, want) {
			t.Errorf("splitCSV(%q) = %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		if got := splitCSV(joinCSV(s)); len(got) != 1 || got[0] != s {
			t.Fatalf("splitCSV(joinCSV(%q)) = %q", s, got)
		}
	})
}
