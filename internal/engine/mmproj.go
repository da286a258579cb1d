package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gollama/internal/gguf"
)

// ProjectorInfo is what the header of a projector file (mmproj) says.
type ProjectorInfo struct {
	Path                  string
	Name                  string // general.name, may be empty
	Vision, Audio         bool
	VisionType, AudioType string // projector types, e.g. gemma3
	NEmbd                 int    // floats of an embedding, as those of the text model

	posRows int // rows of the table of positions that an image's columns and rows of patches index, 0 for no such table
	patch   int // pixels that such a patch's side is
	merge   int // patches that a token's side is

	tile, square int // pixels of an image of the encoder's own size, and of a token where images are of any size
}

// ReadProjector reads the header of a projector file, and checks of it what libmtmd asserts on or takes for granted:
// kinds and ranges of its keys, and the tensors that its graphs use. Errors wrap ErrModel and name the file.
func ReadProjector(path string) (*ProjectorInfo, error) {
	bad := func(msg string) error { return &Error{Op: "load projector", Path: path, Msg: msg, Err: ErrModel} }
	if path == "" {
		return nil, &Error{Op: "load projector", Msg: "no projector file was given (--mmproj)", Err: ErrModel}
	}
	f, err := openGGUF("load projector", path, gguf.Open)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &ProjectorInfo{Path: path}
	p.Name, _ = f.Str("general.name")
	if msg := checkProjector(f, p); msg != "" {
		return nil, bad(msg)
	}
	return p, nil
}

// checkProjector fills p and says what is wrong, "" if nothing is.
func checkProjector(f *gguf.File, p *ProjectorInfo) string {
	if arch, ok := f.Str("general.architecture"); ok && arch != "clip" && arch != "mmproj" {
		return fmt.Sprintf("it is not a projector (mmproj): general.architecture is %q", arch)
	}
	if msg := checkProjectorKeys(f.KVs); msg != "" {
		return msg
	}
	p.Vision, _ = f.Bool("clip.has_vision_encoder")
	p.Audio, _ = f.Bool("clip.has_audio_encoder")
	if gen, _ := f.Bool("clip.has_gen_audio_encoder"); gen {
		return "it makes sound, and gollama makes text only"
	}
	if !p.Vision && !p.Audio {
		return "it is not a projector (mmproj): neither clip.has_vision_encoder nor clip.has_audio_encoder is set"
	}
	if msg := checkProjectorTensors(f); msg != "" {
		return msg
	}
	if p.Vision {
		if msg := p.take(&modality{f: f, name: "vision", prefix: "v"}); msg != "" {
			return msg
		}
		p.Audio = p.Audio && p.VisionType != "gemma3nv" // libmtmd leaves its sound out
	}
	if p.Audio {
		return p.take(&modality{f: f, name: "audio", prefix: "a"})
	}
	return ""
}

// take checks m and adds what it says.
func (p *ProjectorInfo) take(m *modality) string {
	if msg := m.check(); msg != "" {
		return msg
	}
	if p.NEmbd > 0 && p.NEmbd != m.nEmbd {
		return fmt.Sprintf("its vision makes embeddings of %d, its audio of %d", p.NEmbd, m.nEmbd)
	}
	p.NEmbd = m.nEmbd
	if m.name == "audio" {
		p.AudioType = m.typ
	} else {
		p.VisionType, p.posRows, p.patch, p.merge = m.typ, m.posRows, m.patch, m.merge
		p.tile, p.square = m.pixels()
	}
	return ""
}

// The kinds of keys that clip.cpp reads: gguf_get_val_* asserts on another kind.
var projectorKinds = map[gguf.Kind]string{
	gguf.KindBool: "clip.has_vision_encoder clip.has_audio_encoder clip.has_gen_audio_encoder clip.use_gelu clip.use_silu",
	gguf.KindString: "clip.projector_type clip.vision.projector_type clip.audio.projector_type clip.vision.mm_patch_merge_type " +
		"general.name general.description",
	gguf.KindInt32: "clip.minicpmv_version",
	gguf.KindUint32: `clip.?.embedding_length clip.?.feed_forward_length clip.?.block_count clip.?.projection_dim
		clip.?.attention.head_count clip.?.attention.head_count_kv clip.?.attention.head_dim clip.vision.image_size
		clip.vision.image_min_pixels clip.vision.image_max_pixels clip.vision.preproc_min_tiles clip.vision.preproc_max_tiles
		clip.vision.preproc_image_size clip.vision.patch_size clip.vision.projector.scale_factor clip.vision.projector.query_side
		clip.vision.projector.window_side clip.vision.spatial_merge_size clip.vision.n_wa_pattern clip.vision.window_size
		clip.minicpmv_query_num clip.vision.sam.head_count clip.vision.sam.block_count clip.vision.sam.embedding_length
		clip.vision.expert_used_count clip.audio.num_mel_bins clip.audio.projector.stack_factor clip.audio.chunk_size
		clip.audio.conv_kernel_size clip.audio.max_pos_emb clip.audio.projector.window_size clip.audio.projector.downsample_rate
		clip.audio.projector.head_count clip.audio.rvq.num_quantizers clip.audio.window_size clip.audio.local_block_count
		clip.audio.local_group_size clip.audio.subsampling_factor`,
	gguf.KindFloat32: "clip.?.attention.layer_norm_epsilon",
}

// checkProjectorKeys compares the kinds of keys with projectorKinds.
func checkProjectorKeys(kvs gguf.KVs) string {
	for _, kind := range slices.Sorted(maps.Keys(projectorKinds)) {
		for _, pattern := range strings.Fields(projectorKinds[kind]) {
			for _, m := range []string{"vision", "audio"} {
				key := strings.Replace(pattern, "?", m, 1)
				v, ok := kvs.Get(key)
				switch {
				case !ok:
				case v.Kind() != kind:
					return fmt.Sprintf("%s: got the kind %s, want %s", key, v.Kind(), kind)
				case kind == gguf.KindFloat32:
					if x, _ := v.Float(); !finite(float32(x)) || x < 0 {
						return fmt.Sprintf("%s: got %v, want 0 or more", key, x)
					}
				}
			}
		}
	}
	return ""
}

// checkProjectorTensors refuses types that have no kernels for what a tensor is used for: a row is added to and
// multiplied with, as float32, and a convolution's kernel is float32 or float16.
func checkProjectorTensors(f *gguf.File) string {
	if f.ByteOrder.String() != "LittleEndian" {
		return "it is big-endian"
	}
	for _, t := range f.Tensors {
		s := shape4(t)
		switch {
		case len(t.Name) >= maxTensorName:
			return fmt.Sprintf("tensor %q: its name has %d bytes, want fewer than %d", t.Name, len(t.Name), maxTensorName)
		case t.Elements() == 0:
			return fmt.Sprintf("tensor %q is empty: %v", t.Name, t.Shape)
		case t.Type.BlockSize() <= 1 && t.Type != gguf.TypeF32 && t.Type != gguf.TypeF16 && t.Type != gguf.TypeBF16:
			return fmt.Sprintf("tensor %q: got the type %s, want floats", t.Name, t.Type)
		case t.Type != gguf.TypeF32 && (strings.HasSuffix(t.Name, ".bias") || s[1] == 1 && s[2] == 1 && s[3] == 1):
			return fmt.Sprintf("tensor %q: got the type %s, want f32", t.Name, t.Type)
		case len(t.Shape) >= 3 && (t.Type.BlockSize() > 1 || t.Type == gguf.TypeBF16) && !strings.Contains(t.Name, "_exps"):
			return fmt.Sprintf("tensor %q: got the type %s, want f32 or f16", t.Name, t.Type)
		}
	}
	return ""
}

// maxTensorName is GGML_MAX_NAME, ggml/include/ggml.h.
const maxTensorName = 64

// modality is one of a projector file's two halves.
type modality struct {
	f            *gguf.File
	name, prefix string // of keys and of tensors

	typ          string // projector type
	layers       int
	nEmbd        int
	posRows      int
	patch, merge int
}

// key returns the full name of a key.
func (m *modality) key(name string) string { return "clip." + m.name + "." + name }

func (m *modality) uint(name string) int {
	n, _ := m.f.Uint(m.key(name))
	return int(min(n, 1<<31))
}

// has reports whether there is a tensor.
func (m *modality) has(name string) bool {
	_, ok := m.f.Tensor(name)
	return ok
}

// dim returns a tensor's size in dimension i, 0 if there is none.
func (m *modality) dim(name string, i int) int {
	k, ok := m.f.Tensor(name)
	if !ok {
		return 0
	}
	return int(min(shape4(m.f.Tensors[k])[i], 1<<31))
}

// check fills m and says what is wrong.
func (m *modality) check() string {
	if msg := m.checkType(); msg != "" {
		return msg
	}
	for _, r := range projectorRanges {
		if r.modality != "" && r.modality != m.name {
			continue
		}
		n, ok := m.f.Uint(m.key(r.key))
		switch {
		case !ok && r.required:
			return fmt.Sprintf("the key %s is missing", m.key(r.key))
		case ok && (n < r.lo || n > r.hi):
			return fmt.Sprintf("%s: got %d, want %d to %d", m.key(r.key), n, r.lo, r.hi)
		}
	}
	if _, ok := m.f.Float(m.key("attention.layer_norm_epsilon")); !ok {
		return fmt.Sprintf("the key %s is missing", m.key("attention.layer_norm_epsilon"))
	}
	m.layers = m.uint("block_count")
	if msg := m.checkArrays(); msg != "" {
		return msg
	}
	if msg := m.checkNeeds(); msg != "" {
		return msg
	}
	if msg := m.checkSizes(); msg != "" {
		return msg
	}
	return m.checkEmbd()
}

// checkType sets typ.
func (m *modality) checkType() string {
	m.typ, _ = m.f.Str("clip.projector_type")
	if m.typ == "" {
		m.typ, _ = m.f.Str(m.key("projector_type"))
	}
	if m.typ == "qwen2.5o" { // the older name of two
		m.typ = map[string]string{"vision": "qwen2.5vl_merger", "audio": "qwen2a"}[m.name]
	}
	p, ok := projectors[m.typ]
	switch {
	case m.typ == "":
		return fmt.Sprintf("neither clip.projector_type nor %s is set", m.key("projector_type"))
	case strings.HasPrefix(m.typ, "qwen3tts_"), strings.HasPrefix(m.typ, "pockettts_"):
		return fmt.Sprintf("the projector type %q makes sound, and gollama makes text only", m.typ)
	case !ok:
		return fmt.Sprintf("unknown projector type %q", m.typ)
	case p.audio != (m.name == "audio"):
		return fmt.Sprintf("the projector type %q is not one of %s", m.typ, m.name)
	}
	if m.typ == "mlp" && m.has("mm.3.weight") {
		m.typ = "mlp_norm" // as libmtmd sees it (Yi)
	}
	return ""
}

// projectorRanges are what keys may be. libmtmd checks little of it before it multiplies and allocates.
var projectorRanges = []struct {
	modality, key string
	lo, hi        uint64
	required      bool
}{
	{"", "embedding_length", 1, 1 << 16, true},
	{"", "attention.head_count", 1, 1 << 12, true},
	{"", "attention.head_count_kv", 1, 1 << 12, false},
	{"", "attention.head_dim", 0, 1 << 12, false},
	{"", "feed_forward_length", 0, 1 << 20, true},
	{"", "block_count", 0, 512, true},
	{"", "projection_dim", 0, 1 << 20, true},
	{"vision", "image_size", 0, 8192, true},
	{"vision", "patch_size", 1, 1024, true},
	{"vision", "projector.scale_factor", 1, 64, false},
	{"vision", "spatial_merge_size", 1, 64, false},
	{"vision", "preproc_min_tiles", 0, 256, false},
	{"vision", "preproc_max_tiles", 1, 256, false},
	{"vision", "preproc_image_size", 0, 1 << 14, false},
	{"vision", "image_min_pixels", 0, 1 << 28, false},
	{"vision", "image_max_pixels", 1, 1 << 28, false},
	{"vision", "window_size", 0, 4096, false},
	{"vision", "n_wa_pattern", 0, 512, false},
	{"vision", "projector.query_side", 1, 256, false},
	{"vision", "projector.window_side", 1, 256, false},
	{"vision", "sam.block_count", 0, 512, false},
	{"vision", "sam.head_count", 1, 1 << 12, false},
	{"vision", "sam.embedding_length", 1, 1 << 16, false},
	{"audio", "num_mel_bins", 1, 1024, true},
	{"audio", "projector.stack_factor", 1, 64, false},
	{"audio", "chunk_size", 1, 8192, false},
	{"audio", "conv_kernel_size", 1, 1024, false},
	{"audio", "max_pos_emb", 1, 1 << 16, false},
	{"audio", "projector.window_size", 1, 1 << 12, false},
	{"audio", "projector.downsample_rate", 1, 1 << 12, false},
	{"audio", "projector.head_count", 1, 1 << 12, false},
	{"audio", "window_size", 0, 4096, false},
	{"audio", "local_block_count", 0, 512, false},
	{"audio", "local_group_size", 1, 64, false},
	{"audio", "rvq.num_quantizers", 1, 64, false},
}

// checkArrays looks at the lists of a vision encoder.
func (m *modality) checkArrays() string {
	if m.name == "vision" {
		for _, key := range []string{"image_mean", "image_std"} {
			v, _ := m.f.Get(m.key(key))
			list, ok := gguf.As[[]float32](v)
			if !ok || len(list) < 3 {
				return fmt.Sprintf("%s: want an array of 3 f32", m.key(key))
			}
			for _, x := range list {
				if !finite(x) || key == "image_std" && x == 0 {
					return fmt.Sprintf("%s: got %v", m.key(key), list)
				}
			}
		}
	}
	for key, most := range map[string]int32{"feature_layer": int32(m.layers), "image_grid_pinpoints": 8192, "wa_layer_indexes": 512} {
		v, ok := m.f.Get(m.key(key))
		if !ok {
			continue
		}
		list, ok := gguf.As[[]int32](v)
		if !ok || len(list) > 1024 || key == "image_grid_pinpoints" && len(list)%2 != 0 {
			return fmt.Sprintf("%s: want an array of i32", m.key(key))
		}
		least := int32(0)
		if key == "image_grid_pinpoints" {
			least = 1
		}
		for _, x := range list {
			if x < least || x > most {
				return fmt.Sprintf("%s: got %d, want %d to %d", m.key(key), x, least, most)
			}
		}
	}
	return ""
}

// checkNeeds looks for the tensors that the graph of this type uses and libmtmd does not ask for.
func (m *modality) checkNeeds() string {
	p := projectors[m.typ]
	for need := range strings.FieldsSeq(p.needs) {
		if !m.hasOne("", need) {
			return fmt.Sprintf("the tensor %s is missing", need)
		}
	}
	for i := range m.layers {
		for need := range strings.FieldsSeq(p.blocks) {
			if prefix := fmt.Sprintf("%s.blk.%d.", m.prefix, i); !m.hasOne(prefix, need) {
				return fmt.Sprintf("the tensor %s%s is missing", prefix, need)
			}
		}
	}
	return ""
}

// hasOne reports whether there is one of the tensors named in need, with bars between.
func (m *modality) hasOne(prefix, need string) bool {
	for name := range strings.SplitSeq(need, "|") {
		if m.has(prefix + name) {
			return true
		}
	}
	return false
}

// checkSizes compares sizes that only meet while a graph is computed, where nothing can be caught.
func (m *modality) checkSizes() string {
	heads, dim := m.uint("attention.head_count"), m.uint("attention.head_dim")
	if embd := m.uint("embedding_length"); dim == 0 && embd%heads != 0 && m.layers > 0 {
		return fmt.Sprintf("%s: got %d, want a divisor of the %d of %s", m.key("attention.head_count"), heads, embd, m.key("embedding_length"))
	}
	if m.name == "audio" {
		if strings.Contains(whisperTypes, " "+m.typ+" ") && m.layers == 0 {
			return m.key("block_count") + ": got 0, want 1 or more"
		}
		return ""
	}
	return m.checkGrid()
}

// checkGrid compares an image's patches with the table of their positions.
func (m *modality) checkGrid() string {
	const table = "v.position_embd.weight"
	size, patch := m.uint("image_size"), m.uint("patch_size")
	if n := size / patch; n*n > 1<<16 {
		return fmt.Sprintf("%s: got %d, and with patches of %d that is %d of them, want at most %d", m.key("image_size"), size, patch, n*n, 1<<16)
	}
	rows, want := m.dim(table, 1), 0
	looked := true // up in the table; otherwise it is added as it is, for which there is no kernel but float32's
	switch m.typ {
	case "mlp", "mlp_norm", "ldp", "ldpv2", "adapter":
		want = (size / patch) * (size / patch)
		if want == 0 {
			return fmt.Sprintf("%s: got %d, want at least the %d of %s", m.key("image_size"), size, patch, m.key("patch_size"))
		}
		if m.has("v.class_embd") {
			want++
		}
	case "resampler", "minicpmv4_6":
		want = 70 * 70 // buckets of positions, clip.cpp
	case "gemma4v", "gemma4uv":
		m.posRows, m.patch, m.merge = rows, patch, m.uint("projector.scale_factor")
		if m.merge == 0 {
			m.merge = 3 // pooling_kernel_size
		}
		if m.typ == "gemma4uv" {
			m.patch, m.merge = m.patch*m.merge, 1
		}
		want = 1
	default:
		looked = false
	}
	if k, ok := m.f.Tensor(table); ok {
		if typ := m.f.Tensors[k].Type; typ != gguf.TypeF32 && !(looked && typ == gguf.TypeF16) {
			return fmt.Sprintf("tensor %q: got the type %s, want f32", table, typ)
		}
	}
	if rows < want {
		return fmt.Sprintf("tensor %q: got %d rows, want %d", table, rows, want)
	}
	return ""
}

// whisperTypes have encoders whose first block libmtmd looks at.
const whisperTypes = " ultravox voxtral qwen2a glma meralion musicflamingo "

// checkEmbd sets nEmbd, as clip_n_mmproj_embd of clip.cpp does.
func (m *modality) checkEmbd() string {
	p := projectors[m.typ]
	m.nEmbd = m.dim(p.embd, p.dim)
	switch m.typ {
	case "granite4_vision":
		layers, _ := m.f.Get(m.key("feature_layer"))
		m.nEmbd = layers.Len() * m.uint("projection_dim")
	case "qwen3vl_merger":
		deep := 0
		for i := range m.layers {
			if m.has(fmt.Sprintf("v.deepstack.%d.fc1.weight", i)) {
				deep++
			}
		}
		m.nEmbd *= 1 + deep
	}
	switch {
	case m.nEmbd == 0 && p.embd == "":
		return m.key("projection_dim") + ": got 0, or no " + m.key("feature_layer")
	case m.nEmbd == 0:
		return fmt.Sprintf("the tensor %s is missing", p.embd)
	}
	return ""
}

// tokenLimits returns how few and how many tokens an image gets, by the file's type and by what is asked for; 0 where
// the type has no such limit.
func (p *ProjectorInfo) tokenLimits(mp *MediaParams) (lo, hi int) {
	limits := tokenLimits[p.VisionType]
	lo, hi = limits[0], limits[1]
	if hi == 0 {
		return 0, 0
	}
	if mp.ImageMinTokens > 0 {
		lo = mp.ImageMinTokens
	}
	if mp.ImageMaxTokens > 0 {
		hi = mp.ImageMaxTokens
	}
	return lo, hi
}

// checkTokens refuses limits that the projector's own contradict.
func (p *ProjectorInfo) checkTokens(mp *MediaParams) error {
	lo, hi := p.tokenLimits(mp)
	switch {
	case lo <= hi:
		return nil
	case mp.ImageMaxTokens > 0:
		return fmt.Errorf("%w: --image-max-tokens: got %d, want at least %d, the projector's minimum (%s)", ErrImageTokens, hi, lo, p.VisionType)
	}
	return fmt.Errorf("%w: --image-min-tokens: got %d, want at most %d, the projector's maximum (%s)", ErrImageTokens, lo, hi, p.VisionType)
}

// tooLong reports whether an image has more columns or rows of patches than the table of positions, which ggml asserts on
// while it computes: the sizes that mtmd_image_preprocessor_dyn_size makes of it, in float32 as there.
func (p *ProjectorInfo) tooLong(w, h int, mp *MediaParams) (patches int, tooLong bool) {
	if p.posRows == 0 {
		return 0, false
	}
	lo, hi := p.tokenLimits(mp)
	cols, rows := smartSize(w, h, p.patch*p.merge, lo, hi)
	patches = max(cols, rows) / p.patch
	return patches, patches > p.posRows
}
