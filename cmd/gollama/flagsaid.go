package main

// said is what the help says of a flag in one subcommand, where it is not what the row says; "" leaves that as it is.
type said struct{ help, def string }

// saidIn has what shared flags are in subcommands that do something else with them than run: by subcommand and long name.
var saidIn = map[string]map[string]said{
	"mtmd": {
		"prompt":   {help: "what is asked about the media, used as it is"},
		"predict":  {def: "-1, or 256 with many files"},
		"ctx-size": {def: "0, or at most 4096 with many files"},
	},
	"imatrix": {
		"prompt":      {help: "measure on TEXT, used as it is"},
		"file":        {help: "measure on the text of FILE, byte for byte; .gz and .zst too; - is standard input"},
		"ctx-size":    {help: "tokens of a chunk of the text, and of a record at once"},
		"batch-size":  {help: "chunks of the text are computed together up to this many tokens"},
		"ubatch-size": {help: "tokens computed at once; of records 128 unless it is given"},
	},
	"cvector-generate": {
		"ctx-size":    {help: "the most tokens that a text may have; 0 is no limit"},
		"batch-size":  {help: "llama-cvector-generator's; has no effect: a batch has -ub tokens at most"},
		"ubatch-size": {help: "tokens computed at once, at most"},
	},
	"finetune": {
		"ctx-size":    {help: "tokens of an example, at most; 0 takes the model's training length"},
		"batch-size":  {help: "llama-finetune's; has no effect: an update takes whole examples, see --batch"},
		"ubatch-size": {help: "examples are computed together up to this many tokens"},
	},
	"export-lora": {
		"lora":        {help: "merge these adapters: GGUF files, or folders as PEFT leaves them", def: "none, must be given"},
		"lora-scaled": {help: "merge these adapters, each times its scale"},
	},
}

// helpText says what a flag does in a subcommand.
func helpText(c *command, f *flagDef) string {
	if s := saidIn[c.name][f.name]; s.help != "" {
		return s.help
	}
	if why := noEffectInFinetune[f.name]; why != "" && c.name == "finetune" {
		return "llama-finetune's; has no effect: " + why
	}
	return f.help
}
