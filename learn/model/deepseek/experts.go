package deepseek

import (
	"github.com/psyche-go/psyche/learn/model/experts"
	"github.com/psyche-go/psyche/learn/torch"
)

// mixture contains the weights of a layer with experts.
type mixture struct {
	gate *torch.Tensor // [NumExperts,HiddenSize], the router
	// correction [NumExperts] is added to V3's scores only for the choice. It has no gradient.
	// DeepSeek updates it by the load of each expert in the whole batch, which no member of a run
	// knows. Here it stays as in the checkpoint, the same for all members.
	correction *torch.Tensor
	shared     experts.FeedForward // for all tokens; nil without
	routed     []experts.FeedForward
}

// mix computes the feed-forward part of a layer with experts for x [B,T,HiddenSize], which is the
// output of the norm. y has the same shape. balance is the loss that balances the experts, if the
// config has one.
func (m *DeepSeek) mix(s *torch.Scope, e *mixture, x *torch.Tensor) (y, balance *torch.Tensor) {
	c := m.config
	rows := x.Reshape(-1, x.Dim(-1))
	tokens, chosen := rows.Dim(0), int64(c.Experts.PerToken)
	scores := rows.To(torch.F32).Linear(e.gate)
	if c.v3() {
		scores = scores.Sigmoid()
	} else {
		scores = scores.Softmax(1)
	}
	choices := make([]int64, tokens*chosen)
	var correction []float32
	if e.correction != nil {
		correction = e.correction.CopyFloat32s()
	}
	c.router().Choose(scores.CopyFloat32s(), correction, choices)

	share := c.shares(scores.Gather(1, s.FromInt64s(choices, tokens, chosen)))
	y = experts.Mix(s, e.routed, rows, choices, share)
	if e.shared.Gate != nil {
		y = y.Add(e.shared.Of(rows))
	}
	if c.Experts.BalanceLoss > 0 {
		balance = m.balance(s, scores, choices, x.Dim(0))
	}
	return y.Reshape(x.Shape()...), balance
}

// shares converts the scores [tokens,chosen] of the chosen experts to the factors of their outputs.
// V2 scales only scores that it does not normalise, V3 always scales.
func (c Config) shares(scores *torch.Tensor) *torch.Tensor {
	switch e := c.Experts; {
	case !e.Normalize, !c.v3() && e.PerToken == 1:
		return scores.MulScalar(e.Scale)
	case c.v3():
		return scores.Div(scores.SumDim(1, true).AddScalar(1e-20)).MulScalar(e.Scale)
	default:
		return scores.Div(scores.SumDim(1, true).AddScalar(1e-20))
	}
}

func (c Config) router() experts.Router {
	e := c.Experts
	return experts.Router{Experts: c.NumExperts, Groups: e.Groups, TopGroups: e.TopGroups, Chosen: e.PerToken, Pairs: c.v3()}
}

// balance returns BalanceLoss times the sum over experts of load times mean score. This is minimal
// if all experts are used equally (arXiv 2405.04434, section 2.2.3, and 2412.19437, 2.1.2). Loads
// have no gradient. With BalanceSequences, the result is the mean over the sequences; otherwise the
// micro-batch counts as one sequence.
func (m *DeepSeek) balance(s *torch.Scope, scores *torch.Tensor, choices []int64, sequences int64) *torch.Tensor {
	c := m.config
	if !c.Experts.BalanceSequences {
		sequences = 1
	}
	if c.v3() {
		scores = scores.Div(scores.SumDim(1, true).AddScalar(1e-20))
	}
	n := int64(c.NumExperts)
	load := s.FromFloat32s(experts.Loads(choices, int(sequences), c.NumExperts), sequences, n)
	return scores.Reshape(sequences, -1, n).MeanDim(1, false).Mul(load).Sum().MulScalar(c.Experts.BalanceLoss / float64(sequences))
}
