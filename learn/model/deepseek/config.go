package deepseek

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// Names in "architectures" of config.json.
const (
	ArchitectureV2 = "DeepseekV2ForCausalLM"
	ArchitectureV3 = "DeepseekV3ForCausalLM"
)

// modelTypes contains the values of model_type for each architecture. Kimi K2 is a DeepSeek-V3 with
// other sizes.
var modelTypes = map[string][]string{ArchitectureV2: {"deepseek_v2"}, ArchitectureV3: {"deepseek_v3", "kimi_k2"}}

// maxExperts is the maximum number of experts in all layers together: DeepSeek-V3 has 14848.
const maxExperts = 1 << 18

// Config contains the fields of a config.json that describe the network. Other fields are not read.
type Config struct {
	hfconfig.Base
	Architecture  string
	QLoraRank     int // width of the compressed queries; 0: queries are not compressed
	KVLoraRank    int // width of the compressed keys and values
	QKNopeHeadDim int // width of a query or key without position
	QKRopeHeadDim int // width of the part with rotary position, even
	VHeadDim      int // width of a value
	Rope          Rope

	FirstDense int // layers before this one are dense
	LayerFreq  int // after FirstDense, each layer whose number is a multiple of this has experts
	NumExperts int // in each layer; 0: all layers are dense
	Experts    Experts

	NumNextN int // layers after the last that predict further tokens; they are not loaded
}

// Experts describes how a token chooses its experts, and how their outputs are combined.
type Experts struct {
	IntermediateSize int     // width inside one expert
	Shared           int     // number of experts that every token uses, computed as one expert of Shared times the width; may be 0
	PerToken         int     // number of experts that a token chooses
	Groups           int     // number of groups of equal size
	TopGroups        int     // number of groups from which a token may choose
	Normalize        bool    // the chosen scores are divided by their sum
	Scale            float64 // factor of the sum of the chosen experts' outputs
	BalanceLoss      float64 // weight of the loss that balances the experts; 0: none
	BalanceSequences bool    // BalanceLoss balances each sequence separately, not all of a micro-batch
}

// v3 reports whether the architecture is V3, which scores experts by a sigmoid, with a correction
// used only for the choice.
func (c Config) v3() bool { return c.Architecture == ArchitectureV3 }

// sparse reports whether a layer has experts.
func (c Config) sparse(layer int) bool {
	return c.NumExperts > 0 && layer >= c.FirstDense && layer%c.LayerFreq == 0
}

// own contains the fields that only these architectures have.
type own struct {
	QLoraRank     *int `json:"q_lora_rank"`
	KVLoraRank    *int `json:"kv_lora_rank"`
	QKNopeHeadDim *int `json:"qk_nope_head_dim"`
	QKRopeHeadDim *int `json:"qk_rope_head_dim"`
	VHeadDim      *int `json:"v_head_dim"`

	FirstDense       *int     `json:"first_k_dense_replace"`
	LayerFreq        *int     `json:"moe_layer_freq"`
	NumExperts       *int     `json:"n_routed_experts"`
	Shared           shared   `json:"n_shared_experts"`
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

	RopeInterleave *bool `json:"rope_interleave"`
}

// shared is n_shared_experts. null differs from an absent field: only an absent field gets the
// default.
type shared struct {
	count *int
	null  bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *shared) UnmarshalJSON(data []byte) error {
	s.null = string(data) == "null"
	if err := json.Unmarshal(data, &s.count); err != nil {
		return fmt.Errorf("n_shared_experts: want an integer, not %s", data)
	}
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
	d.RefuseBiases(&p)
	d.RefuseActivation(&p, "silu")
	o.refuse(&p, d.Architecture())
	c := Config{
		Base:          d.Base(&p),
		Architecture:  d.Architecture(),
		KVLoraRank:    p.Size("kv_lora_rank", o.KVLoraRank, 0, 1<<16),
		QKNopeHeadDim: p.Size("qk_nope_head_dim", o.QKNopeHeadDim, 0, 1<<12),
		QKRopeHeadDim: p.Size("qk_rope_head_dim", o.QKRopeHeadDim, 0, 1<<12),
		VHeadDim:      p.Size("v_head_dim", o.VHeadDim, 0, 1<<12),
		NumNextN:      p.Count("num_nextn_predict_layers", o.NumNextN, 0, 1<<6),
	}
	if o.QLoraRank != nil { // null in V2-Lite
		c.QLoraRank = p.Size("q_lora_rank", o.QLoraRank, 0, 1<<16)
	}
	if c.QKRopeHeadDim%2 != 0 {
		p.Fail("qk_rope_head_dim %d is odd, but rotary positions need pairs", c.QKRopeHeadDim)
	}
	if d.NumKeyValueHeads != nil && *d.NumKeyValueHeads != c.NumAttentionHeads {
		p.Fail("num_key_value_heads %d must equal num_attention_heads %d", *d.NumKeyValueHeads, c.NumAttentionHeads)
	}
	c.experts(&p, o)
	c.rope(&p, d, o.RopeInterleave)
	if p.Err() != nil {
		return Config{}, p.Err()
	}
	return c, nil
}

// refuse refuses choices of experts that the architecture does not have.
func (o own) refuse(p *hfconfig.Checker, architecture string) {
	scoring, methods := "softmax", []string{"greedy", "group_limited_greedy"}
	if architecture == ArchitectureV3 {
		scoring, methods = "sigmoid", []string{"noaux_tc"}
	}
	if o.ScoringFunc != nil && *o.ScoringFunc != scoring {
		p.Fail("scoring_func is %q, but %s has %q", *o.ScoringFunc, architecture, scoring)
	}
	if o.TopKMethod != nil && !slices.Contains(methods, *o.TopKMethod) {
		p.Fail("topk_method is %q, but %s has %s", *o.TopKMethod, architecture, strings.Join(methods, " or "))
	}
}

// experts fills in the fields of the experts. Defaults are those of transformers, except the
// balance loss, which must be requested.
func (c *Config) experts(p *hfconfig.Checker, o own) {
	firstDense, sharedExperts, perToken, groups, topGroups, scale, normalize := 0, 2, 0, 1, 1, 1.0, false
	if c.v3() {
		firstDense, sharedExperts, perToken, groups, topGroups, scale, normalize = 3, 1, 8, 8, 4, 2.5, true
	}
	c.FirstDense = p.Count("first_k_dense_replace", o.FirstDense, firstDense, 1<<12)
	c.LayerFreq = p.Size("moe_layer_freq", o.LayerFreq, 1, 1<<12)
	if o.NumExperts == nil {
		return
	}
	c.NumExperts = p.Size("n_routed_experts", o.NumExperts, 0, 1<<14)
	if total := c.NumExperts * c.NumHiddenLayers; total > maxExperts {
		p.Fail("n_routed_experts %d in %d layers exceeds the limit of %d experts in a model", c.NumExperts, c.NumHiddenLayers, maxExperts)
	}
	if o.Shared.null {
		p.Fail("n_shared_experts is null in a model with experts: give their number, 0 for none")
	}
	c.Experts = Experts{
		IntermediateSize: p.Size("moe_intermediate_size", o.ExpertSize, 0, 1<<20),
		Shared:           p.Count("n_shared_experts", o.Shared.count, sharedExperts, 1<<10),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, perToken, 1<<10),
		Groups:           p.Size("n_group", o.Groups, groups, 1<<10),
		TopGroups:        p.Size("topk_group", o.TopGroups, topGroups, 1<<10),
		Normalize:        normalize,
		Scale:            p.Number("routed_scaling_factor", o.Scale, scale, 0, 1e6),
		BalanceLoss:      p.Number("aux_loss_alpha", o.BalanceLoss, 0, 0, 1e6),
		BalanceSequences: true,
	}
	e := &c.Experts
	if o.Normalize != nil {
		e.Normalize = *o.Normalize
	}
	if o.BalanceSequences != nil {
		e.BalanceSequences = *o.BalanceSequences
	}
	if !c.v3() && (o.TopKMethod == nil || *o.TopKMethod == "greedy") {
		e.Groups, e.TopGroups = 1, 1
	}
	c.router().Check(p)
}
