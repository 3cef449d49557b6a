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
	Normalize       bool    `json:"norm_topk_prob"`
	SparseStep      *int    `json:"decoder_sparse_step"`
	DenseLayers     []int   `json:"mlp_only_layers"`
	RouterLogits    bool    `json:"output_router_logits"`
	Jitter          float64 `json:"router_jitter_noise"`
}

// refuseRouting refuses a loss that balances the experts, and noise.
func (e expertFields) refuseRouting(p *hfconfig.Checker) {
	switch {
	case e.RouterLogits:
		p.Fail("output_router_logits true is not supported, because the extra loss that balances the experts is not computed")
	case e.Jitter != 0:
		p.Refuse("router_jitter_noise", e.Jitter)
	}
}

// scoring selects how router logits become shares of experts.
type scoring int

const (
	softmaxOfAll    scoring = iota // the choice is by probability
	softmaxOfChosen                // the choice is by logit
	sigmoid                        // the choice is by logit
)

// expertNames are the names of a layer's tensors in a checkpoint.
type expertNames struct{ router, folder, gate, up, down string }

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
	routerBias *torch.Tensor // [Count]; nil adds nothing
	routed     []experts.FeedForward
	stacked    *experts.Stacked     // instead of routed
	shared     *experts.FeedForward // computes every token; nil: there is none
}

// expertShapes are the shapes of a layer's experts by their names.
func expertShapes(c Config) map[string][]int64 {
	if c.Experts.Stacked != nil {
		return stackedShapes(c)
	}
	e, hidden, inner := c.Experts, int64(c.HiddenSize), int64(c.Experts.IntermediateSize)
	all := map[string][]int64{e.Names.router: {int64(e.Count), hidden}}
	for i := range e.Count {
		all[e.name(i, e.Names.gate)] = []int64{inner, hidden}
		all[e.name(i, e.Names.up)] = []int64{inner, hidden}
		all[e.name(i, e.Names.down)] = []int64{hidden, inner}
	}
	return all
}

func (e Experts) name(expert int, tensor string) string {
	return fmt.Sprintf("%s.%d.%s", e.Names.folder, expert, tensor)
}

func (c Config) takeExperts(layer func(name string) *torch.Tensor) *mixture {
	if c.Experts.Stacked != nil {
		return c.takeStacked(layer)
	}
	e := c.Experts
	m := &mixture{router: layer(e.Names.router)}
	for i := range e.Count {
		m.routed = append(m.routed, experts.FeedForward{
			Gate: layer(e.name(i, e.Names.gate)), Up: layer(e.name(i, e.Names.up)), Down: layer(e.name(i, e.Names.down)),
		})
	}
	return m
}

// mix is the feed-forward layer of x [B,T,HiddenSize]. Experts are chosen by f32 scores, whatever is
// computed in.
func (m *Llama) mix(s *torch.Scope, e *mixture, x *torch.Tensor) *torch.Tensor {
	c := m.config.Experts
	rows := x.Reshape(-1, x.Dim(-1))
	tokens, chosen := rows.Dim(0), int64(c.PerToken)
	scores := rows.To(torch.F32).Linear(e.router)
	if e.routerBias != nil {
		scores = scores.Add(e.routerBias)
	}
	if c.Scoring == softmaxOfAll {
		scores = scores.Softmax(1)
	}
	choices := make([]int64, tokens*chosen)
	experts.Router{Experts: c.Count, Groups: 1, TopGroups: 1, Chosen: c.PerToken}.Choose(scores.CopyFloat32s(), nil, choices)
	share := scores.Gather(1, s.FromInt64s(choices, tokens, chosen))
	switch c.Scoring {
	case softmaxOfChosen:
		share = share.Softmax(1)
	case sigmoid:
		share = share.Sigmoid()
	}
	if c.Normalize {
		share = share.Div(share.SumDim(1, true))
	}
	return e.mix(s, rows, choices, share).Reshape(x.Shape()...)
}

// mix returns the sum of the outputs of the chosen experts and of the shared one, for each of rows.
func (e *mixture) mix(s *torch.Scope, rows *torch.Tensor, choices []int64, share *torch.Tensor) *torch.Tensor {
	if e.stacked == nil {
		return experts.Mix(s, e.routed, rows, choices, share)
	}
	y := e.stacked.Mix(s, rows, choices, share)
	if e.shared != nil {
		y = y.Add(e.shared.Of(rows))
	}
	return y
}
