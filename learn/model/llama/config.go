package llama

import (
	"encoding/json"
	"fmt"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
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
	Rope             rotary.Rope
	BOS              TokenIDs
	EOS              TokenIDs
}

// Biases says which products have something added to them.
type Biases struct {
	QueryKeyValue bool // of the attention
	Output        bool // of the attention
	FeedForward   bool // all three
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
	c.Rope = rotary.Parse(&p, d, c.MaxPositionEmbeddings, "default", "linear", "llama3", "yarn")
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
