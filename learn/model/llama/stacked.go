package llama

import (
	"github.com/psyche-go/psyche/learn/model/experts"
	"github.com/psyche-go/psyche/learn/torch"
)

// Stacked describes experts with one transposed tensor per matrix for all experts of a layer.
type Stacked struct {
	Biases     bool // of the router and of all products of experts
	ScaleInput bool // the share of a token multiplies the input of an expert, not its output
	Shared     bool // a further expert, with the matrices of a dense layer, computes every token
	// Clamped is the gate of GPT-OSS. Nil means that gates precede factors and the gate is SiLU.
	Clamped *Clamp
}

// Clamp bounds gates from above and factors from both sides. Gates and factors alternate in the checkpoint.
type Clamp struct{ Limit, Alpha float64 }

const sharedFolder = "shared_expert."

// stackedShapes are the shapes of a layer's experts by their names.
func stackedShapes(c Config) map[string][]int64 {
	e, count := c.Experts, int64(c.Experts.Count)
	hidden, inner := int64(c.HiddenSize), int64(c.Experts.IntermediateSize)
	all := map[string][]int64{
		e.Names.router + ".weight":       {count, hidden},
		e.Names.folder + ".gate_up_proj": {count, hidden, 2 * inner},
		e.Names.folder + ".down_proj":    {count, inner, hidden},
	}
	if e.Stacked.Biases {
		all[e.Names.router+".bias"] = []int64{count}
		all[e.Names.folder+".gate_up_proj_bias"] = []int64{count, 2 * inner}
		all[e.Names.folder+".down_proj_bias"] = []int64{count, hidden}
	}
	if e.Stacked.Shared {
		all[c.feed(sharedFolder+"gate_proj.weight")] = []int64{inner, hidden}
		all[c.feed(sharedFolder+"up_proj.weight")] = []int64{inner, hidden}
		all[c.feed(sharedFolder+"down_proj.weight")] = []int64{hidden, inner}
	}
	return all
}

// takeStacked gets the experts of a layer.
func (c Config) takeStacked(layer func(name string) *torch.Tensor) *mixture {
	e := c.Experts
	m := &mixture{router: layer(e.Names.router + ".weight"), stacked: &experts.Stacked{
		GateUp: layer(e.Names.folder + ".gate_up_proj"), Down: layer(e.Names.folder + ".down_proj"),
		Gated: e.Stacked.gated, ScaleInput: e.Stacked.ScaleInput,
	}}
	if e.Stacked.Biases {
		m.routerBias = layer(e.Names.router + ".bias")
		m.stacked.GateUpBias, m.stacked.DownBias = layer(e.Names.folder+".gate_up_proj_bias"), layer(e.Names.folder+".down_proj_bias")
	}
	if e.Stacked.Shared {
		m.shared = &experts.FeedForward{
			Gate: layer(c.feed(sharedFolder + "gate_proj.weight")), Up: layer(c.feed(sharedFolder + "up_proj.weight")),
			Down: layer(c.feed(sharedFolder + "down_proj.weight")),
		}
	}
	return m
}

// gated computes the inner values [experts,n,inner] of gates and factors [experts,n,2·inner].
func (k Stacked) gated(gateUp *torch.Tensor) *torch.Tensor {
	count, n, inner := gateUp.Dim(0), gateUp.Dim(1), gateUp.Dim(2)/2
	if k.Clamped == nil {
		return gateUp.Narrow(2, 0, inner).SwiGLU(gateUp.Narrow(2, inner, inner))
	}
	pairs := gateUp.Reshape(count, n, inner, 2)
	gate := atMost(pairs.Narrow(3, 0, 1).Squeeze(3), k.Clamped.Limit)
	up := atMost(atMost(pairs.Narrow(3, 1, 1).Squeeze(3), k.Clamped.Limit).Neg(), k.Clamped.Limit).Neg()
	return gate.Mul(gate.MulScalar(k.Clamped.Alpha).Sigmoid()).Mul(up.AddScalar(1))
}

// atMost returns the smaller of x and limit. The gradient of clamped elements is zero.
func atMost(x *torch.Tensor, limit float64) *torch.Tensor {
	return x.MaskedFill(x.Detach().AddScalar(-limit).Sign().EqScalar(1), limit)
}
