package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"gollama/internal/engine"
)

// options holds all settings of a subcommand: the engine's and the program's
// own.
type options struct {
	engine.Params

	promptGiven     bool // -p was given, empty or not
	stopTokens      []string
	overflow        string // error, shift or truncate
	logprobs        int    // alternatives a token; 0 is off
	promptLogprobs  bool
	format          string // text, json or jsonl
	requireComplete bool
	grammarFile     string
	schemaFile      string

	quiet         bool
	logFile       string
	logJSON       bool
	logColors     string
	logPrefix     bool
	logTimestamps bool

	config      string
	printConfig bool
	json        bool // version, devices

	given    map[string]level // flags that were set, by long name
	warnings []string         // to be said once logging is set up
}

// level is where a value came from; a higher one replaces a lower one.
type level int

const (
	levelDefault level = iota
	levelConfig
	levelEnv
	levelArgs
)

func defaultOptions() *options {
	p := engine.DefaultParams()
	return &options{
		Params: p, overflow: "error", format: "text",
		logColors: "auto", given: map[string]level{},
	}
}

func (o *options) isSet(name string) bool { return o.given[name] > levelDefault }

// assignment is one value for one flag, with the place it came from for
// messages.
type assignment struct {
	flag  *flagDef
	value string
	level level
	where string
}

// apply sets values in order. Lists, and flags that stand for one another,
// drop what a lower level gave them.
func (o *options) apply(list []assignment) error {
	shared := map[string]level{}
	for _, a := range list {
		key := a.flag.shareKey()
		if a.level > shared[key] {
			shared[key] = a.level
			for i := range flagTable {
				f := &flagTable[i]
				if f.shareKey() != key {
					continue
				}
				delete(o.given, f.name)
				if f.reset != nil {
					f.reset(o)
				}
			}
		}
		if a.flag.reject != "" && a.level == levelEnv {
			o.warnings = append(o.warnings, a.where+" is set, but has no effect here: "+a.flag.reject)
			continue
		}
		if a.flag.reject != "" {
			return usagef("%s: not supported", a.where).withHint("%s", a.flag.reject)
		}
		if strings.ContainsRune(a.value, 0) && a.flag.name != "prompt" {
			return usagef("%s: the value holds a zero byte", a.where)
		}
		if err := a.flag.set(o, a.value); err != nil {
			var u *usageError
			if errors.As(err, &u) && a.level == levelEnv {
				o.warnings = append(o.warnings, a.where+" is set, but has no effect here: "+u.hint)
				continue
			}
			if errors.As(err, &u) {
				return usagef("%s: %s", a.where, u.msg).withHint("%s", u.hint)
			}
			return usagef("%s: %s", a.where, err)
		}
		o.given[a.flag.name] = a.level
	}
	return nil
}

// finish checks what single values cannot show and reads the files that flags
// name. After it, nothing about the settings can be wrong but what only the
// model can tell.
func (o *options) finish(cmd string) error {
	b, m := &o.CPUParamsBatch, &o.CPUParams
	for name, inherit := range map[string]func(){
		"threads-batch":    func() { b.NThreads = m.NThreads },
		"cpu-strict-batch": func() { b.StrictCPU = m.StrictCPU },
		"prio-batch":       func() { b.Priority = m.Priority },
		"poll-batch":       func() { b.Poll = m.Poll },
	} {
		if !o.isSet(name) {
			inherit()
		}
	}
	if !o.isSet("cpu-mask-batch") && !o.isSet("cpu-range-batch") {
		b.CPUMask = m.CPUMask
	}
	if cmd != "run" {
		return nil
	}
	return o.finishRun()
}

func (o *options) finishRun() error {
	if o.isSet("prompt") && o.isSet("file") {
		return usagef("-p and -f both give a prompt: give one of them")
	}
	if o.Escape && o.isSet("file") && o.given["escape"] == levelArgs {
		return usagef("-e works on -p only; the bytes of -f are used as they are")
	}
	if o.isSet("prompt-logprobs") && o.promptLogprobs && o.format == "text" {
		return usagef("--prompt-logprobs needs a format that can show them").withHint("add --format json")
	}
	if o.logprobs > 0 && o.format == "text" {
		return usagef("--logprobs needs a format that can show them").withHint("add --format json")
	}
	o.CtxShift = o.overflow == "shift"
	o.Sampling.NProbs = o.logprobs
	if err := o.finishGrammar(); err != nil {
		return err
	}
	if o.NUBatch > o.NBatch && o.isSet("ubatch-size") && o.isSet("batch-size") {
		return usagef("-ub %d is larger than -b %d", o.NUBatch, o.NBatch)
	}
	if err := o.Params.Validate(); err != nil {
		return usagef("%s", oneLine(err))
	}
	return nil
}

// finishGrammar reads and checks grammar and schema, so that a wrong one never
// leaves the output unconstrained.
func (o *options) finishGrammar() error {
	var given []string
	for _, name := range []string{"grammar", "grammar-file", "json-schema", "json-schema-file"} {
		if o.isSet(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return usagef("%s: give one of them", strings.Join(given, " and "))
	}
	s := &o.Sampling
	for _, f := range []struct {
		path string
		to   *string
	}{{o.grammarFile, &s.Grammar}, {o.schemaFile, &s.JSONSchema}} {
		if f.path == "" {
			continue
		}
		data, err := os.ReadFile(f.path)
		if err != nil {
			return &inputError{err: err}
		}
		*f.to = string(data)
	}
	switch {
	case o.isSet("grammar"), o.isSet("grammar-file"):
		if err := engine.CheckGrammar(s.Grammar); err != nil && !errors.Is(err, engine.ErrNoCgo) {
			return usagef("%s: %s", given[0], oneLine(err))
		}
	case o.isSet("json-schema"), o.isSet("json-schema-file"):
		if _, err := engine.SchemaToGrammar(s.JSONSchema); err != nil && !errors.Is(err, engine.ErrNoCgo) {
			return usagef("%s: %s", given[0], oneLine(err))
		}
	}
	return nil
}

// structured says whether the output follows a grammar.
func (o *options) structured() bool { return o.Sampling.Grammar != "" || o.Sampling.JSONSchema != "" }

// The parsers below read the values that have a syntax of their own.

func parseSeed(s string) (uint32, error) {
	if s == "-1" {
		return engine.RandomSeed, nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	if err != nil || v < 0 || v > 1<<32-1 {
		return 0, fmt.Errorf("%s is out of range, want -1 (random) or 0 to %d", s, uint32(1<<32-1))
	}
	return uint32(v), nil
}

func parseLogitBias(s string) ([]engine.LogitBias, error) {
	bad := fmt.Errorf("%q: want TOKEN+BIAS or TOKEN-BIAS, such as 317-100", s)
	i := strings.IndexAny(s, "+-")
	if i <= 0 {
		return nil, bad
	}
	id, err := parseInt(s[:i], 0, 1<<31-1)
	if err != nil {
		return nil, bad
	}
	text := strings.ToLower(s[i+1:])
	if text == "" || strings.ContainsAny(text[:1], "+-") || strings.ContainsAny(text, "xp_") {
		return nil, bad
	}
	v, err := strconv.ParseFloat(text, 32)
	if err != nil || v != v {
		return nil, bad
	}
	if s[i] == '-' {
		v = -v
	}
	return []engine.LogitBias{{Token: engine.Token(id), Bias: float32(v)}}, nil
}

func textLogitBias(b engine.LogitBias) string { return fmt.Sprintf("%d%+g", b.Token, b.Bias) }

func parseOverrideKV(s string) ([]engine.KVOverride, error) {
	var list []engine.KVOverride
	for _, item := range splitCSV(s) {
		key, typed, ok := strings.Cut(item, "=")
		kind, value, ok2 := strings.Cut(typed, ":")
		if !ok || !ok2 || key == "" || len(key) > 127 {
			return nil, fmt.Errorf("%q: want KEY=TYPE:VALUE with TYPE int, float, bool or str", item)
		}
		kv := engine.KVOverride{Key: key}
		var err error
		switch kind {
		case "int":
			kv.Value, err = strconv.ParseInt(value, 10, 64)
		case "float":
			kv.Value, err = strconv.ParseFloat(value, 64)
		case "bool":
			if value != "true" && value != "false" {
				return nil, fmt.Errorf("%q: a bool is true or false", item)
			}
			kv.Value = value == "true"
		case "str":
			if len(value) > 127 {
				return nil, fmt.Errorf("%q: the text is longer than 127 bytes", item)
			}
			kv.Value = value
		default:
			return nil, fmt.Errorf("%q: unknown type %q, want one of int, float, bool, str", item, kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %q is not of type %s", item, value, kind)
		}
		list = append(list, kv)
	}
	return list, nil
}

func textOverrideKV(kv engine.KVOverride) string {
	kind := "str"
	switch kv.Value.(type) {
	case int64:
		kind = "int"
	case float64:
		kind = "float"
	case bool:
		kind = "bool"
	}
	return joinCSV(fmt.Sprintf("%s=%s:%v", kv.Key, kind, kv.Value))
}

// The regular expressions by which llama.cpp finds feed-forward weights
// (common.h, LLM_FFN_EXPS_REGEX and LLM_FFN_DENSE_REGEX).
const (
	expertTensors = `\.ffn_(up|down|gate|gate_up)_(ch|)exps`
	denseTensors  = `\.ffn_(up|down|gate)\.`
)

func parseOverrideTensor(s string) ([]engine.TensorBuftOverride, error) {
	var list []engine.TensorBuftOverride
	for _, item := range strings.Split(s, ",") {
		pattern, buft, ok := strings.Cut(item, "=")
		if !ok || pattern == "" || buft == "" {
			return nil, fmt.Errorf("%q: want PATTERN=BUFFER, such as ffn=CPU", item)
		}
		list = append(list, engine.TensorBuftOverride{Pattern: pattern, Buft: buft})
	}
	return list, nil
}

func textOverrideTensor(t engine.TensorBuftOverride) string { return t.Pattern + "=" + t.Buft }

// firstLayersOnCPU binds -ncmoe and -ncffn.
func firstLayersOnCPU(tensors string) binding {
	return binding{kind: kindInt, set: func(o *options, s string) error {
		n, err := parseInt(s, 0, 10000)
		if err != nil {
			return err
		}
		for i := range n {
			o.TensorBuftOverrides = append(o.TensorBuftOverrides,
				engine.TensorBuftOverride{Pattern: fmt.Sprintf(`blk\.%d%s`, i, tensors), Buft: "CPU"})
		}
		return nil
	}}
}

// parseScaled reads FILE:SCALE,...; scaled false reads FILE,... with scale 1.
func parseScaled[T any](scaled bool, make func(path string, scale float32) T) func(string) ([]T, error) {
	return func(s string) ([]T, error) {
		var list []T
		for _, item := range splitCSV(s) {
			path, scale := item, float32(1)
			if scaled {
				i := strings.LastIndexByte(item, ':')
				if i < 0 {
					return nil, fmt.Errorf("%q: want FILE:SCALE", item)
				}
				v, err := parseFloat(item[i+1:], -maxFloat, maxFloat)
				if err != nil {
					return nil, fmt.Errorf("%q: want FILE:SCALE: %w", item, err)
				}
				path, scale = item[:i], v
			}
			if path == "" {
				return nil, errors.New("the file name is empty")
			}
			list = append(list, make(path, scale))
		}
		return list, nil
	}
}

func textScaled(path string, scale float32) string {
	return joinCSV(path + ":" + strconv.FormatFloat(float64(scale), 'g', -1, 32))
}

func parseCPUMask(s string) ([]int, error) {
	digits := strings.TrimPrefix(s, "0x")
	if digits == "" || len(digits) > 128 {
		return nil, fmt.Errorf("%q is not a CPU mask of 1 to 128 hexadecimal digits", s)
	}
	var cpus []int
	for i := len(digits) - 1; i >= 0; i-- {
		d, err := strconv.ParseUint(digits[i:i+1], 16, 8)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CPU mask of hexadecimal digits", s)
		}
		for bit := range 4 {
			if d>>bit&1 == 1 {
				cpus = append(cpus, (len(digits)-1-i)*4+bit)
			}
		}
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("the mask %q holds no CPU", s)
	}
	return cpus, nil
}

func parseCPURange(s string) ([]int, error) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		return nil, fmt.Errorf("%q: want LO-HI, such as 0-3", s)
	}
	lo, hi := 0, maxCPUs-1
	var err error
	if a != "" {
		if lo, err = parseInt(a, 0, maxCPUs-1); err != nil {
			return nil, err
		}
	}
	if b != "" {
		if hi, err = parseInt(b, 0, maxCPUs-1); err != nil {
			return nil, err
		}
	}
	if hi < lo {
		return nil, fmt.Errorf("the range %q is empty", s)
	}
	cpus := make([]int, 0, hi-lo+1)
	for c := lo; c <= hi; c++ {
		cpus = append(cpus, c)
	}
	return cpus, nil
}

// cpuVar binds a CPU mask or range; both add to the same set.
func cpuVar(p func(*options) *[]int, parse func(string) ([]int, error), printed bool) binding {
	b := binding{
		kind: kindString,
		set: func(o *options, s string) error {
			cpus, err := parse(s)
			if err != nil {
				return err
			}
			seen := map[int]bool{}
			for _, c := range *p(o) {
				seen[c] = true
			}
			for _, c := range cpus {
				if !seen[c] {
					*p(o) = append(*p(o), c)
				}
			}
			slices.Sort(*p(o))
			return nil
		},
		reset: func(o *options) { *p(o) = nil },
	}
	if printed {
		b.get = func(o *options) any { return textCPUMask(*p(o)) }
	}
	return b
}

// textCPUMask writes the mask that parseCPUMask reads; none is "".
func textCPUMask(cpus []int) string {
	if len(cpus) == 0 {
		return ""
	}
	top := 0
	for _, c := range cpus {
		top = max(top, c)
	}
	digits := make([]byte, top/4+1)
	for _, c := range cpus {
		digits[len(digits)-1-c/4] |= 1 << (c % 4)
	}
	for i, d := range digits {
		digits[i] = "0123456789abcdef"[d]
	}
	return "0x" + string(digits)
}

func parseLayers(s string) (int, error) {
	switch s {
	case "auto":
		return -1, nil
	case "all":
		return -2, nil
	}
	v, err := parseInt(s, 0, 1<<31-1)
	if err != nil {
		return 0, fmt.Errorf("%w; or auto, or all", err)
	}
	return v, nil
}

func textLayers(n int) any {
	switch {
	case n == -1:
		return "auto"
	case n < -1:
		return "all"
	}
	return n
}

// parseNumbers reads N,N,... or N/N/...
func parseNumbers(s string) ([]float32, error) {
	var list []float32
	for _, item := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '/' }) {
		v, err := parseFloat(item, 0, maxFloat)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if len(list) == 0 || len(list) > maxDevices {
		return nil, fmt.Errorf("%q: want 1 to %d numbers with commas between", s, maxDevices)
	}
	return list, nil
}

func parseMiB(s string) ([]uint64, error) {
	var list []uint64
	for _, item := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '/' }) {
		v, err := parseInt(item, 0, 1<<40)
		if err != nil {
			return nil, err
		}
		list = append(list, uint64(v)<<20)
	}
	if len(list) == 0 || len(list) > maxDevices {
		return nil, fmt.Errorf("%q: want 1 to %d numbers of MiB with commas between", s, maxDevices)
	}
	return list, nil
}

// parseList reads words with commas between, none of them empty.
func parseList(s string) ([]string, error) {
	list := strings.Split(s, ",")
	for i := range list {
		if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
			return nil, fmt.Errorf("%q holds an empty name", s)
		}
	}
	return list, nil
}

func parseEndpoints(s string) ([]string, error) {
	list, err := parseList(s)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		i := strings.LastIndexByte(e, ':')
		if i <= 0 {
			return nil, fmt.Errorf("%q: want HOST:PORT", e)
		}
		if _, err := parseInt(e[i+1:], 1, 65535); err != nil {
			return nil, fmt.Errorf("%q: port %w", e, err)
		}
	}
	return list, nil
}

// unescape replaces \n, \r, \t, \', \", \\ and \xHH as llama.cpp does
// (common.cpp, string_process_escapes); other backslashes stay.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case '\'', '"', '\\':
			b.WriteByte(s[i])
		case 'x':
			if i+2 < len(s) {
				if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(v))
					i += 2
					continue
				}
			}
			b.WriteString(`\x`)
		default:
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// readAll reads a whole stream or file; "-" is stdin.
func readAll(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return data, nil
	}
	return os.ReadFile(path)
}
