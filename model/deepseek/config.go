package deepseek

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/model/hfconfig"
)

// Names in config.json's "architectures".
const (
	ArchitectureV2 = "DeepseekV2ForCausalLM"
	ArchitectureV3 = "DeepseekV3ForCausalLM"
)

// ErrConfig says that a config.json is invalid or asks for what this package has not.
var ErrConfig = errors.New("config.json")

// maxExperts bounds the experts of all layers together: DeepSeek-V3 has 14848.
const maxExperts = 1 << 18

// Config is what config.json says of the network. Fields that do not change the network
// are not read.
type Config struct {
	Architecture          string
	VocabSize             int     // rows of the embedding
	HiddenSize            int     // width of the residual stream
	IntermediateSize      int     // width inside a dense feed-forward layer
	NumHiddenLayers       int     // blocks
	NumAttentionHeads     int     // heads
	QLoraRank             int     // width of the compressed queries; 0: they are not compressed
	KVLoraRank            int     // width of the compressed keys and values
	QKNopeHeadDim         int     // width of a query or key without position
	QKRopeHeadDim         int     // width of its part with rotary position, even
	VHeadDim              int     // width of a value
	MaxPositionEmbeddings int     // longest sequence, in tokens
	RMSNormEps            float64 // added to the mean square
	InitializerRange      float64 // standard deviation of initial weights
	TieWordEmbeddings     bool    // the head uses the embedding's weights
	Rope                  Rope

	FirstDense int // layers before this one are dense
	LayerFreq  int // of those after it, each whose number is a multiple of this has experts
	NumExperts int // to choose among in a layer; 0: all layers are dense
	Experts    Experts

	NumNextN int // layers behind the last, for predicting further tokens; they are left out
}

// Experts say how a token chooses its experts and what it gets of them.
type Experts struct {
	IntermediateSize int     // width inside one expert
	Shared           int     // experts that every token uses, as one layer so many times wider; may be 0
	PerToken         int     // experts that a token chooses
	Groups           int     // experts lie in so many groups of equal size
	TopGroups        int     // of which a token may choose from so many
	Normalize        bool    // the chosen scores are divided by their sum
	Scale            float64 // of the sum of the chosen experts' outputs
	BalanceLoss      float64 // weight of the loss that balances the experts; 0: none
	BalanceSequences bool    // it balances each sequence by itself, not all of a micro-batch
}

// v3 tells the two architectures apart where they differ: V3 scores experts by a sigmoid,
// with a correction for the choice alone.
func (c Config) v3() bool { return c.Architecture == ArchitectureV3 }

// sparse tells whether a layer has experts.
func (c Config) sparse(layer int) bool {
	return c.NumExperts > 0 && layer >= c.FirstDense && layer%c.LayerFreq == 0
}

// document is config.json as it is written; nil is absent.
type document struct {
	Architectures         []string `json:"architectures"`
	ModelType             *string  `json:"model_type"`
	VocabSize             *int     `json:"vocab_size"`
	HiddenSize            *int     `json:"hidden_size"`
	IntermediateSize      *int     `json:"intermediate_size"`
	NumHiddenLayers       *int     `json:"num_hidden_layers"`
	NumAttentionHeads     *int     `json:"num_attention_heads"`
	NumKeyValueHeads      *int     `json:"num_key_value_heads"`
	QLoraRank             *int     `json:"q_lora_rank"`
	KVLoraRank            *int     `json:"kv_lora_rank"`
	QKNopeHeadDim         *int     `json:"qk_nope_head_dim"`
	QKRopeHeadDim         *int     `json:"qk_rope_head_dim"`
	VHeadDim              *int     `json:"v_head_dim"`
	MaxPositionEmbeddings *int     `json:"max_position_embeddings"`
	RMSNormEps            *float64 `json:"rms_norm_eps"`
	InitializerRange      *float64 `json:"initializer_range"`
	TieWordEmbeddings     bool     `json:"tie_word_embeddings"`

	FirstDense       *int     `json:"first_k_dense_replace"`
	LayerFreq        *int     `json:"moe_layer_freq"`
	NumExperts       *int     `json:"n_routed_experts"`
	Shared           *int     `json:"n_shared_experts"`
	ExpertSize       *int     `json:"moe_intermediate_size"`
	PerToken         *int     `json:"num_experts_per_tok"`
	Groups           *int     `json:"n_group"`
	TopGroups        *int     `json:"topk_group"`
	TopKMethod       *string  `json:"topk_method"`
	ScoringFunc      *string  `json:"scoring_func"`
	Normalize        *bool    `json:"norm_topk_prob"`
	Scale            *float64 `json:"routed_scaling_factor"`
	BalanceLoss      *float64 `json:"aux_loss_alpha"`
	BalanceSequences *bool    `json:"seq_aux"`
	NumNextN         *int     `json:"num_nextn_predict_layers"`

	RopeTheta      *float64        `json:"rope_theta"`
	RopeScaling    *ropeParameters `json:"rope_scaling"`
	RopeParameters *ropeParameters `json:"rope_parameters"` // transformers 5 instead of the two above
	RopeInterleave *bool           `json:"rope_interleave"`

	HiddenAct          *string         `json:"hidden_act"`
	AttentionBias      bool            `json:"attention_bias"`
	MLPBias            bool            `json:"mlp_bias"`
	AttentionDropout   float64         `json:"attention_dropout"`
	QuantizationConfig json.RawMessage `json:"quantization_config"`
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
		Architecture:          d.Architectures[0],
		VocabSize:             p.Size("vocab_size", d.VocabSize, 0, 1<<24),
		HiddenSize:            p.Size("hidden_size", d.HiddenSize, 0, 1<<17),
		IntermediateSize:      p.Size("intermediate_size", d.IntermediateSize, 0, 1<<20),
		NumHiddenLayers:       p.Size("num_hidden_layers", d.NumHiddenLayers, 0, 1<<12),
		NumAttentionHeads:     p.Size("num_attention_heads", d.NumAttentionHeads, 0, 1<<12),
		KVLoraRank:            p.Size("kv_lora_rank", d.KVLoraRank, 0, 1<<16),
		QKNopeHeadDim:         p.Size("qk_nope_head_dim", d.QKNopeHeadDim, 0, 1<<12),
		QKRopeHeadDim:         p.Size("qk_rope_head_dim", d.QKRopeHeadDim, 0, 1<<12),
		VHeadDim:              p.Size("v_head_dim", d.VHeadDim, 0, 1<<12),
		MaxPositionEmbeddings: p.Size("max_position_embeddings", d.MaxPositionEmbeddings, 2048, 1<<26),
		RMSNormEps:            p.Number("rms_norm_eps", d.RMSNormEps, 1e-6, 0, 1),
		InitializerRange:      p.Number("initializer_range", d.InitializerRange, 0.02, 0, 100),
		TieWordEmbeddings:     d.TieWordEmbeddings,
		NumNextN:              p.Count("num_nextn_predict_layers", d.NumNextN, 0, 1<<6),
	}
	if d.QLoraRank != nil { // V2-Lite says null
		c.QLoraRank = p.Size("q_lora_rank", d.QLoraRank, 0, 1<<16)
	}
	if c.QKRopeHeadDim%2 != 0 {
		p.Fail("qk_rope_head_dim %d is odd, rotary positions need pairs", c.QKRopeHeadDim)
	}
	if d.NumKeyValueHeads != nil && *d.NumKeyValueHeads != c.NumAttentionHeads {
		p.Fail("num_key_value_heads %d is not num_attention_heads %d", *d.NumKeyValueHeads, c.NumAttentionHeads)
	}
	c.experts(&p, d)
	c.Rope = d.rope(&p, c.MaxPositionEmbeddings)
	if p.Err() != nil {
		return Config{}, p.Err()
	}
	return c, nil
}

// unsupported refuses what would give another network than the one we compute.
func (d document) unsupported() error {
	refuse := func(field string, value any) error {
		return fmt.Errorf("%w: %s %v is not supported", ErrConfig, field, value)
	}
	if len(d.Architectures) != 1 || d.Architectures[0] != ArchitectureV2 && d.Architectures[0] != ArchitectureV3 {
		return fmt.Errorf("%w: architectures is %q, want [%q] or [%q]", ErrConfig, d.Architectures, ArchitectureV2, ArchitectureV3)
	}
	modelType, scoring, methods := "deepseek_v2", "softmax", []string{"greedy", "group_limited_greedy"}
	if d.Architectures[0] == ArchitectureV3 {
		modelType, scoring, methods = "deepseek_v3", "sigmoid", []string{"noaux_tc", "noaux_tc"}
	}
	switch {
	case d.ModelType != nil && *d.ModelType != modelType:
		return fmt.Errorf("%w: model_type is %q, want %q", ErrConfig, *d.ModelType, modelType)
	case d.ScoringFunc != nil && *d.ScoringFunc != scoring:
		return fmt.Errorf("%w: scoring_func is %q, %s has %q", ErrConfig, *d.ScoringFunc, d.Architectures[0], scoring)
	case d.TopKMethod != nil && *d.TopKMethod != methods[0] && *d.TopKMethod != methods[1]:
		return fmt.Errorf("%w: topk_method is %q, %s has %q", ErrConfig, *d.TopKMethod, d.Architectures[0], methods)
	case d.HiddenAct != nil && *d.HiddenAct != "silu":
		return refuse("hidden_act", *d.HiddenAct)
	case d.AttentionBias:
		return refuse("attention_bias", true)
	case d.MLPBias:
		return refuse("mlp_bias", true)
	case d.AttentionDropout != 0:
		return refuse("attention_dropout", d.AttentionDropout)
	case len(d.QuantizationConfig) > 0 && string(d.QuantizationConfig) != "null":
		return refuse("quantization_config", "")
	}
	return nil
}

// experts fills in what concerns the experts. Defaults are those of transformers, but for
// the balance loss, which is there only when it is asked for.
func (c *Config) experts(p *hfconfig.Checker, d document) {
	firstDense, shared, perToken, groups, topGroups, scale, normalize := 0, 2, 0, 1, 1, 1.0, false
	if c.v3() {
		firstDense, shared, perToken, groups, topGroups, scale, normalize = 3, 1, 8, 8, 4, 2.5, true
	}
	c.FirstDense = p.Count("first_k_dense_replace", d.FirstDense, firstDense, 1<<12)
	c.LayerFreq = p.Size("moe_layer_freq", d.LayerFreq, 1, 1<<12)
	if d.NumExperts == nil {
		return
	}
	c.NumExperts = p.Size("n_routed_experts", d.NumExperts, 0, 1<<14)
	if total := c.NumExperts * c.NumHiddenLayers; total > maxExperts {
		p.Fail("n_routed_experts %d in %d layers are more than %d", c.NumExperts, c.NumHiddenLayers, maxExperts)
	}
	c.Experts = Experts{
		IntermediateSize: p.Size("moe_intermediate_size", d.ExpertSize, 0, 1<<20),
		Shared:           p.Count("n_shared_experts", d.Shared, shared, 1<<10),
		PerToken:         p.Size("num_experts_per_tok", d.PerToken, perToken, 1<<10),
		Groups:           p.Size("n_group", d.Groups, groups, 1<<10),
		TopGroups:        p.Size("topk_group", d.TopGroups, topGroups, 1<<10),
		Normalize:        normalize,
		Scale:            p.Number("routed_scaling_factor", d.Scale, scale, 0, 1e6),
		BalanceLoss:      p.Number("aux_loss_alpha", d.BalanceLoss, 0, 0, 1e6),
		BalanceSequences: true,
	}
	e := &c.Experts
	if d.Normalize != nil {
		e.Normalize = *d.Normalize
	}
	if d.BalanceSequences != nil {
		e.BalanceSequences = *d.BalanceSequences
	}
	if !c.v3() && (d.TopKMethod == nil || *d.TopKMethod == "greedy") {
		e.Groups, e.TopGroups = 1, 1
	}
	if p.Err() != nil {
		return
	}
	size := c.NumExperts / e.Groups // of a group
	switch {
	case c.NumExperts%e.Groups != 0:
		p.Fail("n_routed_experts %d is not a multiple of n_group %d", c.NumExperts, e.Groups)
	case e.TopGroups > e.Groups:
		p.Fail("topk_group %d is more than n_group %d", e.TopGroups, e.Groups)
	case e.PerToken > e.TopGroups*size:
		p.Fail("num_experts_per_tok %d is more than the %d experts of topk_group %d groups", e.PerToken, e.TopGroups*size, e.TopGroups)
	case c.v3() && size < 2:
		p.Fail("n_group %d leaves 1 expert in a group, whose score is the sum of two", e.Groups)
	}
}
