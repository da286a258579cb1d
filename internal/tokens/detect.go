package tokens

import "gollama/internal/engine"

// specialAttrs make a token one that is looked for in a text as a whole.
const specialAttrs = attrControl | attrUserDefined | attrUnknown

// Texts by which llama.cpp (src/llama-vocab.cpp, llama_vocab::impl::load) knows
// special tokens that a file does not name.
var (
	eogTexts = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
		"<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
		"<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["}
	shownTexts  = []string{"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}
	fimPreTexts = []string{"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"}
	fimSufTexts = []string{"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"}
	fimMidTexts = []string{"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"}
	fimPadTexts = []string{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}
	fimRepTexts = []string{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}
	fimSepTexts = []string{"<|file_sep|>"}
)

// detect marks the tokens that llama.cpp takes for control tokens by their
// text. There the first of several candidates in the order of a hash table
// wins, so with more than one the vocabulary is left to the engine.
//
// The candidates for the end of a turn need no such care: each of them is in
// eogTexts too.
func (r *vocabReader) detect() {
	v := r.v
	all := append(append([]string{}, eogTexts...), shownTexts...)
	lists := []struct {
		id    Token
		texts []string
	}{{v.fimPre, fimPreTexts}, {v.fimSuf, fimSufTexts}, {v.fimMid, fimMidTexts}, {v.fimPad, fimPadTexts}, {v.fimRep, fimRepTexts}, {v.fimFile, fimSepTexts}}
	for _, l := range lists {
		all = append(all, l.texts...)
	}
	ids := v.find(all...)
	for _, l := range lists {
		if l.id != engine.TokenNull {
			continue
		}
		var found []Token
		plain := false
		for _, text := range l.texts {
			if id, ok := ids[text]; ok {
				found = append(found, id)
				plain = plain || v.attrs[id]&attrControl == 0
			}
		}
		if len(found) > 1 && plain {
			r.slow("tokens %q and %q both stand for %s", v.texts[found[0]], v.texts[found[1]], l.texts[0])
		}
		if len(found) == 1 {
			v.attrs[found[0]] |= attrControl
		}
	}
	for _, text := range eogTexts {
		if id, ok := ids[text]; ok {
			v.attrs[id] |= attrControl
		}
	}
	for _, text := range shownTexts {
		if id, ok := ids[text]; ok {
			v.attrs[id] = attrUserDefined
		}
	}
	has := func(text string) bool { _, ok := ids[text]; return ok }
	call := has("<|call|>") || has("<|calls|>")
	if has("<|end|>") && call && (has("<|return|>") || has("<|flush|>")) {
		v.attrs[ids["<|end|>"]] = attrUserDefined
	}
	if has("<|tool_response>") && has("</s>") {
		v.attrs[ids["</s>"]] = attrNormal
	}
}
