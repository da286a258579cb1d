package main

import (
	"errors"
	"slices"
	"strings"
)

const (
	inMTMD     = " mtmd "
	groupMedia = "Media"
	groupFiles = "Many files"
)

// mediaOptions are the settings of mtmd that no other subcommand has and engine.Params has no field for.
type mediaOptions struct {
	exif     bool
	marker   string // in the prompt: where media go; empty: before it
	caps     bool   // tell what the projector can do, and end
	autoProj bool   // look for a projector beside the model

	dir, glob string
	recursive bool
	filesFrom string
	null      bool   // names in filesFrom end with a zero byte
	order     string // name or mtime

	template  string // makes the prompt of a file
	sidecar   string // extension of the text files beside the media; empty: none
	overwrite bool   // sidecars that are there
	prefetch  int    // files decoded ahead; as many as texts are made at once if it is not set

	countOnly bool
	reuse     bool // what the context and the encoder computed before
	cacheMiB  int  // embeddings kept
}

func mediaDefaults() mediaOptions {
	return mediaOptions{exif: true, autoProj: true, order: "name", reuse: true, cacheMiB: 256}
}

// mtmdDefaults are the defaults of mtmd where they are not those of run (common_params_parser_init of common/arg.cpp).
func mtmdDefaults(o *options) { o.Sampling.Temp = 0.2 }

// batchPredict is -n for many files: an answer that never ends would hold up all that follow.
const batchPredict = 256

const (
	noVideo     = "video needs an ffmpeg subprocess, which this build leaves out: take frames with ffmpeg -i FILE -vf fps=1 frame-%04d.png and give them with --image"
	noMediaDrop = "nothing of a prompt with media is dropped: make the context larger with -c"
)

// Flags of run that mean the same in mtmd, by section of the help or by name.
var (
	groupsWithMTMD = []string{groupChat, groupSampling, groupModel, groupContext, groupRope, groupAdapters, groupCPU, groupDevices, groupLogs, groupSettings}
	sharedWithMTMD = []string{"prompt", "file", "escape", "special", "output", "format", "logprobs", "require-complete",
		"predict", "stop", "stop-token", "ignore-eos",
		"records", "parallel", "deterministic", "ordered", "resume", "shard", "max-errors"}
	notInMTMD = []string{"model-info", "json", "conversation", "single-turn", "messages"}
	// What llama-mtmd-cli has and gollama refuses.
	refusedInMTMD = []string{"model-url", "docker-repo", "hf-repo", "hf-file", "hf-token", "cache-list", "version", "list-devices", "completion-bash",
		"backend-sampling", "defrag-thold"}
)

// shareWithMTMD adds mtmd to the rows of flags that it shares with run.
func shareWithMTMD(rows []flagDef) {
	for i := range rows {
		f := &rows[i]
		shared := slices.Contains(sharedWithMTMD, f.name) || slices.Contains(groupsWithMTMD, f.group) && !slices.Contains(notInMTMD, f.name)
		if f.reject != "" {
			shared = slices.Contains(refusedInMTMD, f.name)
		}
		if shared && strings.Contains(f.in, inRun) {
			f.in += strings.TrimLeft(inMTMD, " ")
		}
	}
}

// mtmdFlags are the flags of gollama mtmd alone.
func mtmdFlags() []flagDef {
	const noDraft = "a draft model does not see media: leave it out"
	rows := inGroup(groupMedia, mediaFlags()...)
	rows = append(rows, inGroup(groupFiles, fileFlags()...)...)
	refuse := func(name, arg, env, hint string, alias ...string) {
		rows = append(rows, rejected(name, arg, env, hint, alias...))
	}
	refuse("mmproj-url", "URL", "LLAMA_ARG_MMPROJ_URL", "gollama downloads nothing: give a file with --mmproj FILE", "-mmu")
	refuse("video", "FILE", "", noVideo)
	refuse("video-fps", "N", "LLAMA_ARG_VIDEO_FPS", noVideo)
	refuse("video-timestamp-interval", "N", "LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL", noVideo)
	refuse("video-ffmpeg-dir", "DIR", "LLAMA_ARG_VIDEO_FFMPEG_DIR", noVideo)
	refuse("spec-draft-type-k", "TYPE", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", noDraft, "-ctkd", "--cache-type-k-draft")
	refuse("spec-draft-type-v", "TYPE", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", noDraft, "-ctvd", "--cache-type-v-draft")
	refuse("keep", "N", "", noMediaDrop)
	refuse("on-overflow", "ACTION", "", noMediaDrop, "--context-shift", "--no-context-shift")
	for i := range rows {
		rows[i].in = inMTMD
		if slices.Contains(withMedia, rows[i].name) {
			rows[i].in += strings.TrimLeft(inTokenize, " ")
		}
	}
	return rows
}

func mediaFlags() []flagDef {
	type o = *options
	str := func(p func(*mediaOptions) *string) func(o) *string { return func(o o) *string { return p(&o.media) } }
	yes := func(p func(*mediaOptions) *bool) binding { return boolVar(func(o o) *bool { return p(&o.media) }) }
	return []flagDef{
		{name: "media", alias: []string{"--image", "--audio"}, arg: "FILE", def: "none", help: "an image (PNG, JPEG, GIF, BMP, WebP, TIFF) or a sound (WAV, MP3, FLAC): what is in the file decides; may be given more than once, and is never split at commas",
			binding: listVar(func(o o) *[]string { return &o.Image }, func(s string) ([]string, error) {
				if s == "" {
					return nil, errors.New("the file name is empty")
				}
				return []string{s}, nil
			}, identity)},
		{name: "mmproj", alias: []string{"-mm"}, env: "LLAMA_ARG_MMPROJ", arg: "FILE", def: "the one mmproj*.gguf beside the model", help: "the projector that goes with the model",
			binding: fileVar(func(o o) *string { return &o.MMProj }).when(func(o o) bool { return o.MMProj != "" })},
		{name: "mmproj-auto", fixed: map[string]string{"--no-mmproj": "false", "--no-mmproj-auto": "false"}, env: "LLAMA_ARG_MMPROJ_AUTO", help: "look for a projector beside the model when there are media and no --mmproj; --no-mmproj uses none at all",
			binding: yes(func(m *mediaOptions) *bool { return &m.autoProj }).then(func(o o) { o.NoMMProj = !o.media.autoProj })},
		{name: "mmproj-offload", fixed: map[string]string{"--no-mmproj-offload": "false"}, env: "LLAMA_ARG_MMPROJ_OFFLOAD", help: "encode media on a device if there is one",
			binding: boolVar(func(o o) *bool { return &o.MMProjUseGPU })},
		{name: "mmproj-device", alias: []string{"-mmdev"}, env: "MTMD_BACKEND_DEVICE", arg: "NAME", def: "the first", help: "the device that encodes media; none is the CPU",
			binding: stringVar(func(o o) *string { return &o.MMProjDevice }).when(func(o o) bool { return o.MMProjDevice != "" })},
		{name: "image-min-tokens", env: "LLAMA_ARG_IMAGE_MIN_TOKENS", arg: "N", def: "the projector's", help: "tokens of an image at least, for projectors that take any size",
			binding: intVar(func(o o) *int { return &o.ImageMinTokens }, 1, maxInt32).when(func(o o) bool { return o.ImageMinTokens > 0 })},
		{name: "image-max-tokens", env: "LLAMA_ARG_IMAGE_MAX_TOKENS", arg: "N", def: "the projector's", help: "tokens of an image at most",
			binding: intVar(func(o o) *int { return &o.ImageMaxTokens }, 1, maxInt32).when(func(o o) bool { return o.ImageMaxTokens > 0 })},
		{name: "mtmd-batch-max-tokens", env: "LLAMA_ARG_MTMD_BATCH_MAX_TOKENS", arg: "N", help: "media tokens that are encoded together, by projectors that can",
			binding: intVar(func(o o) *int { return &o.MTMDBatchMaxTokens }, 1, maxInt32)},
		{name: "exif", fixed: map[string]string{"--no-exif": "false"}, help: "turn photographs as their EXIF orientation says; llama-mtmd-cli does not",
			binding: yes(func(m *mediaOptions) *bool { return &m.exif })},
		{name: "media-marker", arg: "TEXT", def: "none: media come before the prompt", help: "put a file at each place where the prompt has TEXT, such as <__media__>",
			binding: stringVar(str(func(m *mediaOptions) *string { return &m.marker }))},
		{name: "embd-cache", arg: "MIB", help: "memory for encoded media, which are not encoded again when they come again; 0 keeps none",
			binding: intVar(func(o o) *int { return &o.media.cacheMiB }, 0, 1<<20)},
		{name: "reuse", alias: []string{"--kv-reuse"}, fixed: map[string]string{"--no-reuse": "false"}, help: "evaluate only what a prompt does not share with the one before; the text is the same without",
			binding: yes(func(m *mediaOptions) *bool { return &m.reuse })},
		{name: "count-only", help: "count tokens and positions, of each file too, without encoding or the model's weights",
			binding: yes(func(m *mediaOptions) *bool { return &m.countOnly })},
		{name: "caps", help: "say what the projector --mmproj can take, as JSON, and end; nothing is loaded",
			binding: yes(func(m *mediaOptions) *bool { return &m.caps }).unprinted()},
	}
}

func fileFlags() []flagDef {
	type o = *options
	str := func(p func(*mediaOptions) *string) func(o) *string { return func(o o) *string { return p(&o.media) } }
	yes := func(p func(*mediaOptions) *bool) binding { return boolVar(func(o o) *bool { return p(&o.media) }) }
	return []flagDef{
		{name: "dir", arg: "DIR", def: "none", help: "answer for each image and sound in DIR, a line of JSON each; hidden files are left out", binding: fileVar(str(func(m *mediaOptions) *string { return &m.dir }))},
		{name: "recursive", help: "--dir: and in the folders below; links to folders are not followed", binding: yes(func(m *mediaOptions) *bool { return &m.recursive })},
		{name: "glob", arg: "PATTERN", def: "the extensions of images and sounds", help: "--dir: take files whose name, or path below DIR if PATTERN has a /, matches; * ? and [a-z] as in a shell", binding: stringVar(str(func(m *mediaOptions) *string { return &m.glob }))},
		{name: "files-from", arg: "FILE", def: "none", help: "the same for files that FILE names, one a line; - is standard input", binding: fileVar(str(func(m *mediaOptions) *string { return &m.filesFrom }))},
		{name: "null", alias: []string{"-0"}, help: "--files-from: each name ends with a zero byte", binding: yes(func(m *mediaOptions) *bool { return &m.null })},
		{name: "order", arg: "ORDER", help: "--dir: by name or by mtime, the oldest first", binding: wordVar(str(func(m *mediaOptions) *string { return &m.order }), "name", "mtime")},
		{name: "prompt-template", arg: "TEMPLATE", def: "none", help: "a prompt for each file, as a Go template with .Path, .Name, .Stem (the name without extension), .Dir and .Index (from 0)", binding: stringVar(str(func(m *mediaOptions) *string { return &m.template }))},
		{name: "sidecar", arg: "EXT", def: "none", help: "write each text into a file beside its medium too, with this extension in place of its own, such as .txt", binding: stringVar(str(func(m *mediaOptions) *string { return &m.sidecar }))},
		{name: "overwrite", help: "--sidecar: replace files that are there", binding: yes(func(m *mediaOptions) *bool { return &m.overwrite })},
		{name: "prefetch", arg: "N", def: "as many as -np", help: "files that are read and decoded ahead", binding: intVar(func(o o) *int { return &o.media.prefetch }, 0, 1024).when(func(o o) bool { return o.isSet("prefetch") })},
	}
}

// mediaBatch reports whether there are many answers to make.
func (o *options) mediaBatch() bool {
	return o.media.dir != "" || o.media.filesFrom != "" || o.recordsFile != ""
}
