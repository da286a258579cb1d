package main

import (
	"slices"

	"gollama/internal/builtin"
)

// builtinDefault is the default of -m where the built-in model is taken.
const builtinDefault = "builtin, a small model that is part of gollama"

// takesBuiltin says whether the subcommand works with the built-in model when no other is given.
func (c *command) takesBuiltin() bool {
	return slices.ContainsFunc(flagTable, func(f flagDef) bool { return f.def == builtinDefault && f.takenBy(c.name) })
}

// useBuiltin puts the files of the built-in model and its projector in the place of their name, and of a model that was
// not given.
func (o *options) useBuiltin(c *command) error {
	switch {
	case !c.takesBuiltin() && o.Model == builtin.Name:
		return unpackTo(&o.Model, builtin.Model)
	case !c.takesBuiltin():
		return nil
	case c == finetuneCommand && (o.tune.init != "" || o.Model == "" && o.tune.resume):
		return nil // the model is made, or that of a run which is not there
	case c == imatrixCommand && !o.promptGiven && o.PromptFile == "" && o.imx.records == "":
		return nil // nothing is measured: files are put together
	}
	o.builtinUnasked = o.Model == ""
	isBuiltin := o.Model == "" || o.Model == builtin.Name
	if o.MMProj == builtin.Name || isBuiltin && o.MMProj == "" && c.name == "mtmd" && !o.NoMMProj {
		if err := unpackTo(&o.MMProj, builtin.Projector); err != nil {
			return err
		}
	}
	if !isBuiltin {
		return nil
	}
	return unpackTo(&o.Model, builtin.Model)
}

func unpackTo(to *string, file func() (string, error)) error {
	path, err := file()
	if err != nil {
		return &hintedError{err, "-m FILE.gguf is another model"}
	}
	*to = path
	return nil
}

// sayBuiltin tells of a model that nobody asked for.
func (l *logging) sayBuiltin(o *options) {
	if o.builtinUnasked {
		l.message("info", "no -m given: using the built-in model, a very small storyteller; -m FILE.gguf takes another")
	}
}
