package train

import (
	"github.com/psyche-go/psyche/learn/torch"
)

// place is where steps of an inner optimizer move the weights: on the first device, or in the memory
// of the CPU.
type place struct {
	store *store
	on    *apart // nil: the memory of the CPU
}

// device returns the device, if the place is on one.
func (p place) device() []*apart {
	if p.on == nil {
		return nil
	}
	return []*apart{p.on}
}

// engine returns the engine that owns the weights. Gradients for a step are on it.
func (p place) engine() *torch.Engine {
	if p.on != nil {
		return p.on.twin.Engine()
	}
	return p.store.engine
}

// weights returns the tensors of the parameters, in their order.
func (p place) weights() (tensors []*torch.Tensor) {
	if p.on == nil {
		for _, of := range p.store.parameters {
			tensors = append(tensors, of.tensor)
		}
		return tensors
	}
	return p.on.weights()
}

// norm returns the L2 norm of gradients at the place, on the thread of its engine.
func (p place) norm(s *torch.Scope, gradients []*torch.Tensor) (float64, error) {
	switch {
	case p.on != nil && p.on.kernels != nil:
		return p.on.kernels.Norm(addresses(gradients))
	case p.engine().Device() == torch.CPU:
		return norm(float32s(gradients)), nil
	default:
		return s.Norm(gradients...), nil
	}
}

// lost must be called if a device failed while it changed the weights. They are undefined until they are
// restored or loaded.
func (p place) lost() { p.store.changes++ }

// changed must be called after the weights were changed.
func (p place) changed() {
	p.store.changes++
	if p.on != nil {
		p.on.seen = p.store.changes
	} else {
		p.store.fresh = p.store.changes
	}
}
