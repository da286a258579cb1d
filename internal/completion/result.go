package completion

import (
	"encoding/json"
	"unicode/utf8"

	"gollama/internal/engine"
)

// The values of Result.FinishReason.
const (
	FinishEOS       = "eos"       // the model ended the text
	FinishStop      = "stop"      // a stop string or stop token came
	FinishLength    = "length"    // Options.NPredict tokens are there
	FinishContext   = "context"   // the context is full
	FinishGrammar   = "grammar"   // the grammar was complete, the model would have gone on
	FinishCancelled = "cancelled" // the context.Context was cancelled
	FinishError     = "error"     // Generate returned an error
)

// Result is a finished completion. As JSON, text that is not UTF-8 has U+FFFD
// for each byte that is not, and a text_base64 beside it with the exact bytes.
type Result struct {
	Type           string          `json:"type"` // "completion"
	ID             string          `json:"id"`
	Text           string          `json:"text"` // any bytes; begins with the prompt under Options.Echo
	TextBase64     []byte          `json:"text_base64,omitempty"`
	Reasoning      string          `json:"reasoning,omitempty"`  // of an answer to a conversation
	ToolCalls      json.RawMessage `json:"tool_calls,omitempty"` // the same, in OpenAI's form
	FinishReason   string          `json:"finish_reason"`
	Stop           string          `json:"stop"` // the stop string, or the text of the stop token, that ended it
	StopBase64     []byte          `json:"stop_base64,omitempty"`
	Truncated      bool            `json:"truncated"` // the prompt was cut or the context shifted
	Usage          Usage           `json:"usage"`
	Seed           uint32          `json:"seed"`
	NCtx           int             `json:"n_ctx"` // tokens
	Model          Model           `json:"model"`
	Timings        Timings         `json:"timings"`
	Logprobs       []TokenLogprob  `json:"logprobs,omitempty"`        // of each token sampled
	PromptLogprobs []TokenLogprob  `json:"prompt_logprobs,omitempty"` // of each token of the prompt
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`     // that the model read, after truncation
	CompletionTokens int `json:"completion_tokens"` // sampled, the one that ended the text included
	CachedTokens     int `json:"cached_tokens"`     // of the prompt, not evaluated again

	MediaTokens int `json:"media_tokens,omitempty"` // of the prompt, those of images and sounds
	NPos        int `json:"n_pos,omitempty"`        // positions of a prompt with media: fewer than its tokens under M-RoPE
}

// Model names the model of a completion.
type Model struct {
	Path string `json:"path"`
	Arch string `json:"arch"`
	Size uint64 `json:"size"` // of the tensors, bytes
}

// Timings are wall-clock times in milliseconds and rates in tokens per second,
// 0 where nothing ran. As in llama.cpp, the first token is sampled from the
// prompt's logits, so PredictedN tokens take PredictedN-1 evaluations.
type Timings struct {
	LoadMS             float64 `json:"load_ms"`
	PromptN            int     `json:"prompt_n"`
	PromptMS           float64 `json:"prompt_ms"`
	PromptPerSecond    float64 `json:"prompt_per_second"`
	PredictedN         int     `json:"predicted_n"`
	PredictedMS        float64 `json:"predicted_ms"`
	PredictedPerSecond float64 `json:"predicted_per_second"`

	// Tokens that were guessed, by a Speculator, and how many of them came (llama-server's names).
	DraftN         int `json:"draft_n,omitempty"`
	DraftNAccepted int `json:"draft_n_accepted,omitempty"`
}

// Delta is a further piece of text. Pieces together are Result.Text, and none
// is cut inside a rune unless the whole text is not UTF-8.
type Delta struct {
	Type       string         `json:"type"` // "delta"
	Text       string         `json:"text"`
	TextBase64 []byte         `json:"text_base64,omitempty"`
	Reasoning  string         `json:"reasoning,omitempty"` // a further piece of it
	Logprobs   []TokenLogprob `json:"logprobs,omitempty"`  // of the tokens sampled since the delta before
}

// jsonText returns text and, when encoding/json would replace bytes of it, its bytes too.
func jsonText(b []byte) (string, []byte) {
	s := string(b)
	if utf8.ValidString(s) {
		return s, nil
	}
	return s, []byte(s)
}

// detokenize joins the tokens' pieces, special ones included.
func detokenize(v Vocab, tokens []engine.Token) []byte {
	var b []byte
	for _, t := range tokens {
		b = append(b, v.Piece(t, true)...)
	}
	return b
}
