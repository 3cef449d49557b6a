package llama

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// Names in "architectures" of config.json.
const (
	Architecture         = "LlamaForCausalLM"
	ArchitectureMistral  = "MistralForCausalLM"
	architectureMixtral  = "MixtralForCausalLM"
	architectureQwen2    = "Qwen2ForCausalLM"
	ArchitectureQwen3    = "Qwen3ForCausalLM"
	architectureQwen3MoE = "Qwen3MoeForCausalLM"
	ArchitectureOLMo2    = "Olmo2ForCausalLM"
	ArchitectureGemma2   = "Gemma2ForCausalLM"
	ArchitectureGemma3   = "Gemma3ForCausalLM"
	ArchitectureSmolLM3  = "SmolLM3ForCausalLM"
	ArchitecturePhi3     = "Phi3ForCausalLM"
	architectureGranite  = "GraniteForCausalLM"
	architectureGPTOSS   = "GptOssForCausalLM"
	architectureGemma    = "GemmaForCausalLM"
	architectureLlama4   = "Llama4ForCausalLM"
	architectureQwen2MoE = "Qwen2MoeForCausalLM"
	architectureOLMo3    = "Olmo3ForCausalLM"
	architectureOLMoE    = "OlmoeForCausalLM"
	architectureGLM      = "GlmForCausalLM"
	architectureGLM4     = "Glm4ForCausalLM"
	architectureGLM4MoE  = "Glm4MoeForCausalLM"
	architectureMiniMax2 = "MiniMaxM2ForCausalLM"
	architectureSeedOSS  = "SeedOssForCausalLM"
)

// Architectures returns the names of all supported architectures, sorted.
func Architectures() []string { return slices.Sorted(maps.Keys(kinds)) }

// kind contains the features of an architecture: its defaults in config.json, and its differences
// from Llama.
type kind struct {
	modelType string
	positions int     // max_position_embeddings; 0: 2048
	epsilon   float64 // rms_norm_eps; 0: 1e-6
	theta     float64 // rope_theta; 0: 10000
	headDim   int     // head_dim; 0: hidden_size / heads
	tied      bool    // tie_word_embeddings
	gelu      bool    // the activation, instead of silu
	alias     string  // another name of the activation
	// vary sets the differences from Llama, and refuses unsupported settings. The shape is valid.
	vary func(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own)
}

var kinds = map[string]kind{
	Architecture:         {modelType: "llama", vary: varyLlama},
	ArchitectureMistral:  {modelType: "mistral", positions: 4096 * 32, vary: varyMistral},
	architectureMixtral:  {modelType: "mixtral", positions: 4096 * 32, epsilon: 1e-5, theta: 1e6, vary: varyMixtral},
	architectureQwen2:    {modelType: "qwen2", positions: 32768, vary: varyQwen2},
	ArchitectureQwen3:    {modelType: "qwen3", positions: 32768, headDim: 128, vary: varyQwen3},
	architectureQwen3MoE: {modelType: "qwen3_moe", positions: 32768, vary: varyQwen3MoE},
	ArchitectureOLMo2:    {modelType: "olmo2", epsilon: 1e-5, vary: varyOLMo2},
	ArchitectureGemma2:   {modelType: "gemma2", positions: 8192, headDim: 256, tied: true, gelu: true, vary: varyGemma2},
	ArchitectureGemma3:   {modelType: "gemma3_text", positions: 131072, theta: 1e6, headDim: 256, tied: true, gelu: true, vary: varyGemma3},
	ArchitectureSmolLM3:  {modelType: "smollm3", positions: 32768, theta: 2e6, tied: true, vary: varySmolLM3},
	ArchitecturePhi3:     {modelType: "phi3", positions: 4096, epsilon: 1e-5, vary: varyPhi3},
	architectureGranite:  {modelType: "granite", vary: varyGranite},
	architectureGPTOSS:   {modelType: "gpt_oss", positions: 131072, epsilon: 1e-5, theta: 150000, headDim: 64, vary: varyGPTOSS},
	architectureGemma:    {modelType: "gemma", positions: 8192, headDim: 256, tied: true, gelu: true, alias: "gelu", vary: varyGemma1},
	architectureLlama4:   {modelType: "llama4_text", positions: 131072, epsilon: 1e-5, theta: 5e5, headDim: 128, vary: varyLlama4},
	architectureQwen2MoE: {modelType: "qwen2_moe", positions: 32768, vary: varyQwen2MoE},
	architectureOLMo3:    {modelType: "olmo3", epsilon: 1e-5, theta: olmo3Theta, vary: varyOLMo3},
	architectureOLMoE:    {modelType: "olmoe", positions: 4096, epsilon: 1e-5, vary: varyOLMoE},
	architectureGLM:      {modelType: "glm", positions: 131072, epsilon: 1.5625e-7, headDim: 128, vary: varyGLM},
	architectureGLM4:     {modelType: "glm4", positions: 131072, epsilon: 1.5625e-7, headDim: 128, vary: varyGLM4},
	architectureGLM4MoE:  {modelType: "glm4_moe", positions: 131072, epsilon: 1e-5, vary: varyGLM4MoE},
	architectureMiniMax2: {modelType: "minimax_m2", positions: 196608, theta: 5e6, headDim: 128, vary: varyMiniMax2},
	architectureSeedOSS:  {modelType: "seed_oss", positions: 524288, vary: varySeedOSS},
}

// modelTypes contains the model_type of each architecture.
var modelTypes = func() map[string][]string {
	all := map[string][]string{}
	for name, k := range kinds {
		all[name] = []string{k.modelType}
	}
	return all
}()

// defaults fills in absent fields with defaults that differ from Llama's.
func (k kind) defaults(d *hfconfig.Document, o *own) {
	if d.MaxPositionEmbeddings == nil && k.positions > 0 {
		d.MaxPositionEmbeddings = &k.positions
	}
	if d.RMSNormEps == nil && k.epsilon > 0 {
		d.RMSNormEps = &k.epsilon
	}
	if d.RopeTheta == nil && k.theta > 0 {
		d.RopeTheta = &k.theta
	}
	if d.TieWordEmbeddings == nil {
		d.TieWordEmbeddings = &k.tied
	}
	if o.HeadDim == nil && k.headDim > 0 {
		o.HeadDim = &k.headDim
	}
}

// activation returns the architecture's hidden_act.
func (k kind) activation() string {
	if k.gelu {
		return "gelu_pytorch_tanh"
	}
	return "silu"
}

// ropes are the supported types of rotary positions.
var ropes = []string{"default", "linear", "dynamic", "llama3", "yarn"}

// scoreScale returns the default factor of products of queries and keys.
func (c Config) scoreScale() float64 { return 1 / math.Sqrt(float64(c.HeadDim)) }

// own contains the fields that not all architectures have, or that have other names there.
type own struct {
	HeadDim *int     `json:"head_dim"`
	BOS     TokenIDs `json:"bos_token_id"`
	EOS     TokenIDs `json:"eos_token_id"`

	SlidingWindow    window   `json:"sliding_window"`
	UseSlidingWindow bool     `json:"use_sliding_window"`
	MaxWindowLayers  *int     `json:"max_window_layers"`
	LayerTypes       []string `json:"layer_types"`

	Biased    *bool `json:"attention_bias"` // for architectures in which an absent field is not false
	HeadNorms *bool `json:"use_qk_norm"`

	Ropes struct { // for models with different rotary positions per kind of layer
		Global *hfconfig.RopeScaling `json:"full_attention"`
		Local  *hfconfig.RopeScaling `json:"sliding_attention"`
	} `json:"rope_parameters"`

	expertFields
	gemmaFields
	smolFields
	phiFields
	graniteFields
	gptFields
	llama4Fields
	qwenFields
	glmFields
	olmoFields
	minimaxFields
	seedFields
}

// flag returns a value of config.json, or fallback for an absent value.
func flag(value *bool, fallback bool) bool {
	if value == nil {
		return fallback
	}
	return *value
}

// window is a number of tokens, or null, which differs from an absent field.
type window struct {
	written bool
	tokens  *int
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *window) UnmarshalJSON(data []byte) error {
	w.written = true
	if err := json.Unmarshal(data, &w.tokens); err != nil {
		return fmt.Errorf("sliding_window: want an integer or null, not %s", data)
	}
	return nil
}

// maxWindow is the maximum number of tokens, so that sums with it do not overflow.
const maxWindow = 1 << 30

// or returns the window, the given one if the field is absent, or 0 for none.
func (w window) or(p *hfconfig.Checker, tokens int) int { return w.size(p, "sliding_window", tokens) }

// size does the same as the method or, for a field with the given name.
func (w window) size(p *hfconfig.Checker, field string, tokens int) int {
	switch {
	case !w.written:
		return tokens
	case w.tokens == nil:
		return 0
	case *w.tokens < 1 || *w.tokens > maxWindow:
		p.Fail("%s is %d, want at least 1 and at most %d, or null for none", field, *w.tokens, maxWindow)
	}
	return *w.tokens
}

// windows gives a window of a number of tokens to the layers that layer_types names. Without
// layer_types, windowed reports which layers have one.
func (c *Config) windows(p *hfconfig.Checker, o own, tokens int, windowed func(layer int) bool) {
	if o.LayerTypes != nil && len(o.LayerTypes) != c.NumHiddenLayers {
		p.Fail("layer_types has %d entries for num_hidden_layers %d", len(o.LayerTypes), c.NumHiddenLayers)
		return
	}
	layers := make([]Layer, c.NumHiddenLayers)
	for i := range layers {
		slides := windowed(i)
		if o.LayerTypes != nil {
			switch o.LayerTypes[i] {
			case "full_attention":
				slides = false
			case "sliding_attention":
				slides = true
			default:
				p.Fail("layer_types has %q, want full_attention or sliding_attention", o.LayerTypes[i])
			}
		}
		if !slides {
			continue
		}
		if tokens == 0 {
			p.Fail("layer_types has sliding_attention, but sliding_window is missing")
			return
		}
		c.Layers, layers[i].Window = layers, tokens
	}
}

// noWindows refuses layer_types other than full_attention.
func noWindows(p *hfconfig.Checker, o own) {
	for _, kind := range o.LayerTypes {
		if kind != "full_attention" {
			p.Fail("layer_types has %q, but only full_attention is supported", kind)
		}
	}
}

// varyLlama sets the biases that Llama may have.
func varyLlama(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	noWindows(p, o)
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias, FeedForward: d.MLPBias}
}

// notLlama names the layers' differences from Llama that libtorch's fused operations do not
// support; empty: none.
func (c Config) notLlama() string {
	windowed := slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.Window > 0 && l.Window < c.MaxPositionEmbeddings })
	switch {
	case c.Biases != Biases{}:
		return "biases"
	case c.Norms != Norms{}:
		return "norms that Llama does not have"
	case c.Experts.Count > 0:
		return "experts"
	case windowed:
		return "sliding windows"
	case c.GELU || c.Scales.ScoreCap != 0 || c.Scales.Residual != 1:
		return "activations, caps or scales that Llama does not have"
	case slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.Still }):
		return "layers without positions"
	case !c.turnsWhole():
		return "rotary positions for a part of each head, or for neighbours"
	case c.Packed != Packed{}:
		return "packed matrices"
	}
	return ""
}
