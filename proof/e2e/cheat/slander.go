package cheat

import (
	"context"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
)

// Slandering returns the host of a client that accuses a victim, in turn of silence and of a wrong result, of one of
// its newest results after each witness proof that it sends. The host decides which accusations it accepts.
func Slandering(host env.Backend, victim identity.ID) env.Backend {
	return &slanderer{Backend: host, victim: coordinator.ClientID(victim)}
}

type slanderer struct {
	env.Backend
	victim coordinator.ClientID

	mu      sync.Mutex
	accused uint32 // newest step of the victim that was tried
	wrong   bool   // accuse of a wrong result next
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

// accuse accuses the victim of its result of a step, once.
func (s *slanderer) accuse(ctx context.Context, step uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step <= s.accused {
		return
	}
	s.accused = step
	fault := coordinator.FaultSilent
	if s.wrong {
		fault = coordinator.FaultResult
	}
	if s.Backend.Submit(ctx, coordinator.Accuse{Step: step, Client: s.victim, Fault: fault}) == nil {
		s.wrong = !s.wrong
	}
}
