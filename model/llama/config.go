package llama

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/model/hfconfig"
)

// Architecture is the name in config.json's "architectures".
const Architecture = "LlamaForCausalLM"

// ErrConfig says that a config.json is invalid or asks for what this package has not.
var ErrConfig = errors.New("config.json")

// Config is what config.json says of the network. Fields that do not change the network
// are not read.
type Config struct {
	VocabSize             int     // rows of the embedding
	HiddenSize            int     // width of the residual stream
	IntermediateSize      int     // width inside the feed-forward layer
	NumHiddenLayers       int     // blocks
	NumAttentionHeads     int     // query heads
	NumKeyValueHeads      int     // key and value heads, a divisor of NumAttentionHeads
	HeadDim               int     // width of one head, even
	MaxPositionEmbeddings int     // longest sequence, in tokens
	RMSNormEps            float64 // added to the mean square
	InitializerRange      float64 // standard deviation of initial weights
	TieWordEmbeddings     bool    // the head uses the embedding's weights
	Rope                  Rope
	BOS                   TokenIDs
	EOS                   TokenIDs
}

// Rope says how fast the rotary positions turn.
type Rope struct {
	Theta float64
	Type  string  // "default", "linear" or "llama3"
	Scale float64 // of linear and llama3: by how much the context is stretched

	// Of llama3: wavelengths shorter than OriginalContext/HighFreqFactor stay, longer
	// than OriginalContext/LowFreqFactor are stretched by Scale, those between in part.
	LowFreqFactor, HighFreqFactor float64
	OriginalContext               float64 // tokens
}

// TokenIDs is a token id or a list of them in JSON.
type TokenIDs []int32

// UnmarshalJSON accepts a number, a list of numbers and null.
func (t *TokenIDs) UnmarshalJSON(data []byte) error {
	var one *int32
	if err := json.Unmarshal(data, &one); err == nil {
		*t = nil
		if one != nil {
			*t = TokenIDs{*one}
		}
		return nil
	}
	var many []int32
	if err := json.Unmarshal(data, &many); err != nil {
		return fmt.Errorf("want a token id or a list of them, not %s", data)
	}
	*t = many
	return nil
}

// document is config.json as it is written; nil is absent.
type document struct {
	Architectures         []string        `json:"architectures"`
	ModelType             *string         `json:"model_type"`
	VocabSize             *int            `json:"vocab_size"`
	HiddenSize            *int            `json:"hidden_size"`
	IntermediateSize      *int            `json:"intermediate_size"`
	NumHiddenLayers       *int            `json:"num_hidden_layers"`
	NumAttentionHeads     *int            `json:"num_attention_heads"`
	NumKeyValueHeads      *int            `json:"num_key_value_heads"`
	HeadDim               *int            `json:"head_dim"`
	MaxPositionEmbeddings *int            `json:"max_position_embeddings"`
	RMSNormEps            *float64        `json:"rms_norm_eps"`
	InitializerRange      *float64        `json:"initializer_range"`
	TieWordEmbeddings     bool            `json:"tie_word_embeddings"`
	RopeTheta             *float64        `json:"rope_theta"`
	RopeScaling           *ropeParameters `json:"rope_scaling"`
	RopeParameters        *ropeParameters `json:"rope_parameters"` // transformers 5 instead of the two above
	BOS                   TokenIDs        `json:"bos_token_id"`
	EOS                   TokenIDs        `json:"eos_token_id"`

	HiddenAct           *string         `json:"hidden_act"`
	AttentionBias       bool            `json:"attention_bias"`
	MLPBias             bool            `json:"mlp_bias"`
	AttentionDropout    float64         `json:"attention_dropout"`
	PartialRotaryFactor *float64        `json:"partial_rotary_factor"`
	QuantizationConfig  json.RawMessage `json:"quantization_config"`
}

type ropeParameters struct {
	RopeType       *string  `json:"rope_type"`
	Type           *string  `json:"type"` // older name of rope_type
	RopeTheta      *float64 `json:"rope_theta"`
	Factor         *float64 `json:"factor"`
	LowFreqFactor  *float64 `json:"low_freq_factor"`
	HighFreqFactor *float64 `json:"high_freq_factor"`
	Original       *float64 `json:"original_max_position_embeddings"`
}

// ParseConfig reads config.json. Errors wrap ErrConfig and name the field.
func ParseConfig(data []byte) (Config, error) {
	var d document
	if err := hfconfig.Decode(data, &d); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := d.unsupported(); err != nil {
		return Config{}, err
	}
	p := hfconfig.Checker{Invalid: ErrConfig}
	c := Config{
		VocabSize:             p.Size("vocab_size", d.VocabSize, 0, 1<<24),
		HiddenSize:            p.Size("hidden_size", d.HiddenSize, 0, 1<<17),
		IntermediateSize:      p.Size("intermediate_size", d.IntermediateSize, 0, 1<<20),
		NumHiddenLayers:       p.Size("num_hidden_layers", d.NumHiddenLayers, 0, 1<<12),
		NumAttentionHeads:     p.Size("num_attention_heads", d.NumAttentionHeads, 0, 1<<12),
		MaxPositionEmbeddings: p.Size("max_position_embeddings", d.MaxPositionEmbeddings, 2048, 1<<26),
		RMSNormEps:            p.Number("rms_norm_eps", d.RMSNormEps, 1e-6, 0, 1),
		InitializerRange:      p.Number("initializer_range", d.InitializerRange, 0.02, 0, 100),
		TieWordEmbeddings:     d.TieWordEmbeddings,
		BOS:                   d.BOS,
		EOS:                   d.EOS,
	}
	if p.Err() != nil {
		return Config{}, p.Err()
	}
	c.heads(&p, d)
	c.Rope = d.rope(&p)
	return c, p.Err()
}

// unsupported refuses what would give another network than the one we compute.
func (d document) unsupported() error {
	refuse := func(field string, value any) error {
		return fmt.Errorf("%w: %s %v is not supported", ErrConfig, field, value)
	}
	switch {
	case len(d.Architectures) != 1 || d.Architectures[0] != Architecture:
		return fmt.Errorf("%w: architectures is %q, want [%q]", ErrConfig, d.Architectures, Architecture)
	case d.ModelType != nil && *d.ModelType != "llama":
		return fmt.Errorf("%w: model_type is %q, want \"llama\"", ErrConfig, *d.ModelType)
	case d.HiddenAct != nil && *d.HiddenAct != "silu":
		return refuse("hidden_act", *d.HiddenAct)
	case d.AttentionBias:
		return refuse("attention_bias", true)
	case d.MLPBias:
		return refuse("mlp_bias", true)
	case d.AttentionDropout != 0:
		return refuse("attention_dropout", d.AttentionDropout)
	case d.PartialRotaryFactor != nil && *d.PartialRotaryFactor != 1:
		return refuse("partial_rotary_factor", *d.PartialRotaryFactor)
	case len(d.QuantizationConfig) > 0 && string(d.QuantizationConfig) != "null":
		return refuse("quantization_config", "")
	}
	return nil
}

// heads fills in what concerns the heads. The other sizes are valid.
func (c *Config) heads(p *hfconfig.Checker, d document) {
	c.NumKeyValueHeads = p.Size("num_key_value_heads", d.NumKeyValueHeads, c.NumAttentionHeads, c.NumAttentionHeads)
	if d.HeadDim == nil && c.HiddenSize%c.NumAttentionHeads != 0 {
		p.Fail("hidden_size %d is not a multiple of num_attention_heads %d (and there is no head_dim)",
			c.HiddenSize, c.NumAttentionHeads)
	}
	c.HeadDim = p.Size("head_dim", d.HeadDim, c.HiddenSize/c.NumAttentionHeads, 1<<12)
	if c.HeadDim%2 != 0 {
		p.Fail("head_dim %d is odd, rotary positions need pairs", c.HeadDim)
	}
	if p.Err() == nil && c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		p.Fail("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	}
}

func (d document) rope(p *hfconfig.Checker) Rope {
	scaling, field := d.RopeScaling, "rope_scaling"
	theta := d.RopeTheta
	if d.RopeParameters != nil {
		scaling, field = d.RopeParameters, "rope_parameters"
		if scaling.RopeTheta != nil {
			theta = scaling.RopeTheta
		}
	}
	r := Rope{Theta: p.Number("rope_theta", theta, 10000, 1, 1e12), Type: "default"}
	if scaling == nil {
		return r
	}
	if scaling.RopeType == nil {
		scaling.RopeType = scaling.Type
	}
	if scaling.RopeType != nil {
		r.Type = *scaling.RopeType
	}
	const missing = math.SmallestNonzeroFloat64 // below every lower bound
	switch r.Type {
	case "default":
	case "linear":
		r.Scale = p.Number(field+".factor", scaling.Factor, missing, 1, 1e6)
	case "llama3":
		r.Scale = p.Number(field+".factor", scaling.Factor, missing, 1, 1e6)
		r.LowFreqFactor = p.Number(field+".low_freq_factor", scaling.LowFreqFactor, missing, 1e-3, 1e6)
		r.HighFreqFactor = p.Number(field+".high_freq_factor", scaling.HighFreqFactor, missing, 1e-3, 1e6)
		r.OriginalContext = p.Number(field+".original_max_position_embeddings", scaling.Original, missing, 1, 1<<26)
		if p.Err() == nil && r.HighFreqFactor <= r.LowFreqFactor {
			p.Fail("%s.high_freq_factor %v is not above low_freq_factor %v", field, r.HighFreqFactor, r.LowFreqFactor)
		}
	default:
		p.Fail("%s.rope_type %q is not supported (default, linear, llama3)", field, r.Type)
	}
	return r
}
