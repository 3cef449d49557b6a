package handover

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
)

// ErrNoCourse says that no peer told, or had, the results that lead on.
var ErrNoCourse = errors.New("the counted results of the running epoch cannot be had")

// Course leads from one step of a running epoch to a later one.
type Course struct {
	From         [32]byte // digest of the model that the epoch began with
	Start        uint32   // first step of the epoch
	ColdSteps    uint32   // of its cold start
	After, Until uint32
	Hash         [32]byte // replica hash after After
	Peers        []identity.ID
	// Wanted reports whether a replica hash after Until is the one of those who were there.
	Wanted func(replica [32]byte) bool
}

// Way is a course that was found.
type Way struct {
	Rounds  []exchange.AppliedRound
	Hash    [32]byte // replica hash after the last round
	Before  [32]byte // after the one before it
	Fetched uint64   // bytes
	Blobs   [][32]byte
}

// Follow brings the trainer along a course: it asks peers what was counted, takes only a list
// that leads to the wanted replica hash, and applies it. Once something was applied an error
// leaves the trainer with weights of no step.
func (m *Models) Follow(ctx context.Context, trainer env.Trainer, c Course) (w Way, err error) {
	w, holders, err := m.way(ctx, c)
	if err != nil {
		return w, err
	}
	a := &Attempt{Options: m.options, Model: &Model{}}
	payloads, err := results{}.payloads(ctx, a, trainer, w.Rounds, holders)
	w.Fetched, w.Blobs = a.Model.Fetched, a.results
	if err != nil {
		return w, fmt.Errorf("%w: %w", ErrNoCourse, err)
	}
	for _, round := range w.Rounds {
		count := len(round.Results)
		if err := trainer.Apply(ctx, round.Step, payloads[:count:count], false); err != nil {
			return w, err
		}
		payloads = payloads[count:]
	}
	return w, trainer.ResetOptimizer(ctx) // what it remembers, if anything, is of an earlier step
}

// way asks peers for the course, and returns who has it.
func (m *Models) way(ctx context.Context, c Course) (w Way, holders []identity.ID, err error) {
	ctx, cancel := m.options.Tasks.WithTimeout(ctx, requestTimeout)
	defer cancel()
	peers := c.Peers[:min(len(c.Peers), maxAsked)]
	var mu sync.Mutex
	_ = m.options.Tasks.Each(ctx, m.options.ParameterRequests, len(peers), func(ctx context.Context, i int) error {
		rounds, _, err := exchange.AskResults(ctx, m.options.Network, peers[i], c.After, c.Until, c.From)
		if err != nil {
			m.options.Log.Debug("ask for the results of the running epoch", "peer", peers[i].Short(), "err", err)
			return nil // others are asked
		}
		said := c.along(rounds)
		mu.Lock()
		defer mu.Unlock()
		if c.Wanted(said.Hash) {
			w = said // sizes and owners are looked at when the results are fetched
			holders = append(holders, peers[i])
		}
		return nil
	})
	if len(holders) == 0 {
		return w, nil, fmt.Errorf("%w: %d members were asked for steps %d to %d", ErrNoCourse, len(peers), c.After+1, c.Until)
	}
	return w, holders, nil
}

// along works out where a list of rounds leads.
func (c Course) along(rounds []exchange.AppliedRound) Way {
	w := Way{Rounds: rounds, Hash: c.Hash, Before: c.Hash}
	for i := range rounds {
		r := &rounds[i]
		r.EpochStart, r.ColdSteps, r.From = c.Start, c.ColdSteps, c.From
		w.Before, w.Hash = w.Hash, r.Replica(w.Hash)
	}
	return w
}
