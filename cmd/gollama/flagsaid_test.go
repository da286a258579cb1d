package main

import "testing"

// TestSaid: what is said of a flag in one subcommand is of one that it takes, and is not what the row says anyway.
func TestSaid(t *testing.T) {
	for cmd, flags := range saidIn {
		if findCommand(cmd) == nil {
			t.Errorf("%s is no subcommand", cmd)
		}
		for name, s := range flags {
			f := takenFlag(cmd, name)
			switch {
			case f == nil:
				t.Errorf("%s does not take --%s", cmd, name)
			case s == said{} || s.help == f.help || s.def != "" && s.def == f.def:
				t.Errorf("%s --%s: %+v says what the row says", cmd, name, s)
			}
		}
	}
	for name, why := range noEffectInFinetune {
		f := takenFlag("finetune", name)
		if f == nil {
			t.Errorf("finetune does not take --%s", name)
			continue
		}
		if got, want := helpText(findCommand("finetune"), f), "llama-finetune's; has no effect: "+why; got != want {
			t.Errorf("finetune --%s: the help says %q, want %q", name, got, want)
		}
	}
}

// takenFlag returns the row of a flag that a subcommand takes, or nil.
func takenFlag(cmd, name string) *flagDef {
	for i := range flagTable {
		if f := &flagTable[i]; f.name == name && f.reject == "" && f.takenBy(cmd) {
			return f
		}
	}
	return nil
}

// TestDefaultsInHelp: what the help says of a flag that is not given is what the subcommand then works with.
func TestDefaultsInHelp(t *testing.T) {
	for _, c := range commands() {
		if c.noConfig {
			continue
		}
		o, _, err := settingsOf(c.name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.finish(c.name); err != nil {
			t.Logf("%s: %v", c.name, err) // it needs a prompt
		}
		for i := range flagTable {
			f := &flagTable[i]
			if f.get == nil || f.reject != "" || !f.takenBy(c.name) || f.def != "" || saidIn[c.name][f.name].def != "" {
				continue
			}
			shown := defaultText(c, f)
			used := defaultText(&command{name: c.name, defaults: func(p *options) { *p = *o }}, f)
			if shown != used {
				t.Errorf("%s --%s: the help says %q, without it %q is used", c.name, f.name, shown, used)
			}
		}
	}
}
