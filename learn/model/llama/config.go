package llama

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
)

// Config contains the fields of a config.json that describe the network. Other fields are not read.
type Config struct {
	hfconfig.Base
	Architecture     string
	Biases           Biases
	NumKeyValueHeads int  // key and value heads, a divisor of NumAttentionHeads
	HeadDim          int  // width of one head, even
	Turning          int  // number of leading elements of a head that rotary positions rotate, even
	Interleaved      bool // elements 2i and 2i+1 rotate together, instead of i and i+Turning/2
	Rope             rotary.Rope
	LocalRope        rotary.Rope // for layers with Layer.Local
	Norms            Norms
	Sinks            bool // each head has a trained score that takes a share of each token's attention
	Scales           Scales
	GELU             bool // the gate of the feed-forward layers is GELU, approximated by tanh, instead of SiLU
	Temper           Temper
	Layers           []Layer // differences between layers; nil: none
	Experts          Experts
	FeedFolder       string // name of the folder of feed-forward tensors; empty: mlp
	Packed           Packed
	NumNextN         int // number of layers after the last that predict further tokens; the model does not use them
	BOS              TokenIDs
	EOS              TokenIDs
}

// Biases selects the matrix products that have a bias.
type Biases struct {
	QueryKeyValue bool // of the attention
	Output        bool // of the attention
	FeedForward   bool // all three
}

// Norms selects the positions of RMSNorms.
type Norms struct {
	After   bool // on the outputs of attention and feed-forward layer, before they are added
	NotIn   bool // no norms on their inputs
	Heads   bool // on each head of queries and keys
	Unit    bool // on each rotated head, without weights; layers without positions have no such norms
	All     bool // on all heads of queries together, and of keys
	OneMore bool // they multiply by their weights plus one
	Halves  bool // output norms are post_self_attn_layernorm and post_mlp_layernorm; input norms keep Llama's names
}

// Packed selects the matrices that checkpoints store in one tensor.
type Packed struct {
	Attention bool // queries, keys and values
	Feed      bool // gate and up
}

// Scales are factors in the network.
type Scales struct {
	Embedding float64 // rows of the embedding
	Score     float64 // products of queries and keys
	Residual  float64 // output of a sublayer (attention or feed-forward)
	Logits    float64

	ScoreCap, LogitCap float64 // c·tanh(v/c) replaces scores and logits v; 0: no cap
}

// Layer contains the settings that differ between layers.
type Layer struct {
	Window int  // number of tokens that a token attends to, including itself; 0: all
	Chunk  int  // tokens per chunk; a token attends only to tokens of its chunk; 0: all
	Still  bool // queries and keys are not rotated by positions
	Local  bool // queries and keys rotate by LocalRope
}

// Experts describes the layers in which a token uses a few experts, and the choice of experts.
type Experts struct {
	Count            int // number of experts; 0: none
	PerToken         int
	IntermediateSize int     // width inside one expert
	Normalize        bool    // the chosen scores are divided by their sum
	Sigmoid          bool    // scores are sigmoids of the router's logits, instead of their softmax
	Late             bool    // logits determine the choice, and scores are computed from the chosen logits
	Groups           int     // number of groups of equal size; 0 means 1
	TopGroups        int     // number of groups that a token chooses experts from; 0 means 1
	Scale            float64 // factor of the chosen scores; 0 means 1
	Shared           int     // width inside the expert that every token uses; 0: none
	Sparse           []bool
	Names            expertNames
	Stacked          *Stacked // nil: checkpoints have separate tensors for each expert
}

// feed returns the name of a tensor of a feed-forward layer.
func (c Config) feed(name string) string { return cmp.Or(c.FeedFolder, "mlp") + "." + name }

// sparse reports whether a layer has experts.
func (c Config) sparse(layer int) bool { return c.Experts.Count > 0 && c.Experts.Sparse[layer] }

// layer returns the differing settings of a layer.
func (c Config) layer(i int) Layer {
	if c.Layers == nil {
		return Layer{}
	}
	return c.Layers[i]
}

// TokenIDs is a token ID or a list of them in JSON.
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

// ParseConfig parses a config.json. Errors wrap hfconfig.ErrInvalid and name the field.
func ParseConfig(data []byte) (Config, error) {
	var o own
	d, err := hfconfig.Read(data, &o, modelTypes)
	if err != nil {
		return Config{}, err
	}
	var p hfconfig.Checker
	k := kinds[d.Architecture()]
	k.defaults(&d, &o)
	c := Config{Base: d.Base(&p), Architecture: d.Architecture(), GELU: k.gelu, BOS: o.BOS, EOS: o.EOS}
	if d.HiddenAct == nil || k.alias == "" || *d.HiddenAct != k.alias {
		d.RefuseActivation(&p, k.activation())
	}
	if p.Err() != nil {
		return Config{}, p.Err()
	}
	c.heads(&p, d.NumKeyValueHeads, o.HeadDim)
	c.Turning = c.HeadDim
	c.Scales = Scales{Embedding: 1, Score: c.scoreScale(), Residual: 1, Logits: 1}
	k.vary(&c, &p, d, o)
	if c.Rope.Type == "" {
		c.Rope = rotary.Parse(&p, d, c.MaxPositionEmbeddings, ropes...)
	}
	return c, p.Err()
}

// heads fills in the fields of the heads. The other sizes must be valid.
func (c *Config) heads(p *hfconfig.Checker, keyValueHeads, headDim *int) {
	c.NumKeyValueHeads = p.Size("num_key_value_heads", keyValueHeads, c.NumAttentionHeads, c.NumAttentionHeads)
	if headDim == nil && c.HiddenSize%c.NumAttentionHeads != 0 {
		p.Fail("hidden_size %d is not a multiple of num_attention_heads %d (and head_dim is missing)",
			c.HiddenSize, c.NumAttentionHeads)
	}
	c.HeadDim = p.Size("head_dim", headDim, c.HiddenSize/c.NumAttentionHeads, 1<<12)
	if c.HeadDim%2 != 0 {
		p.Fail("head_dim %d is odd, but rotary positions need pairs", c.HeadDim)
	}
	if p.Err() == nil && c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		p.Fail("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	}
}
