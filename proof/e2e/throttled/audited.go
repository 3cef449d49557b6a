package main

import (
	"context"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/audit/toy"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/env"
)

// audited is a trainer in a run with audits. It also waits for each sequence of a recomputation. If a recomputation is
// interrupted, the next call for the same result continues it.
type audited struct {
	*trainer
	env.Auditor
	cheats bool

	mu     sync.Mutex
	newest result
	waited int // number of its sequences
}

// result identifies a result.
type result struct {
	step    uint32
	trainer [32]byte
}

// Train implements env.Trainer. A cheat trains other tokens, but claims to have trained the right ones.
func (a *audited) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	if !a.cheats {
		return a.trainer.Train(ctx, step, batch, begun)
	}
	others := data.Batch{ID: batch.ID, Sequences: slices.Clone(batch.Sequences)}
	for i, sequence := range others.Sequences {
		others.Sequences[i] = slices.Clone(sequence)
		others.Sequences[i][0] ^= 1
	}
	payload, loss, err := a.trainer.Train(ctx, step, others, begun)
	if err != nil {
		return nil, 0, err
	}
	payload, err = toy.Forge(payload, func(h *codec.Header) { h.Batch = batch.Hash() })
	return payload, loss, err
}

// Recompute implements env.Auditor.
func (a *audited) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of := (result{x.Step, x.Trainer}); a.newest != of {
		a.newest, a.waited = of, 0
	}
	for ; a.waited < len(batch.Sequences); a.waited++ {
		each, err := a.time()
		if err != nil {
			return nil, err
		}
		if err := pause.For(ctx, each); err != nil {
			return nil, err
		}
	}
	a.newest = result{}
	return a.Auditor.Recompute(ctx, x, batch)
}
