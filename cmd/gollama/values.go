package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"gollama/internal/engine"
)

// This file reads the values that have a syntax of their own.

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
