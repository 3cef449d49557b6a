package modeltest

import (
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// Trainable is a model that can be trained.
type Trainable interface {
	Gradient(s *torch.Scope, ids, targets *torch.Tensor, share float64) *torch.Tensor
	Parameters() []torch.Parameter
}

// GradientsDiffer returns the largest difference between the losses and gradients of two models for
// the tokens of v, measured as in MaxRelativeError. Each model
// adds the gradient up in two parts, as for two micro-batches.
func GradientsDiffer(t testing.TB, e *torch.Engine, one, other Trainable, v Vectors) (worst float64) {
	t.Helper()
	ids, targets := v.Other["ids"], v.Other["targets"]
	const share = 0.375
	of := func(m Trainable) (loss []float32, gradients [][]float32) {
		before := torch.LiveTensors()
		torchtest.Do(t, e, true, func(s *torch.Scope) error {
			for range 2 {
				loss = m.Gradient(s, s.FromBytes(ids.Data, torch.I64, ids.Shape...), s.FromBytes(targets.Data, torch.I64, targets.Shape...), share).CopyFloat32s()
			}
			for _, p := range m.Parameters() {
				got := make([]float32, p.Tensor.Numel())
				if grad := p.Tensor.Grad(); grad != nil {
					got = grad.Contiguous().CopyFloat32s()
				}
				gradients = append(gradients, got)
				p.Tensor.ClearGrad()
			}
			return nil
		})
		// A model creates its tables of positions on first use.
		if left := torch.LiveTensors() - before; left > 6 {
			t.Errorf("%d tensors are left", left)
		}
		return loss, gradients
	}
	loss, gradients := of(one)
	otherLoss, otherGradients := of(other)
	worst = MaxError(t, "loss", otherLoss, loss)
	for i, p := range one.Parameters() {
		worst = max(worst, MaxRelativeError(t, p.Name, otherGradients[i], gradients[i]))
	}
	return worst
}
