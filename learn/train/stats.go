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

// statistics reports the gradients of a model to Options.Trained.
type statistics struct {
	report     func(Gradient) // nil: no reports
	every      uint32         // Options.StatsEvery
	parameters []parameter
}

// tell reports the gradient of a step. If the step needs statistics of single tensors, tell calls values.
// Its deltas may be nil.
func (s statistics) tell(step uint32, lr float32, norm float64, values func() (gradients, deltas [][]float32)) {
	if s.report == nil {
		return
	}
	g := Gradient{Step: step, LR: float64(lr), Norm: norm}
	if s.every > 0 && step%s.every == 0 {
		gradients, deltas := values()
		for i, p := range s.parameters {
			one := TensorStats{Name: p.name, Gradient: absolute(gradients[i])}
			if deltas != nil {
				one.Delta = absolute(deltas[i])
			}
			g.Tensors = append(g.Tensors, one)
		}
	}
	s.report(g)
}
