package train

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/torch"
)

// The methods below let a replay move the weights at a place. They must not be called inside its engine.

// each calls f for each weight tensor on the thread of its owner's engine. The weights then count as changed.
func (p place) each(f func(s *torch.Scope, i int, weights *torch.Tensor)) error {
	defer p.changed()
	weights := p.on.weights()
	return p.on.do(context.Background(), nil, func(s *torch.Scope, a *apart, tensors []int) error {
		defer a.conversions.Changed()
		for _, i := range tensors {
			err := s.Sub(func(s *torch.Scope) error {
				f(s, i, weights[i].Detach())
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// read returns the weights: their own memory, or copies of a device's.
func (p place) read() (values [][]float32, err error) {
	if p.on == nil {
		return p.store.weights(), nil
	}
	values = make([][]float32, len(p.on.owners))
	weights := p.on.weights()
	err = p.on.do(context.Background(), nil, func(_ *torch.Scope, _ *apart, tensors []int) error {
		spread(values, tensors, copied(detached(pick(weights, tensors))))
		return nil
	})
	return values, err
}

// write overwrites the weights.
func (p place) write(values [][]float32) error {
	if p.on == nil {
		copyAll(p.store.weights(), values)
		p.changed()
		return nil
	}
	return p.each(func(s *torch.Scope, i int, weights *torch.Tensor) {
		weights.CopyFrom(s.FromFloat32s(values[i], weights.Shape()...))
	})
}

// restart overwrites the weights by the kept ones.
func (p place) restart() error {
	if p.on == nil {
		return p.write(p.store.kept)
	}
	return p.each(func(_ *torch.Scope, i int, weights *torch.Tensor) { weights.CopyFrom(p.on.kept[i]) })
}

// leave replaces the weights by the kept ones minus the weights.
func (p place) leave() error {
	if p.on != nil {
		defer p.changed()
		return p.on.far(p.on.weights())
	}
	for i, w := range p.store.weights() {
		for j := range w {
			w[j] = p.store.kept[i][j] - w[j]
		}
	}
	p.changed()
	return nil
}

// shake shakes the weights.
func (p place) shake() error {
	if p.on != nil {
		return p.each(func(s *torch.Scope, _ int, weights *torch.Tensor) {
			values := weights.CopyFloat32s()
			shake(values)
			weights.CopyFrom(s.FromFloat32s(values, weights.Shape()...))
		})
	}
	for _, w := range p.store.weights() {
		shake(w)
	}
	p.changed()
	return nil
}

// chunk returns a copy of a chunk of the weights.
func (p place) chunk(layouts []distro.Layout, tensor, within int) ([]float32, error) {
	if p.on != nil {
		return p.on.chunk(p.on.weights(), tensor, within)
	}
	return layouts[tensor].Chunk(p.store.weights()[tensor], within, nil), nil
}

// takeBack subtracts from the weights what the results of a round move them by. room has a number for each weight of
// the largest tensor.
func (p place) takeBack(r *residual, results [][]codec.TensorResult, votes distro.Votes, lr float32, room []float32) error {
	if p.on != nil {
		return p.takeBackThere(func(a *apart, tensors []int, moved []*torch.Tensor) error {
			return a.share.ApplyLevels(pickEach(results, tensors), addresses(moved), r.applyParams(votes, lr))
		})
	}
	defer p.changed()
	for i, of := range p.store.weights() {
		moved := room[:len(of)]
		clear(moved)
		if err := r.apply(i, results, votes, moved, lr); err != nil {
			return fmt.Errorf("tensor %d: %w", i, err)
		}
		for j := range moved {
			of[j] -= moved[j]
		}
	}
	return nil
}

// takeBackThere subtracts from the weights on devices by how much move moves weights of zero.
func (p place) takeBackThere(move func(a *apart, tensors []int, moved []*torch.Tensor) error) (err error) {
	defer p.changed()
	return p.on.do(context.Background(), nil, func(s *torch.Scope, a *apart, tensors []int) error {
		defer a.conversions.Changed()
		weights := detached(pick(a.weights(), tensors))
		moved := make([]*torch.Tensor, len(weights))
		for i, w := range weights {
			moved[i] = s.Zeros(torch.F32, w.Shape()...)
		}
		if err := move(a, tensors, moved); err != nil {
			return err
		}
		for i, w := range weights {
			w.AddInPlace(moved[i], -1)
		}
		return nil
	})
}
