// Package recompute computes the gradient of a network without storing the values inside its layers
// (activation checkpointing). It keeps the input of each layer, and computes the layer again in the
// backward pass (Chen et al., arXiv 1604.06174).
//
// Network describes a model's parts; Gradient computes the gradient.
package recompute

import "github.com/psyche-go/psyche/learn/torch"

// Network is a sequence of layers.
type Network struct {
	// Embed returns the input of the first layer.
	Embed func() *torch.Tensor
	// Layers is the number of layers.
	Layers int
	// Layer computes one layer, and the layer's own loss, or nil if it has none. For the same input
	// it must compute the same output.
	Layer func(s *torch.Scope, number int, x *torch.Tensor) (y, loss *torch.Tensor)
	// Loss returns the loss for the output of the last layer, and a tensor whose Backward computes the
	// share of its gradient that Gradient adds.
	Loss func(x *torch.Tensor) (loss, root *torch.Tensor)
}

// Gradient returns the loss, and adds share times the gradient of the sum of all losses to the gradients of
// the parameters. The network's Loss must use the same share.
func Gradient(s *torch.Scope, n Network, share float64) (loss *torch.Tensor) {
	inputs := make([]*torch.Tensor, n.Layers+1)
	forward := func() error {
		inputs[0] = n.Embed()
		for i := range n.Layers {
			_ = s.Sub(func(s *torch.Scope) error {
				y, _ := n.Layer(s, i, inputs[i])
				inputs[i+1] = s.Lift(y)
				return nil
			})
		}
		return nil
	}
	_ = s.WithGrad(false, forward)

	var slope *torch.Tensor // gradient of a layer's output
	// back computes a part of the network again, and converts the gradient of its output to the
	// gradient of its input.
	back := func(input *torch.Tensor, part func(s *torch.Scope, x *torch.Tensor) *torch.Tensor) {
		_ = s.Sub(func(s *torch.Scope) error {
			x := input.SetRequiresGrad(true)
			part(s, x).Backward()
			after := slope
			if slope = s.Lift(x.Grad()); after != nil {
				after.Free()
			}
			return nil
		})
		input.Free()
	}
	back(inputs[n.Layers], func(s *torch.Scope, x *torch.Tensor) *torch.Tensor {
		l, root := n.Loss(x)
		loss = s.Lift(l.Detach())
		return root
	})
	for i := n.Layers - 1; i >= 0; i-- {
		back(inputs[i], func(s *torch.Scope, x *torch.Tensor) *torch.Tensor {
			y, own := n.Layer(s, i, x)
			sum := y.Mul(slope).Sum()
			if own != nil {
				sum = sum.To(torch.F32).Add(own.MulScalar(share))
			}
			return sum
		})
	}
	_ = s.Sub(func(*torch.Scope) error {
		n.Embed().Mul(slope).Sum().Backward()
		return nil
	})
	return loss
}
