package llama

import (
	"fmt"
	"maps"

	"github.com/psyche-go/psyche/learn/model/experts"
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/torch"
)

// maxExperts is the maximum number of experts in all layers together, maxExpertsOfLayer in one
// layer.
const maxExperts, maxExpertsOfLayer = 1 << 18, 1 << 14

// expertFields contains the fields of architectures with experts.
type expertFields struct {
	NumExperts      *int    `json:"num_experts"`
	NumLocalExperts *int    `json:"num_local_experts"`
	PerToken        *int    `json:"num_experts_per_tok"`
	ExpertSize      *int    `json:"moe_intermediate_size"`
	Normalize       *bool   `json:"norm_topk_prob"`
	SparseStep      *int    `json:"decoder_sparse_step"`
	DenseLayers     []int   `json:"mlp_only_layers"`
	RouterLogits    bool    `json:"output_router_logits"`
	Jitter          float64 `json:"router_jitter_noise"`
	Scoring         *string `json:"scoring_func"`
	Method          *string `json:"topk_method"`
}

// refuseRouting refuses router options that this package does not implement: the load-balancing loss
// and jitter noise.
func (e expertFields) refuseRouting(p *hfconfig.Checker) {
	switch {
	case e.RouterLogits:
		p.Fail("output_router_logits true is not supported, because the extra loss that balances the experts is not computed")
	case e.Jitter != 0:
		p.Refuse("router_jitter_noise", e.Jitter)
	}
}

// refuseScoring refuses other choices of experts than DeepSeek-V3's.
func (e expertFields) refuseScoring(p *hfconfig.Checker) {
	switch {
	case e.Scoring != nil && *e.Scoring != "sigmoid":
		p.Refuse("scoring_func", *e.Scoring)
	case e.Method != nil && *e.Method != "noaux_tc":
		p.Refuse("topk_method", *e.Method)
	}
}

// sameCount returns the number of experts in a field, which an alias may also set.
func sameCount(p *hfconfig.Checker, field string, count *int, alias string, other *int) *int {
	switch {
	case count == nil:
		return other
	case other != nil && *other != *count:
		p.Fail("%s is %d and %s %d: keep the correct one", field, *count, alias, *other)
	}
	return count
}

// expertNames contains the names of a layer's tensors in a checkpoint.
type expertNames struct {
	router, routerBias string // empty routerBias means no bias
	folder             string // of the experts that tokens choose
	gate, up, down     string // in the folder of an expert
	correction         string // empty means no correction
	shared, sharedGate string // folder of the expert that every token uses, and its gate; empty gate means none
}

// qwenNames are the names of experts in Qwen, OLMoE and GLM.
var qwenNames = expertNames{router: "mlp.gate.weight", folder: "mlp.experts", gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight"}

// correction is the suffix of tensors that correct the scores for the choice. Training does not
// change these tensors: DeepSeek updates them by the load of each expert in the whole batch, and a
// member knows only its share.
const correction = "e_score_correction_bias"

// addExperts adds experts to the layers for which sparse is true.
func (c *Config) addExperts(p *hfconfig.Checker, e Experts, field string, sparse func(layer int) bool) {
	if total := e.Count * c.NumHiddenLayers; total > maxExperts {
		p.Fail("%s %d in %d layers exceeds the limit of %d experts in a model", field, e.Count, c.NumHiddenLayers, maxExperts)
	}
	if e.PerToken > e.Count {
		p.Fail("num_experts_per_tok %d is more than %s %d", e.PerToken, field, e.Count)
	}
	e.Sparse = make([]bool, c.NumHiddenLayers)
	for i := range e.Sparse {
		e.Sparse[i] = sparse(i)
	}
	c.Experts = e
}

// mixture contains the weights of a layer with experts.
type mixture struct {
	router     *torch.Tensor // [Count,HiddenSize]
	routerBias *torch.Tensor // [Count]; nil adds nothing
	correction *torch.Tensor // [Count], added to scores for the choice only; nil means none
	routed     []experts.FeedForward
	stacked    *experts.Stacked     // nil, or instead of routed
	shared     *experts.FeedForward // for all tokens; nil without one
	sharedGate *torch.Tensor        // [1,HiddenSize]; nil without one
}

// expertShapes returns the shapes of a layer's experts by their names.
func expertShapes(c Config) map[string][]int64 {
	e, hidden, count := c.Experts, int64(c.HiddenSize), int64(c.Experts.Count)
	all := map[string][]int64{e.Names.router: {count, hidden}}
	if e.Names.routerBias != "" {
		all[e.Names.routerBias] = []int64{count}
	}
	if e.Names.correction != "" {
		all[e.Names.correction] = []int64{count}
	}
	if e.Names.sharedGate != "" {
		all[e.Names.sharedGate] = []int64{1, hidden}
	}
	feedForward := func(folder string, inner int) {
		all[folder+"."+e.Names.gate] = []int64{int64(inner), hidden}
		all[folder+"."+e.Names.up] = []int64{int64(inner), hidden}
		all[folder+"."+e.Names.down] = []int64{hidden, int64(inner)}
	}
	if e.Shared > 0 {
		feedForward(e.Names.shared, e.Shared)
	}
	if e.Stacked != nil {
		maps.Copy(all, stackedShapes(c))
		return all
	}
	for i := range e.Count {
		feedForward(e.folder(i), e.IntermediateSize)
	}
	return all
}

// folder returns the folder of one expert.
func (e Experts) folder(expert int) string { return fmt.Sprintf("%s.%d", e.Names.folder, expert) }

// takeExperts takes the experts of a layer.
func (c Config) takeExperts(layer func(name string) *torch.Tensor) *mixture {
	e := c.Experts
	optional := func(name string) *torch.Tensor {
		if name == "" {
			return nil
		}
		return layer(name)
	}
	feedForward := func(folder string) experts.FeedForward {
		return experts.FeedForward{
			Gate: layer(folder + "." + e.Names.gate), Up: layer(folder + "." + e.Names.up), Down: layer(folder + "." + e.Names.down),
		}
	}
	m := &mixture{
		router: layer(e.Names.router), routerBias: optional(e.Names.routerBias),
		correction: optional(e.Names.correction), sharedGate: optional(e.Names.sharedGate),
	}
	if e.Shared > 0 {
		m.shared = new(feedForward(e.Names.shared))
	}
	if e.Stacked != nil {
		m.stacked = e.takeStacked(layer)
		return m
	}
	for i := range e.Count {
		m.routed = append(m.routed, feedForward(e.folder(i)))
	}
	return m
}

// router returns the router for the config.
func (e Experts) router() experts.Router {
	return experts.Router{Experts: e.Count, Groups: max(e.Groups, 1), TopGroups: max(e.TopGroups, 1), Chosen: e.PerToken, Pairs: e.Sigmoid}
}

// score converts logits [tokens,n] to scores.
func (e Experts) score(logits *torch.Tensor) *torch.Tensor {
	if e.Sigmoid {
		return logits.Sigmoid()
	}
	return logits.Softmax(1)
}

// shares converts the scores [tokens,chosen] of the chosen experts to the factors of their inputs
// or outputs.
func (e Experts) shares(scores *torch.Tensor) *torch.Tensor {
	if e.Normalize {
		sum := scores.SumDim(1, true)
		if e.Sigmoid { // their sum may be zero
			sum = sum.AddScalar(1e-20)
		}
		scores = scores.Div(sum)
	}
	if e.Scale != 0 && e.Scale != 1 {
		scores = scores.MulScalar(e.Scale)
	}
	return scores
}

// mix computes the feed-forward layer of x [B,T,HiddenSize].
func (m *Llama) mix(s *torch.Scope, e *mixture, x *torch.Tensor) *torch.Tensor {
	rows := x.Reshape(-1, x.Dim(-1))
	choices, share := e.choose(s, m.config.Experts, rows)
	var y *torch.Tensor
	if e.stacked != nil {
		y = e.stacked.Mix(s, rows, choices, share)
	} else {
		y = experts.Mix(s, e.routed, rows, choices, share)
	}
	if e.shared != nil {
		every := e.shared.Of(rows)
		if e.sharedGate != nil {
			every = every.Mul(m.linear(rows, e.sharedGate, nil).Sigmoid())
		}
		y = y.Add(every)
	}
	return y.Reshape(x.Shape()...)
}

// choose returns the experts of each of rows [tokens,HiddenSize] and their shares, both [tokens,PerToken]. Scores are
// f32 for every type of rows.
func (m *mixture) choose(s *torch.Scope, c Experts, rows *torch.Tensor) (choices []int64, share *torch.Tensor) {
	scores := rows.To(torch.F32).Linear(m.router)
	if m.routerBias != nil {
		scores = scores.Add(m.routerBias)
	}
	if !c.Late {
		scores = c.score(scores)
	}
	var correction []float32
	if m.correction != nil {
		correction = m.correction.CopyFloat32s()
	}
	tokens, chosen := rows.Dim(0), int64(c.PerToken)
	choices = make([]int64, tokens*chosen)
	c.router().Choose(scores.CopyFloat32s(), correction, choices)
	share = scores.Gather(1, s.FromInt64s(choices, tokens, chosen))
	if c.Late {
		share = c.score(share)
	}
	return choices, c.shares(share)
}
