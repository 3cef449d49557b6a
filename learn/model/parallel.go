package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/learn/model/deepseek"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
)

// errSplit means that a model cannot be split among the given number of engines.
var errSplit = llama.ErrSplit

// Twin creates a model on another engine of m's device that shares the memory of m's weights, with
// separate gradients. It must not compute while the weights change.
func Twin(ctx context.Context, e *torch.Engine, m Model) (Model, error) {
	switch m := m.(type) {
	case *llama.Llama:
		return asModel(m.Twin(ctx, e))
	case *deepseek.DeepSeek:
		return asModel(m.Twin(ctx, e))
	}
	return nil, fmt.Errorf("twin of a %T: %w", m, errors.ErrUnsupported)
}

// TwinIn is Twin for a model that computes in another type.
func TwinIn(ctx context.Context, e *torch.Engine, m Model, compute torch.DType) (Model, error) {
	if err := (Options{Compute: compute}).check(e.Device()); err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *llama.Llama:
		return asModel(m.TwinIn(ctx, e, compute))
	case *deepseek.DeepSeek:
		return asModel(m.TwinIn(ctx, e, compute))
	}
	return nil, fmt.Errorf("twin of a %T: %w", m, errors.ErrUnsupported)
}

// Copy creates a model on an engine of any device with its own weights, equal to m's, and its own
// gradients. Refresh keeps it equal.
func Copy(ctx context.Context, e *torch.Engine, m Model, o Options) (Model, error) {
	if err := o.check(e.Device()); err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *llama.Llama:
		return asModel(m.Copy(ctx, e, llama.Options(o)))
	case *deepseek.DeepSeek:
		return asModel(m.Copy(ctx, e, deepseek.Options(o)))
	}
	return nil, fmt.Errorf("copy of a %T: %w", m, errors.ErrUnsupported)
}

// Refresh overwrites the weights of a model that Copy created with the current weights of the
// original. The original must not change meanwhile.
func Refresh(ctx context.Context, m, from Model) error {
	return m.Engine().Do(ctx, false, func(s *torch.Scope) error { return weights.Refresh(s, stored(m), stored(from)) })
}

// asModel prevents a nil model from becoming a non-nil interface.
func asModel[M Model](m M, err error) (Model, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Split splits m among engines of its device, which compute each layer together. The result shares
// the memory of m's weights, like a twin.
func Split(ctx context.Context, engines []*torch.Engine, m Model) (*llama.Split, error) {
	whole, ok := m.(*llama.Llama)
	if !ok {
		return nil, fmt.Errorf("%w: only %s, %s and %s can be split among several devices", errSplit, llama.Architecture, llama.ArchitectureMistral, llama.ArchitectureQwen3)
	}
	return whole.Split(ctx, engines)
}
