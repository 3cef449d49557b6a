package modelsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
)

// errNoReplay means that no peer listed, or had, the required results.
var errNoReplay = errors.New("the counted results of the running epoch are unavailable")

// ReplayPlan selects the steps of a running epoch to apply to a trainer that missed them.
type ReplayPlan struct {
	From         [32]byte      // digest of the model that the epoch started with; may be zero if Start <= After
	Start        uint32        // first step of the epoch
	ColdSteps    uint32        // length of the epoch's cold start
	After, Until uint32        // steps after After, up to Until, are applied; if equal, only the replica hash is wanted
	Hash         [32]byte      // replica hash after After; zero: it is requested from peers, and must lead to a wanted hash
	Peers        []identity.ID // peers to ask for results
	// Wanted reports whether a replica hash after Until is the hash of the members that continued
	// to train.
	Wanted func(replica [32]byte) bool
}

// Replayed contains the rounds that were applied, or are to be, and the resulting hashes.
type Replayed struct {
	Rounds  []exchange.AppliedRound
	Hash    [32]byte // replica hash after the last round
	Before  [32]byte // replica hash before the last round
	Fetched uint64   // bytes
	Blobs   [][32]byte
}

// Follow executes a plan: it asks peers for the counted results, accepts only a list that leads to
// the wanted replica hash, and applies it. If an error occurs after a result was applied, the
// trainer's weights belong to no step.
func (m *Models) Follow(ctx context.Context, trainer env.Trainer, p ReplayPlan) (w Replayed, err error) {
	accounts, err := m.plan(ctx, p)
	if err != nil {
		return w, err
	}
	var payloads [][]byte
	var blobs [][32]byte
	for _, said := range accounts {
		a := &Attempt{Options: m.options, Model: &Model{}}
		payloads, err = a.payloads(ctx, trainer, said.Rounds, said.holders)
		blobs = append(blobs, a.results...)
		w = said.Replayed
		w.Fetched, w.Blobs = a.Model.Fetched, blobs
		if err == nil {
			break
		}
		m.options.Log.Debug("get the results of the running epoch", "sources", len(said.holders), "err", err)
	}
	if err != nil {
		return w, fmt.Errorf("%w: %w", errNoReplay, err)
	}
	for _, round := range w.Rounds {
		count := len(round.Results)
		if err := trainer.Apply(ctx, round.Step, payloads[:count:count], round.Votes(), false); err != nil {
			return w, err
		}
		payloads = payloads[count:]
	}
	return w, trainer.ResetOptimizer(ctx) // any momentum belongs to an earlier step
}

// plan asks peers for the counted results, and returns the answers that lead to a wanted replica
// hash. The hash does not cover the trainers and the sizes of results. Answers that differ in these
// are separate accounts, and a dishonest one may be among them.
func (m *Models) plan(ctx context.Context, p ReplayPlan) ([]account, error) {
	accounts := m.options.accounts(ctx, p.Peers, p.Until-min(p.After, p.Until), func(ctx context.Context, peer identity.ID) (account, bool, error) {
		said, err := p.ask(ctx, m.options.Network, peer)
		return said, err == nil && p.Wanted(said.Hash), err
	})
	if len(accounts) == 0 {
		return nil, fmt.Errorf("%w: requested steps %[3]d to %[4]d from %[2]d members", errNoReplay, min(len(p.Peers), maxAsked), p.After+1, p.Until)
	}
	return accounts, nil
}

// ask asks a peer for the counted results and, in the middle of an epoch, for the replica hash
// before them. Each hash of the chain depends on the previous one, so a chain that ends in a
// quorum's hash has the right start.
func (p ReplayPlan) ask(ctx context.Context, network env.Requests, peer identity.ID) (said account, err error) {
	hash := p.Hash
	if hash == ([32]byte{}) {
		if hash, err = exchange.AskReplica(ctx, network, peer, p.After); err != nil {
			return said, err
		}
	}
	if p.After == p.Until {
		return account{Replayed: p.along(hash, nil), answer: hash, sure: p.Wanted(hash)}, nil
	}
	rounds, answer, err := exchange.AskResults(ctx, network, peer, p.After, p.Until, p.From)
	if err != nil {
		return said, err
	}
	return account{Replayed: p.along(hash, rounds), answer: answer}, nil
}

// along computes the replica hashes of a list of rounds, starting with the hash before the first
// one.
func (p ReplayPlan) along(from [32]byte, rounds []exchange.AppliedRound) Replayed {
	w := Replayed{Rounds: rounds, Hash: from, Before: from}
	for i := range rounds {
		r := &rounds[i]
		r.EpochStart, r.ColdSteps, r.From, r.Before = p.Start, p.ColdSteps, p.From, w.Hash
		w.Before, w.Hash = w.Hash, r.Replica(w.Hash)
	}
	return w
}
