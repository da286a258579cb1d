package main

import "strings"

// Upstream's tools share one parser, so that llama-imatrix takes --temp and llama-export-lora -ngl, and neither looks at
// it. Here a flag that a subcommand cannot honour is an error, and this file says why.

const (
	makesNoText     = "it is about making text, which %s does not do: leave it out"
	mergesFiles     = "%s adds the adapters to the weights in the files, without a device or a context: leave it out"
	readsVocabulary = "%s reads the vocabulary and nothing else of the model: leave it out"
	trainsOnCPU     = "%s trains on the CPU, with a graph of its own that goes by the model's metadata: leave it out"
)

// whyNot holds, for subcommands that stand in for a tool of llama.cpp, why they do not take the flags of a section of
// run's; %s stands for the subcommand.
var whyNot = map[string]map[string]string{
	"imatrix": {},
	"tokenize": {
		groupPrompt: "-f takes any bytes as they are", groupModel: readsVocabulary, groupContext: readsVocabulary, groupRope: readsVocabulary,
		groupAdapters: readsVocabulary, groupCPU: readsVocabulary, groupDevices: readsVocabulary,
	},
	"cvector-generate": {
		groupPrompt:   "the texts are in --positive-file and --negative-file, or --pairs",
		groupAdapters: "a vector is made of the states as they are without another: leave it out",
	},
	"export-lora": {
		groupPrompt: makesNoText, groupModel: mergesFiles, groupContext: mergesFiles, groupRope: mergesFiles, groupCPU: mergesFiles,
		groupDevices: mergesFiles, groupAdapters: "export-lora merges adapters only; see gollama cvector-generate add for vectors",
	},
	"finetune": {
		groupPrompt: "what to train on is in -f FILE or --data FILE", groupModel: trainsOnCPU, groupContext: trainsOnCPU, groupRope: trainsOnCPU,
		groupCPU: trainsOnCPU, groupDevices: trainsOnCPU,
		groupAdapters: "--lora goes on with an adapter; others are not applied while training",
	},
}

// hintElsewhere returns why cmd does not take f, a flag of run, or "".
func hintElsewhere(cmd string, f *flagDef) string {
	sections, ok := whyNot[cmd]
	if !ok {
		return ""
	}
	if f.reject != "" {
		return f.reject
	}
	why := sections[f.group]
	switch f.group {
	case groupGenerate, groupSampling, groupRecords, groupSpec, groupChat:
		why = makesNoText
	case groupLogs:
		why = "times are not part of what %s reports: leave it out"
	}
	return strings.ReplaceAll(why, "%s", cmd)
}
