package llama

import (
	"fmt"

	"github.com/psyche-go/psyche/learn/model/experts"
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/torch"
)

// maxExperts bounds the experts of all layers together, maxExpertsOfLayer those of one.
const maxExperts, maxExpertsOfLayer = 1 << 18, 1 << 14

// expertFields are those of architectures with experts.
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

// refuseRouting refuses a loss that balances the experts, and noise.
func (e expertFields) refuseRouting(p *hfconfig.Checker) {
	switch {
	case e.RouterLogits:
		p.Fail("output_router_logits true is not supported: it adds a loss that balances the experts, which is not computed")
	case e.Jitter != 0:
		p.Refuse("router_jitter_noise", e.Jitter)
	}
}

// refuseScoring refuses to choose experts in another way than DeepSeek-V3.
func (e expertFields) refuseScoring(p *hfconfig.Checker) {
	switch {
	case e.Scoring != nil && *e.Scoring != "sigmoid":
		p.Refuse("scoring_func", *e.Scoring)
	case e.Method != nil && *e.Method != "noaux_tc":
		p.Refuse("topk_method", *e.Method)
	}
}

// normalizes is norm_topk_prob, or fallback.
func (e expertFields) normalizes(fallback bool) bool {
	if e.Normalize == nil {
		return fallback
	}
	return *e.Normalize
}

// expertNames are the names of a layer's tensors in a checkpoint.
type expertNames struct {
	router, folder, gate, up, down string

	correction         string // empty means no correction
	shared, sharedGate string // folder and gate of the expert that every token uses
}

// qwenNames are the names of experts in Qwen, OLMoE and GLM.
var qwenNames = expertNames{router: "mlp.gate.weight", folder: "mlp.experts", gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight"}

// correction ends the names of tensors that correct the scores for the choice. Training does not move these
// tensors: DeepSeek moves them by the load of each expert in the whole batch, and a member sees its share only.
const correction = "e_score_correction_bias"

// addExperts puts experts into the layers for which sparse is true.
func (c *Config) addExperts(p *hfconfig.Checker, e Experts, field string, sparse func(layer int) bool) {
	if total := e.Count * c.NumHiddenLayers; total > maxExperts {
		p.Fail("%s %d in %d layers are more than %d", field, e.Count, c.NumHiddenLayers, maxExperts)
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

// mixture holds the weights of a layer of which each token uses a part.
type mixture struct {
	router     *torch.Tensor // [Count,HiddenSize]
	correction *torch.Tensor // [Count], added to scores for the choice only; nil means none
	routed     []experts.FeedForward
	shared     experts.FeedForward // for all tokens; zero without one
	sharedGate *torch.Tensor       // [1,HiddenSize]; nil without one
}

// expertShapes are the shapes of a layer's experts by their names.
func expertShapes(c Config) map[string][]int64 {
	e, hidden, inner := c.Experts, int64(c.HiddenSize), int64(c.Experts.IntermediateSize)
	all := map[string][]int64{e.Names.router: {int64(e.Count), hidden}}
	for i := range e.Count {
		all[e.name(i, e.Names.gate)] = []int64{inner, hidden}
		all[e.name(i, e.Names.up)] = []int64{inner, hidden}
		all[e.name(i, e.Names.down)] = []int64{hidden, inner}
	}
	if e.Names.correction != "" {
		all[e.Names.correction] = []int64{int64(e.Count)}
	}
	if shared := int64(e.Shared); shared > 0 {
		all[e.Names.inShared(e.Names.gate)] = []int64{shared, hidden}
		all[e.Names.inShared(e.Names.up)] = []int64{shared, hidden}
		all[e.Names.inShared(e.Names.down)] = []int64{hidden, shared}
	}
	if e.SharedGate {
		all[e.Names.sharedGate] = []int64{1, hidden}
	}
	return all
}

func (n expertNames) inShared(tensor string) string { return n.shared + "." + tensor }

func (e Experts) name(expert int, tensor string) string {
	return fmt.Sprintf("%s.%d.%s", e.Names.folder, expert, tensor)
}

func (c Config) takeExperts(layer func(name string) *torch.Tensor) *mixture {
	e := c.Experts
	m := &mixture{router: layer(e.Names.router)}
	for i := range e.Count {
		m.routed = append(m.routed, experts.FeedForward{
			Gate: layer(e.name(i, e.Names.gate)), Up: layer(e.name(i, e.Names.up)), Down: layer(e.name(i, e.Names.down)),
		})
	}
	if e.Names.correction != "" {
		m.correction = layer(e.Names.correction)
	}
	if n := e.Names; e.Shared > 0 {
		m.shared = experts.FeedForward{Gate: layer(n.inShared(n.gate)), Up: layer(n.inShared(n.up)), Down: layer(n.inShared(n.down))}
	}
	if e.SharedGate {
		m.sharedGate = layer(e.Names.sharedGate)
	}
	return m
}

// router returns the rules of the choice.
func (e Experts) router() experts.Router {
	return experts.Router{Experts: e.Count, Groups: max(e.Groups, 1), TopGroups: max(e.TopGroups, 1), Chosen: e.PerToken, Pairs: e.Sigmoid}
}

// shares turns the scores [tokens,chosen] of the chosen experts into the factors of their outputs.
func (e Experts) shares(scores *torch.Tensor) *torch.Tensor {
	if e.Normalize {
		sum := scores.SumDim(1, true)
		if e.Sigmoid { // whose sum may be zero
			sum = sum.AddScalar(1e-20)
		}
		scores = scores.Div(sum)
	}
	if e.Scale != 0 && e.Scale != 1 {
		scores = scores.MulScalar(e.Scale)
	}
	return scores
}

// mix is the feed-forward layer of x [B,T,HiddenSize]. Experts are chosen by f32 scores, whatever is
// computed in.
func (m *Llama) mix(s *torch.Scope, e *mixture, x *torch.Tensor) *torch.Tensor {
	c := m.config.Experts
	rows := x.Reshape(-1, x.Dim(-1))
	tokens, chosen := rows.Dim(0), int64(c.PerToken)
	scores := rows.To(torch.F32).Linear(e.router)
	if c.Sigmoid {
		scores = scores.Sigmoid()
	} else {
		scores = scores.Softmax(1)
	}
	var corrections []float32
	if e.correction != nil {
		corrections = e.correction.CopyFloat32s()
	}
	choices := make([]int64, tokens*chosen)
	c.router().Choose(scores.CopyFloat32s(), corrections, choices)
	y := experts.Mix(s, e.routed, rows, choices, c.shares(scores.Gather(1, s.FromInt64s(choices, tokens, chosen))))
	if c.Shared > 0 {
		every := e.shared.Of(rows)
		if e.sharedGate != nil {
			every = every.Mul(m.linear(rows, e.sharedGate, nil).Sigmoid())
		}
		y = y.Add(every)
	}
	return y.Reshape(x.Shape()...)
}
