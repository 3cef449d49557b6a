package llama

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// The names in config.json's "architectures".
const (
	Architecture        = "LlamaForCausalLM"
	ArchitectureMistral = "MistralForCausalLM"
	ArchitectureQwen2   = "Qwen2ForCausalLM"
)

// ErrConfig says that a config.json is invalid or asks for what this package has not.
var ErrConfig = hfconfig.ErrInvalid

// Config is what config.json says of the network. Fields that do not change the network
// are not read.
type Config struct {
	hfconfig.Base
	Architecture     string
	Biases           Biases
	NumKeyValueHeads int // key and value heads, a divisor of NumAttentionHeads
	HeadDim          int // width of one head, even
	Rope             Rope
	BOS              TokenIDs
	EOS              TokenIDs
}

// Biases says which products have something added to them.
type Biases struct {
	QueryKeyValue bool // of the attention
	Output        bool // of the attention
	FeedForward   bool // all three
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

// own are the fields that only this architecture has, or knows by these names.
type own struct {
	variant
	HeadDim *int     `json:"head_dim"`
	BOS     TokenIDs `json:"bos_token_id"`
	EOS     TokenIDs `json:"eos_token_id"`
}

// ParseConfig reads config.json. Errors wrap ErrConfig and name the field.
func ParseConfig(data []byte) (Config, error) {
	var o own
	d, err := hfconfig.Read(data, &o, modelTypes)
	if err != nil {
		return Config{}, err
	}
	var p hfconfig.Checker
	if d.MaxPositionEmbeddings == nil {
		d.MaxPositionEmbeddings = positions[d.Architecture()]
	}
	c := Config{Base: d.Base(&p), Architecture: d.Architecture(), BOS: o.BOS, EOS: o.EOS}
	if p.Err() != nil {
		return Config{}, p.Err()
	}
	c.vary(&p, d, o.variant)
	c.heads(&p, d.NumKeyValueHeads, o.HeadDim)
	c.Rope = rope(&p, d)
	return c, p.Err()
}

// heads fills in what concerns the heads. The other sizes are valid.
func (c *Config) heads(p *hfconfig.Checker, keyValueHeads, headDim *int) {
	c.NumKeyValueHeads = p.Size("num_key_value_heads", keyValueHeads, c.NumAttentionHeads, c.NumAttentionHeads)
	if headDim == nil && c.HiddenSize%c.NumAttentionHeads != 0 {
		p.Fail("hidden_size %d is not a multiple of num_attention_heads %d (and there is no head_dim)",
			c.HiddenSize, c.NumAttentionHeads)
	}
	c.HeadDim = p.Size("head_dim", headDim, c.HiddenSize/c.NumAttentionHeads, 1<<12)
	if c.HeadDim%2 != 0 {
		p.Fail("head_dim %d is odd, rotary positions need pairs", c.HeadDim)
	}
	if p.Err() == nil && c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		p.Fail("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	}
}

func rope(p *hfconfig.Checker, d hfconfig.Document) Rope {
	written := d.Rope(p, 1, "default", "linear", "llama3")
	scaling, field := written.Scaling, written.Field
	r := Rope{Theta: written.Theta, Type: written.Type}
	const missing = math.SmallestNonzeroFloat64 // below every lower bound
	if r.Type == "linear" || r.Type == "llama3" {
		r.Scale = p.Number(field+".factor", scaling.Factor, missing, 1, 1e6)
	}
	if r.Type == "llama3" {
		r.LowFreqFactor = p.Number(field+".low_freq_factor", scaling.LowFreqFactor, missing, 1e-3, 1e6)
		r.HighFreqFactor = p.Number(field+".high_freq_factor", scaling.HighFreqFactor, missing, 1e-3, 1e6)
		r.OriginalContext = p.Number(field+".original_max_position_embeddings", scaling.Original, missing, 1, 1<<26)
		if p.Err() == nil && r.HighFreqFactor <= r.LowFreqFactor {
			p.Fail("%s.high_freq_factor %v is not above low_freq_factor %v", field, r.HighFreqFactor, r.LowFreqFactor)
		}
	}
	return r
}
