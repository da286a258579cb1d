//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// CheckGrammar parses a grammar in GBNF and returns what is wrong with it. A
// grammar that names tokens, as in <think>, can be checked only with a model:
// NewSampler does it.
func CheckGrammar(gbnf string) error {
	initEngine()
	return checkGrammar(nil, gbnf)
}

func checkGrammar(m *C.struct_llama_model, gbnf string) error {
	if strings.HasPrefix(gbnf, "%llguidance") {
		return errors.New("grammar: llguidance grammars are not supported, only GBNF")
	}
	if strings.ContainsRune(gbnf, 0) {
		return errors.New("grammar: it has a NUL byte")
	}
	if err := checkRepeats(gbnf); err != nil {
		return fmt.Errorf("grammar: %w", err)
	}
	var a arena
	defer a.free()
	var e C.gl_err
	// What llama.cpp logs says the same again.
	captured(func() { C.gl_grammar_check(m, a.str(gbnf), &e) })
	if e.code == 0 {
		return nil
	}
	msg := shorten(errText(&e))
	if m == nil && strings.HasPrefix(msg, "no vocab to parse token") {
		return nil
	}
	return errors.New("grammar: " + msg)
}

// SchemaToGrammar converts a JSON schema to GBNF. All that the grammar allows is
// valid by the schema. A schema that is not valid, or that a grammar can only
// partly express, is an error that says where.
func SchemaToGrammar(schema string) (string, error) {
	schema, err := normalizeSchema(schema)
	if err != nil {
		return "", err
	}
	initEngine()
	var a arena
	defer a.free()
	var e C.gl_err
	var incomplete *C.char
	p := C.gl_schema_to_grammar(a.str(schema), &incomplete, &e)
	defer C.free(unsafe.Pointer(p))
	defer C.free(unsafe.Pointer(incomplete))
	if p == nil {
		return "", errors.New("JSON schema: " + shorten(errText(&e)))
	}
	if s := C.GoString(incomplete); s != "" {
		return "", errors.New("JSON schema: a grammar cannot express all of it: " + shorten(s))
	}
	return exactGrammar(C.GoString(p)), nil
}
