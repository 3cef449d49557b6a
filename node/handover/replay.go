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

// ErrNoReplay says that no peer told, or had, the results that lead on.
var ErrNoReplay = errors.New("the counted results of the running epoch cannot be had")

// ReplayPlan says which steps of a running epoch are applied to a trainer that missed them.
type ReplayPlan struct {
	From         [32]byte      // digest of the model that the epoch began with; not needed to begin later
	Start        uint32        // first step of the epoch
	ColdSteps    uint32        // length of the epoch's cold start
	After, Until uint32        // the steps behind After, up to Until, are applied
	Hash         [32]byte      // replica hash after After; zero: peers are asked, and what they say has to lead to a wanted one
	Peers        []identity.ID // that are asked for results
	// Wanted reports whether a replica hash after Until is the one of the members that trained on.
	Wanted func(replica [32]byte) bool
}

// Replayed holds the rounds that were applied, or are to be, and where they lead.
type Replayed struct {
	Rounds  []exchange.AppliedRound
	Hash    [32]byte // replica hash after the last round
	Before  [32]byte // after the one before it
	Fetched uint64   // bytes
	Blobs   [][32]byte
}

// Follow carries a plan out: it asks peers what was counted, takes only a list
// that leads to the wanted replica hash, and applies it. Once something was applied an error
// leaves the trainer with weights of no step.
func (m *Models) Follow(ctx context.Context, trainer env.Trainer, p ReplayPlan) (w Replayed, err error) {
	w, holders, err := m.plan(ctx, p)
	if err != nil {
		return w, err
	}
	a := &Attempt{Options: m.options, Model: &Model{}}
	payloads, err := results{}.payloads(ctx, a, trainer, w.Rounds, holders)
	w.Fetched, w.Blobs = a.Model.Fetched, a.results
	if err != nil {
		return w, fmt.Errorf("%w: %w", ErrNoReplay, err)
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

// plan asks peers which results were counted. It returns the rounds that lead to a wanted replica hash,
// and the peers that named them.
func (m *Models) plan(ctx context.Context, p ReplayPlan) (w Replayed, holders []identity.ID, err error) {
	ctx, cancel := m.options.Tasks.WithTimeout(ctx, requestTimeout)
	defer cancel()
	peers := p.Peers[:min(len(p.Peers), maxAsked)]
	var mu sync.Mutex
	_ = m.options.Tasks.Each(ctx, m.options.ParameterRequests, len(peers), func(ctx context.Context, i int) error {
		said, err := p.ask(ctx, m.options.Network, peers[i])
		if err != nil {
			m.options.Log.Debug("ask for the results of the running epoch", "peer", peers[i].Short(), "err", err)
			return nil // others are asked
		}
		mu.Lock()
		defer mu.Unlock()
		if p.Wanted(said.Hash) {
			w = said // sizes and owners are looked at when the results are fetched
			holders = append(holders, peers[i])
		}
		return nil
	})
	if len(holders) == 0 {
		return w, nil, fmt.Errorf("%w: %d members were asked for steps %d to %d", ErrNoReplay, len(peers), p.After+1, p.Until)
	}
	return w, holders, nil
}

// ask asks a peer what was counted and, in the middle of an epoch, from which replica hash on. Each hash of
// the chain is made from the one before: what ends in one that a quorum said began where that one did.
func (p ReplayPlan) ask(ctx context.Context, network exchange.Requests, peer identity.ID) (w Replayed, err error) {
	hash := p.Hash
	if hash == ([32]byte{}) {
		if hash, err = exchange.AskReplica(ctx, network, peer, p.After); err != nil {
			return w, err
		}
	}
	rounds, _, err := exchange.AskResults(ctx, network, peer, p.After, p.Until, p.From)
	if err != nil {
		return w, err
	}
	return p.along(hash, rounds), nil
}

// along works out where a list of rounds leads from a replica hash.
func (p ReplayPlan) along(from [32]byte, rounds []exchange.AppliedRound) Replayed {
	w := Replayed{Rounds: rounds, Hash: from, Before: from}
	for i := range rounds {
		r := &rounds[i]
		r.EpochStart, r.ColdSteps, r.From, r.Before = p.Start, p.ColdSteps, p.From, w.Hash
		w.Before, w.Hash = w.Hash, r.Replica(w.Hash)
	}
	return w
}
