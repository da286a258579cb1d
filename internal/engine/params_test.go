package engine

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// cName spells a Go field as common.h would, without its underscores.
func cName(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

// renamed are fields whose Go name says the same in other letters.
var renamed = map[string]string{
	"cpuparams": "CPUParams", "cpuparams_batch": "CPUParamsBatch", "cpumask": "CPUMask", "mask_valid": "CPUMask",
	"cvector_dimre_method": "CVectorDimreMethod", "n_pca_batch": "NPCABatch", "n_pca_iterations": "NPCAIterations",
	"logit_bias": "LogitBias", "mparams": "Model",
}

// leftOut are the fields of common.h that Params does not mirror, by reason.
var leftOut = map[string]string{}

func init() {
	for reason, names := range map[string]string{
		"the server and its clients are not built": `port reuse_port timeout_read timeout_write sse_ping_interval n_threads_http
			n_cache_reuse cache_prompt cache_idle_slots n_ctx_checkpoints kv_unified_per_slot checkpoint_min_step cache_ram_mib
			public_path api_prefix hostnames cors_origins cors_methods cors_headers cors_credentials cors_origins_explicit
			sleep_idle_seconds api_keys ssl_file_key ssl_file_cert server_base ui ui_mcp_proxy ui_config_json endpoint_slots
			endpoint_props endpoint_metrics server_tools server_tools_runtime mcp_servers_config mcp_servers_json models_dir
			models_preset models_max models_autoload models_preset_hf slot_save_path media_path slot_prompt_similarity
			model_alias model_tags cont_batching`,
		"no network: models are files":            `hf_token offline`,
		"guesses that are wrong on purpose":       `synth_len synth_rates`,
		"no file of n-grams is read":              `ngram_cache`,
		"llama.cpp does nothing with it":          `p_split`,
		"on the CPU it changes nothing":           `common_params_speculative_draft.backend_sampling`,
		"a draft model lies on one device":        `common_params_speculative_draft.tensor_buft_overrides`,
		"no field, but methods":                   `const 0u`,
		"made by the engine":                      `ctx_tgt ctx_dft`,
		"diffusion models are not generated from": `diffusion`,
		"other tools of llama.cpp": `n_print logits_file path_prompts_log_dir logits_output_dir save_logits tensor_filter ppl_stride
			ppl_output_type hellaswag hellaswag_tasks winogrande winogrande_tasks multiple_choice multiple_choice_tasks
			kl_divergence check is_pp_shared is_tg_separate n_pp n_tg n_pl context_files chunk_size chunk_separator n_junk i_pos
			spm_infill batched_bench_output_jsonl tts_lang tts_speaker_file embedding embd_normalize embd_out embd_sep cls_sep`,
		"the command line has its own": `usage completion use_color interactive interactive_first prompt_cache_all prompt_cache_ro
			multiline_input simple_io show_timings input_prefix_bos conversation_mode log_json is_gen_docs fit_params_print`,
		"callbacks are set through the API":        `cb_eval cb_eval_user_data load_progress_callback_user_data`,
		"video is off in the build":                `video_fps video_timestamp_interval_ms video_ffmpeg_bin_dir`,
		"belongs to a conversation, see ChatInput": `reasoning_format preserve_reasoning_specified preserved_tokens`,
		"made of other fields":                     `reasoning_budget_forced`,
		"reasoning is never ended by hand":         `reasoning_control`,
		"computed from the vocabulary":             `logit_bias_eog`,
		"timings are measured outside":             `timing_per_token`,
	} {
		for _, n := range strings.Fields(names) {
			leftOut[n] = reason
		}
	}
}

var (
	comment   = regexp.MustCompile(`//.*`)
	structEnd = regexp.MustCompile(`(?m)^};`)
	fieldName = regexp.MustCompile(`([a-z_0-9]+)\s*(\[[A-Z0-9a-z_]+\])?\s*(=[^;]*|\{[^;]*)?;`)
)

// structFields returns the names of a struct's data members.
func structFields(t *testing.T, header, name string) []string {
	t.Helper()
	_, body, ok := strings.Cut(header, "struct "+name+" {")
	if !ok {
		t.Fatalf("common.h has no struct %s", name)
	}
	body = comment.ReplaceAllString(body[:structEnd.FindStringIndex(body)[0]], "")
	var fields []string
	for _, stmt := range strings.SplitAfter(body, ";") {
		if strings.Contains(stmt, "print() const") {
			continue
		}
		if m := fieldName.FindStringSubmatch(strings.Join(strings.Fields(stmt), " ")); m != nil {
			fields = append(fields, m[1])
		}
	}
	return fields
}

func TestParamsMirrorCommon(t *testing.T) {
	data, err := os.ReadFile("../../.engine/include/common/common.h")
	if err != nil {
		t.Skipf("the engine is not built: %v", err)
	}
	for _, x := range []struct {
		c     string
		value any
		least int
	}{{"common_params", Params{}, 200}, {"common_params_sampling", SamplingParams{}, 45}, {"common_cpu_params", CPUParams{}, 6},
		{"common_params_speculative", SpeculativeParams{}, 9}, {"common_params_speculative_draft", DraftParams{}, 14},
		{"common_params_speculative_ngram_mod", NgramModParams{}, 3}, {"common_params_speculative_ngram_map", NgramParams{}, 3}} {
		have := map[string]bool{}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(x.value)) {
			have[cName(f.Name)] = true
		}
		fields := structFields(t, string(data), x.c)
		if len(fields) < x.least {
			t.Errorf("%s: the test found %d fields, want %d or more", x.c, len(fields), x.least)
		}
		for _, f := range fields {
			mirrored := have[cName(f)] || have[cName(renamed[f])]
			if reason := leftOut[f] + leftOut[x.c+"."+f]; mirrored == (reason != "") {
				t.Errorf("%s.%s: mirrored %v, left out for %q", x.c, f, mirrored, reason)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		set  func(*Params)
		want string
	}{
		{func(p *Params) {}, ""},
		{func(p *Params) { p.NCtx = 7 }, "--ctx-size: 7 is not in the range 8 to 1073741824"},
		{func(p *Params) { p.NBatch = 0 }, "--batch-size: 0 is not in the range 1 to 1073741824"},
		{func(p *Params) { p.CPUParams.NThreads = 0 }, "--threads: 0 is not in the range 1 to 512"},
		{func(p *Params) { p.Sampling.TopP = 2 }, "--top-p: 2 is not in the range 0 to 1"},
		{func(p *Params) { p.Sampling.PenaltyRepeat = 0 }, "--repeat-penalty: 0 is not above 0"},
		{func(p *Params) { p.CacheTypeV, p.FlashAttnType = CacheQ8_0, FlashAttnOff }, "--cache-type-v: q8_0 needs flash attention, which is off"},
	}
	for _, tt := range tests {
		p := DefaultParams()
		tt.set(&p)
		got := ""
		if err := p.Validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("Validate = %q, want %q", got, tt.want)
		}
	}
}
