package train

// Gradient contains statistics of the gradient of a trained step.
type Gradient struct {
	Step    uint32
	LR      float64       // learning rate of the step
	Norm    float64       // L2 norm of the whole gradient, before clipping
	Tensors []TensorStats // every Options.StatsEvery steps
}

// TensorStats contains sums of absolute values of a tensor, which show how much it learns.
type TensorStats struct {
	Name     string
	Gradient float64
	Delta    float64 // of DisTrO: the momentum not sent, after the step
}

// tell reports a step to Options.Trained.
func (r *replica) tell(step uint32, lr float32, norm float64, gradients, deltas [][]float32) {
	if r.trained == nil {
		return
	}
	g := Gradient{Step: step, LR: float64(lr), Norm: norm}
	if r.statsEvery > 0 && step%r.statsEvery == 0 {
		for i, p := range r.parameters {
			s := TensorStats{Name: p.name, Gradient: absolute(gradients[i])}
			if deltas != nil {
				s.Delta = absolute(deltas[i])
			}
			g.Tensors = append(g.Tensors, s)
		}
	}
	r.trained(g)
}

// absolute returns the sum of the absolute values of a slice.
func absolute(values []float32) float64 {
	var sum float64
	for _, v := range values {
		sum += max(float64(v), -float64(v))
	}
	return sum
}
