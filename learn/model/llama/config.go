package llama

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
)

// ErrConfig says that a config.json is invalid or asks for what this package has not.
var ErrConfig = hfconfig.ErrInvalid

// Config is what config.json says of the network. Fields that do not change the network
// are not read.
type Config struct {
	hfconfig.Base
	Architecture     string
	Biases           Biases
	NumKeyValueHeads int  // key and value heads, a divisor of NumAttentionHeads
	HeadDim          int  // width of one head, even
	Turning          int  // number of leading elements of a head that rotary positions turn, even
	Interleaved      bool // elements 2i and 2i+1 turn together, not i and i+Turning/2
	Rope             rotary.Rope
	LocalRope        rotary.Rope // of layers whose Layer.Local is set
	Norms            Norms
	Sinks            bool // a trained score per head takes a share of each token's attention
	Scales           Scales
	GELU             bool // the gate of the feed-forward layers is GELU, approximated by tanh, not SiLU
	Temper           Temper
	Layers           []Layer // in what each layer differs from others; nil: in nothing
	Experts          Experts
	FeedFolder       string // of the tensors of feed-forward layers; empty: mlp
	Packed           Packed
	NumNextN         int // number of layers behind the last that predict further tokens; the model leaves them out
	BOS              TokenIDs
	EOS              TokenIDs
}

// Biases says which products have something added to them.
type Biases struct {
	QueryKeyValue bool // of the attention
	Output        bool // of the attention
	FeedForward   bool // all three
}

// Norms says where RMSNorms are.
type Norms struct {
	After   bool // of what attention and feed-forward layer give, before it is added
	NotIn   bool // and none of what goes into them
	Heads   bool // of each head of queries and keys
	Unit    bool // of each turned head, without weights; layers without positions have none
	All     bool // of all heads of queries together, and of keys
	OneMore bool // they multiply with their weights and one
	Halves  bool // norms after are post_self_attn_layernorm and post_mlp_layernorm; norms before keep Llama's names
}

// Packed selects the matrices that checkpoints store in one tensor.
type Packed struct {
	Attention bool // queries, keys and values
	Feed      bool // gate and up
}

// Scales are what numbers of the network are multiplied with.
type Scales struct {
	Embedding float64 // rows of the embedding
	Score     float64 // products of queries and keys
	Residual  float64 // what half a layer adds
	Logits    float64

	ScoreCap, LogitCap float64 // c·tanh(v/c) takes the place of scores and logits v; 0: it does not
}

// Layer is in what a layer differs from others.
type Layer struct {
	Window int  // a token sees itself and so many before it, less one; 0: all
	Chunk  int  // tokens per chunk; a token sees earlier tokens of the same chunk; 0: all
	Still  bool // queries and keys are not turned by positions
	Local  bool // they turn as LocalRope says
}

// Experts says in which layers a token uses a few experts, and which.
type Experts struct {
	Count            int // to choose among; 0: there are none
	PerToken         int
	IntermediateSize int     // width inside one
	Normalize        bool    // the chosen scores are divided by their sum
	Sigmoid          bool    // scores are sigmoids of the router's logits, not their softmax
	Late             bool    // logits decide the choice, and scores are computed from the chosen logits
	Groups           int     // number of groups of equal size; 0 means 1
	TopGroups        int     // number of groups that a token chooses experts from; 0 means 1
	Scale            float64 // factor of the chosen scores; 0 means 1
	Shared           int     // width inside the expert that every token uses; 0 means none
	Sparse           []bool
	Names            expertNames
	Stacked          *Stacked // nil: checkpoints have separate tensors for each expert
}

// feed is the name of a tensor of a feed-forward layer.
func (c Config) feed(name string) string { return cmp.Or(c.FeedFolder, "mlp") + "." + name }

// sparse tells whether a layer has experts.
func (c Config) sparse(layer int) bool { return c.Experts.Count > 0 && c.Experts.Sparse[layer] }

// layer is in what a layer differs.
func (c Config) layer(i int) Layer {
	if c.Layers == nil {
		return Layer{}
	}
	return c.Layers[i]
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

// ParseConfig reads config.json. Errors wrap ErrConfig and name the field.
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
