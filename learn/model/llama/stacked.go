package llama

import (
	"github.com/psyche-go/psyche/learn/model/experts"
	"github.com/psyche-go/psyche/learn/torch"
)

// Stacked describes experts with one transposed tensor per matrix for all experts of a layer.
type Stacked struct {
	Biases     bool // all products of experts have biases
	ScaleInput bool // the share of a token multiplies the input of an expert, not its output
	// Clamped is the gate of GPT-OSS. Nil means that gates precede factors and the gate is SiLU.
	Clamped *Clamp
}

// Clamp bounds gates from above and factors from both sides. Gates and factors alternate in the checkpoint.
type Clamp struct{ Limit, Alpha float64 }

// Names of the tensors in the folder of the experts.
const (
	stackedGateUp, stackedGateUpBias = ".gate_up_proj", ".gate_up_proj_bias"
	stackedDown, stackedDownBias     = ".down_proj", ".down_proj_bias"
)

// stackedShapes returns the shapes of a layer's stacked experts by their names.
func stackedShapes(c Config) map[string][]int64 {
	folder, count := c.Experts.Names.folder, int64(c.Experts.Count)
	hidden, inner := int64(c.HiddenSize), int64(c.Experts.IntermediateSize)
	all := map[string][]int64{
		folder + stackedGateUp: {count, hidden, 2 * inner},
		folder + stackedDown:   {count, inner, hidden},
	}
	if c.Experts.Stacked.Biases {
		all[folder+stackedGateUpBias] = []int64{count, 2 * inner}
		all[folder+stackedDownBias] = []int64{count, hidden}
	}
	return all
}

// takeStacked takes the stacked experts of a layer.
func (e Experts) takeStacked(layer func(name string) *torch.Tensor) *experts.Stacked {
	folder := e.Names.folder
	stacked := &experts.Stacked{
		GateUp: layer(folder + stackedGateUp), Down: layer(folder + stackedDown),
		Gated: e.Stacked.gated, ScaleInput: e.Stacked.ScaleInput,
	}
	if e.Stacked.Biases {
		stacked.GateUpBias, stacked.DownBias = layer(folder+stackedGateUpBias), layer(folder+stackedDownBias)
	}
	return stacked
}

// gated computes the inner values [experts,n,inner] of gates and factors [experts,n,2·inner].
func (s Stacked) gated(gateUp *torch.Tensor) *torch.Tensor {
	count, n, inner := gateUp.Dim(0), gateUp.Dim(1), gateUp.Dim(2)/2
	if s.Clamped == nil {
		return gateUp.Narrow(2, 0, inner).SwiGLU(gateUp.Narrow(2, inner, inner))
	}
	pairs := gateUp.Reshape(count, n, inner, 2)
	gate := atMost(pairs.Narrow(3, 0, 1).Squeeze(3), s.Clamped.Limit)
	up := atMost(atMost(pairs.Narrow(3, 1, 1).Squeeze(3), s.Clamped.Limit).Neg(), s.Clamped.Limit).Neg()
	return gate.Mul(gate.MulScalar(s.Clamped.Alpha).Sigmoid()).Mul(up.AddScalar(1))
}

// atMost returns the smaller of x and limit. The gradient of clamped elements is zero.
func atMost(x *torch.Tensor, limit float64) *torch.Tensor {
	return x.MaskedFill(x.Detach().AddScalar(-limit).Sign().EqScalar(1), limit)
}
