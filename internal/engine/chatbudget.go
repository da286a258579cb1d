package engine

// Steps that a chat template may take of the interpreter (shim_budget.cpp). One is some 10 to 20 ns of one core, whatever is done.
// By TestTemplateSteps the most demanding of llama.cpp's own templates take, of what is given here:
//
//	1.4 million          for two words, and making a parser of the answer (ByteDance-Seed-OSS)
//	17 a byte            of the texts of messages (Kimi-K3)
//	820 a byte           of what is gone through key by key: tools, arguments (Kimi-K3)
//	640 a pair           of messages, where a template goes through all before for each (gemma-4)
//	2300 a pair          of them that are calls and results of tools (Cohere2MoE)
//
// So one without an end is stopped after a second, and another 2 for each MB of text, and 100 at the most for many messages: a
// thousand turns, for which Cohere2MoE takes 30 s, may not be refused.
const (
	leastSteps        = 50e6
	stepsPerTextByte  = 100
	stepsPerOtherByte = 2000
	stepsPerPair      = 5000
	mostPaired        = 1400 // messages
)

// steps is how many a template may take for the conversation, which has wire bytes as JSON.
func (in *ChatInput) steps(wire int) int {
	text := 0
	for i := range in.Messages {
		m := &in.Messages[i]
		text += len(m.Content) + len(m.Reasoning)
		for _, p := range m.Parts {
			text += len(p.Text)
		}
	}
	paired := min(len(in.Messages), mostPaired)
	return leastSteps + stepsPerTextByte*text + stepsPerOtherByte*max(wire-text, 0) + stepsPerPair*paired*paired
}

// compileSteps is how many may be taken to compile a template of n bytes.
func compileSteps(n int) int { return leastSteps + stepsPerTextByte*n }
