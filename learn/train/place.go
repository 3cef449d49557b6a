package train

import (
	"context"

	"github.com/psyche-go/psyche/learn/torch"
)

// place is where steps of an inner optimizer move the weights: each on the device that owns it, or in the
// memory of the CPU.
type place struct {
	store *store
	on    *shards // nil: the memory of the CPU
}

// engine returns the engine on which steps run.
func (p place) engine() *torch.Engine {
	if p.on != nil {
		return p.on.home().twin.Engine()
	}
	return p.store.engine
}

// do calls f with the tensors of each owner, see shards.do, or with all tensors in the memory of the CPU.
func (p place) do(ctx context.Context, inside *torch.Scope, f func(s *torch.Scope, a *apart, tensors []int) error) error {
	if p.on != nil {
		return p.on.do(ctx, inside, f)
	}
	all := make([]int, len(p.store.parameters))
	for i := range all {
		all[i] = i
	}
	if inside != nil {
		return f(inside, nil, all)
	}
	return p.store.engine.Do(ctx, false, func(s *torch.Scope) error { return f(s, nil, all) })
}

// weights returns the tensors of the parameters, in their order. On devices, each is its owner's.
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
	case p.on != nil && p.on.home().share != nil:
		return p.on.norm(gradients)
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
	if p.on == nil {
		p.store.fresh = p.store.changes
		return
	}
	p.on.seen = p.store.changes
	for _, a := range p.on.devices {
		if len(p.on.of(a)) == len(p.on.owners) {
			a.seen = p.store.changes
		}
	}
}
