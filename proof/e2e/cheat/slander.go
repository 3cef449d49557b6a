package cheat

import (
	"context"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
)

// Slandering returns the host of a client that accuses a victim after each witness proof that it
// sends. Each accusation is about one of the victim's newest results, with the faults in turn. The
// host decides which accusations it accepts.
func Slandering(host env.Backend, victim identity.ID, faults ...coordinator.Fault) env.Backend {
	return &slanderer{Backend: host, victim: coordinator.ClientID(victim), faults: faults}
}

type slanderer struct {
	env.Backend
	victim coordinator.ClientID
	faults []coordinator.Fault

	mu       sync.Mutex
	accused  uint32 // newest step of the victim for which an accusation was tried
	accepted int    // number of accepted accusations
}

// Submit implements env.Backend.
func (s *slanderer) Submit(ctx context.Context, a coordinator.Action) error {
	if vote, ok := a.(coordinator.Vote); ok && vote.Client == s.victim {
		vote.Guilty = true
		a = vote
	}
	err := s.Backend.Submit(ctx, a)
	if proof, ok := a.(coordinator.WitnessRound); ok && err == nil && proof.Step > 1 {
		s.accuse(ctx, proof.Step-1)
	}
	return err
}

// accuse accuses the victim of its result in a step, once.
func (s *slanderer) accuse(ctx context.Context, step uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step <= s.accused {
		return
	}
	s.accused = step
	fault := s.faults[s.accepted%len(s.faults)]
	if s.Backend.Submit(ctx, coordinator.Accuse{Step: step, Client: s.victim, Fault: fault}) == nil {
		s.accepted++
	}
}
