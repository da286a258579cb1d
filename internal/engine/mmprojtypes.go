package engine

import "math"

// projector is what ReadProjector must know of a projector type. Source: load_tensors and clip_n_mmproj_embd of
// tools/mtmd/clip.cpp and the graphs in tools/mtmd/models.
type projector struct {
	audio bool
	embd  string // the tensor whose size in dimension dim is that of an embedding
	dim   int
	// Tensors that the graph uses whether libmtmd found them or not; of those with bars between, one.
	needs  string
	blocks string // the same in each block
}

const (
	patchEmbd = "v.patch_embd.weight "
	posEmbd   = "v.position_embd.weight "
	vision    = patchEmbd + posEmbd

	separate  = "attn_q.weight attn_k.weight attn_v.weight "
	either    = "attn_q.weight|attn_qkv.weight attn_k.weight|attn_qkv.weight attn_v.weight|attn_qkv.weight"
	biased    = separate + "attn_q.bias attn_k.bias attn_v.bias "
	fused     = "attn_qkv.weight attn_qkv.bias"
	conformer = "ln1.weight ln2.weight conv_norm.weight conv_norm.bias norm_conv.weight norm_conv.bias "
)

// projectors are the types that read images or sound.
var projectors = map[string]projector{
	"mlp":              {embd: "mm.2.weight", dim: 1, needs: vision + "mm.0.weight mm.0.bias mm.2.weight mm.2.bias", blocks: separate},
	"mlp_norm":         {embd: "mm.3.bias", needs: vision + "mm.0.weight mm.0.bias mm.1.weight mm.1.bias mm.3.bias mm.4.weight mm.4.bias", blocks: separate},
	"ldp":              {embd: "mm.model.mb_block.1.block.2.1.bias", needs: vision, blocks: separate},
	"ldpv2":            {embd: "mm.model.peg.0.bias", needs: vision, blocks: separate},
	"resampler":        {embd: "resampler.proj.weight", needs: vision, blocks: either},
	"minicpmv4_6":      {embd: "mm.down.weight", dim: 1, needs: vision, blocks: separate},
	"adapter":          {embd: "adapter.linear.dense_4h_to_h.weight", dim: 1, needs: vision, blocks: separate},
	"qwen2vl_merger":   {embd: "mm.2.bias", needs: patchEmbd + "v.patch_embd.weight.1", blocks: biased},
	"qwen2.5vl_merger": {embd: "mm.2.bias", needs: patchEmbd + "v.patch_embd.weight.1", blocks: biased},
	"qwen3vl_merger":   {embd: "mm.2.bias", needs: vision + "v.patch_embd.weight.1", blocks: fused},
	"mimovl":           {embd: "mm.2.weight", dim: 1, needs: patchEmbd + "v.patch_embd.weight.1", blocks: fused},
	"minimax_m3":       {embd: "mm.merger.fc2.bias", needs: patchEmbd, blocks: either},
	"muse-glimmer":     {embd: "mm.2.weight", dim: 1, needs: vision, blocks: either},
	"step3vl":          {embd: "mm.model.fc.weight", dim: 1, needs: vision, blocks: either},
	"youtuvl":          {embd: "mm.2.bias", needs: patchEmbd, blocks: biased},
	"yasa2":            {embd: "mm.2.weight", dim: 1, needs: patchEmbd + "v.patch_ln.weight v.patch_ln.bias"},
	"gemma3":           {embd: "mm.input_projection.weight", needs: vision, blocks: either},
	"gemma3nv":         {embd: "mm.input_projection.weight", needs: "v.conv_stem.conv.weight"},
	"gemma4v":          {embd: "mm.input_projection.weight", dim: 1, needs: vision, blocks: either},
	"gemma4uv":         {embd: "mm.input_projection.weight", dim: 1, needs: vision + "v.patch_embd.bias"},
	"idefics3":         {embd: "mm.model.fc.weight", dim: 1, needs: vision, blocks: either},
	"pixtral":          {embd: "mm.2.weight", dim: 1, needs: patchEmbd, blocks: either},
	"lightonocr":       {embd: "mm.2.weight", dim: 1, needs: patchEmbd, blocks: either},
	"phi4":             {embd: "mm.2.weight", dim: 1, needs: vision, blocks: either},
	"internvl":         {embd: "mm.model.mlp.3.weight", dim: 1, needs: vision + "v.class_embd", blocks: either},
	"nemotron_v2_vl":   {embd: "mm.model.mlp.3.weight", dim: 1, needs: vision + "v.class_embd", blocks: either},
	"llama4":           {embd: "mm.model.fc.weight", dim: 1, needs: vision + "v.class_embd", blocks: either},
	"lfm2":             {embd: "mm.2.weight", dim: 1, needs: vision, blocks: either},
	"kimivl":           {embd: "mm.2.weight", dim: 1, needs: vision, blocks: either},
	"kimik25":          {embd: "mm.2.weight", dim: 1, needs: vision, blocks: either},
	"paddleocr":        {embd: "mm.2.weight", dim: 1, needs: vision, blocks: either},
	"deepseek4v":       {embd: "mm.2.weight", dim: 1, needs: patchEmbd, blocks: either},
	"cogvlm":           {embd: "mm.down.weight", dim: 1, needs: vision + "v.class_embd", blocks: fused},
	"janus_pro":        {embd: "mm.1.bias", needs: vision, blocks: either},
	"dots_ocr":         {embd: "mm.2.weight", dim: 1, needs: patchEmbd, blocks: either},
	"dots3note_v":      {embd: "mm.2.weight", dim: 1, needs: patchEmbd, blocks: either},
	"deepseekocr":      {embd: "mm.model.fc.weight", dim: 1, needs: vision + "v.class_embd v.image_newline", blocks: either},
	"deepseekocr2":     {embd: "mm.model.fc.weight", dim: 1, needs: "v.post_ln.weight", blocks: either},
	"glm4v":            {embd: "mm.down.weight", dim: 1, needs: patchEmbd + "v.patch_embd.weight.1", blocks: either},
	"exaone4_5":        {embd: "mm.2.bias", needs: patchEmbd + "v.patch_embd.weight.1", blocks: either},
	"hunyuanvl":        {embd: "mm.model.fc.weight", dim: 1, needs: vision, blocks: either},
	"granite4_vision":  {needs: vision, blocks: separate},

	"ultravox":       {audio: true, embd: "mm.a.mlp.2.weight", dim: 1, needs: "a.position_embd.weight", blocks: either},
	"voxtral":        {audio: true, embd: "mm.a.mlp.2.weight", dim: 1, needs: "a.position_embd.weight", blocks: either},
	"musicflamingo":  {audio: true, embd: "mm.a.mlp.2.weight", dim: 1, needs: "a.position_embd.weight", blocks: either},
	"meralion":       {audio: true, embd: "mm.a.mlp.3.weight", dim: 1, needs: "a.position_embd.weight", blocks: either},
	"qwen2a":         {audio: true, embd: "mm.a.fc.weight", dim: 1, needs: "a.position_embd.weight", blocks: either},
	"glma":           {audio: true, embd: "mm.a.mlp.2.weight", dim: 1, needs: "a.position_embd.weight", blocks: either},
	"qwen3a":         {audio: true, embd: "mm.a.mlp.2.weight", dim: 1, needs: "a.position_embd.weight", blocks: either},
	"dots3note_a":    {audio: true, embd: "mm.a.mlp.3.weight", dim: 1, blocks: either},
	"gemma4a":        {audio: true, embd: "mm.a.input_projection.weight", dim: 1, blocks: separate},
	"gemma4ua":       {audio: true, embd: "mm.a.input_projection.weight", dim: 1},
	"lfm2a":          {audio: true, embd: "a.position_embd.weight", blocks: biased + conformer + "attn_out.bias"},
	"granite_speech": {audio: true, embd: "a.proj_linear.weight", dim: 1, blocks: separate + conformer + "attn_out.bias"},
	"parakeet":       {audio: true, embd: "mm.a.mlp.2.weight", dim: 1, needs: "mm.a.norm_pre.weight mm.a.mlp.1.weight", blocks: separate + conformer + "ln1.bias ln2.bias"},
	"mimo_audio":     {audio: true, embd: "mm.a.mlp.2.weight", dim: 1, blocks: separate + "ln1.weight ln2.weight"},
}

// tokenLimits are the fewest and the most tokens of an image, for the types that have such limits
// (hparams.set_limit_image_tokens of clip.cpp).
var tokenLimits = map[string][2]int{
	"pixtral": {8, 1024}, "kimivl": {8, 1024}, "qwen2vl_merger": {8, 4096}, "qwen2.5vl_merger": {8, 4096}, "qwen3vl_merger": {8, 4096},
	"glm4v": {8, 4096}, "lfm2": {64, 256}, "gemma4v": {70, 1120}, "gemma4uv": {70, 1120}, "minimax_m3": {8, 576},
	"hunyuanvl": {256, 16384}, "youtuvl": {1, 62500}, "muse-glimmer": {1, 4096}, "kimik25": {2, 4096},
}

// smartSize returns the pixels that libmtmd scales an image of w by h to: multiples of align, as many as minTokens to
// maxTokens squares of that side take, in about its shape. Source: img_tool::calc_size_preserved_ratio, mtmd-image.cpp.
func smartSize(w, h, align, minTokens, maxTokens int) (width, height int) {
	f := float32(align)
	by := func(round func(float64) float64, x float32) int { return int(round(float64(x/f))) * align }
	lo, hi := minTokens*align*align, maxTokens*align*align
	width, height = max(align, by(math.Round, float32(w))), max(align, by(math.Round, float32(h)))
	switch {
	case width*height > hi:
		beta := float32(math.Sqrt(float64(float32(h) * float32(w) / float32(hi))))
		return max(align, by(math.Floor, float32(w)/beta)), max(align, by(math.Floor, float32(h)/beta))
	case width*height < lo:
		beta := float32(math.Sqrt(float64(float32(lo) / (float32(h) * float32(w)))))
		return by(math.Ceil, float32(w)*beta), by(math.Ceil, float32(h)*beta)
	}
	return width, height
}

// pixels returns how many pixels an image has that is scaled to the encoder's own size, and how many a token takes of one that
// keeps its shape, where the file says it or, as most do, in squares of two by two patches.
func (m *modality) pixels() (tile, square int) {
	side := min(m.uint("image_size"), maxSide)
	token := min(m.uint("patch_size")*max(m.uint("spatial_merge_size"), m.uint("projector.scale_factor"), 2), maxSide)
	return side * side, token * token
}
