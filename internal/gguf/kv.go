package gguf

import (
	"errors"
	"fmt"
	"slices"
)

// KV is a key and its value.
type KV struct {
	Key   string // at most 65535 bytes, unique in the file
	Value Value
}

// KVs are the keys of a file in their order. The accessors return false for a key that is absent or whose value is of
// another kind; none changes the receiver.
type KVs []KV

// Get returns the value of key.
func (kvs KVs) Get(key string) (Value, bool) {
	for i := range kvs {
		if kvs[i].Key == key {
			return kvs[i].Value, true
		}
	}
	return Value{}, false
}

// Str returns the string of key.
func (kvs KVs) Str(key string) (string, bool) {
	v, _ := kvs.Get(key)
	return v.Str()
}

// Uint returns the integer of key; see [Value.Uint].
func (kvs KVs) Uint(key string) (uint64, bool) {
	v, _ := kvs.Get(key)
	return v.Uint()
}

// Int returns the integer of key; see [Value.Int].
func (kvs KVs) Int(key string) (int64, bool) {
	v, _ := kvs.Get(key)
	return v.Int()
}

// Float returns the float32 or float64 of key.
func (kvs KVs) Float(key string) (float64, bool) {
	v, _ := kvs.Get(key)
	return v.Float()
}

// Bool returns the bool of key.
func (kvs KVs) Bool(key string) (bool, bool) {
	v, _ := kvs.Get(key)
	return v.Bool()
}

// Strings returns the array of strings of key. Each call makes a new one.
func (kvs KVs) Strings(key string) ([]string, bool) {
	v, _ := kvs.Get(key)
	return v.Strings()
}

// notModels says what a file is that has this general.type or general.architecture.
var notModels = map[string]string{
	"adapter":       "a LoRA adapter",
	"imatrix":       "an importance matrix",
	"mmproj":        "a multimodal projector (mmproj)",
	"clip":          "a multimodal projector (mmproj)",
	"controlvector": "a control vector",
}

// Architecture returns general.architecture of a model. If the keys are those of another kind of file, the error says of which.
func (kvs KVs) Architecture() (string, error) {
	arch, ok := kvs.Str("general.architecture")
	kind, _ := kvs.Str("general.type")
	for _, name := range []string{kind, arch} {
		if what := notModels[name]; what != "" {
			return "", fmt.Errorf("it is %s, not a model", what)
		}
	}
	if !ok {
		return "", errors.New("it is not a model: the key general.architecture is missing")
	}
	return arch, nil
}

// With returns a copy in which key has the value v, in its old place or else at the end.
func (kvs KVs) With(key string, v Value) KVs {
	out := slices.Clone(kvs)
	for i := range out {
		if out[i].Key == key {
			out[i].Value = v
			return out
		}
	}
	return append(out, KV{key, v})
}

// Without returns a copy that lacks the keys.
func (kvs KVs) Without(keys ...string) KVs {
	return slices.DeleteFunc(slices.Clone(kvs), func(kv KV) bool { return slices.Contains(keys, kv.Key) })
}
