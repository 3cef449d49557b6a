package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

// shy is a network that answers requests about rounds only to some members.
type shy struct {
	env.Network
	shows func(to identity.ID) bool
}

func (s *shy) Handle(protocol string, maxRequest int, handle func(context.Context, identity.ID, []byte) ([]byte, error)) {
	s.Network.Handle(protocol, maxRequest, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		if protocol == exchange.RoundProtocol && !s.shows(from) {
			return nil, errors.New("nothing")
		}
		return handle(ctx, from, request)
	})
}

// hider is a backend whose client sends witness proofs with its own result in the filter of results,
// but without itself in the filter of trainers.
type hider struct {
	*memory.Client
	host *memory.Host
	id   identity.ID
}

func (h *hider) Submit(ctx context.Context, a coordinator.Action) error {
	if w, ok := a.(coordinator.WitnessRound); ok {
		s := h.host.State()
		if r := s.CurrentRound(); r != nil && r.Step == w.Step {
			keys := bloom.NewKeys(r.Seed)
			w.Participants = bloom.Filter{}
			for _, id := range r.Members {
				if identity.ID(id) != h.id {
					w.Participants.AddPositions(keys.Positions(id[:]))
				}
			}
			w.CommitmentsRoot = [32]byte{6}
			a = w
		}
	}
	return h.Client.Submit(ctx, a)
}

// TestOneWitnessCannotFork checks one hostile member of four, in rounds with three witnesses. When
// it is a witness, it sends its result to only one honest witness. In its own proof, the filter of
// results contains the result, but the filter of trainers omits the trainer. A client without the
// result therefore cannot notice that one is missing.
func TestOneWitnessCannotFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(4)
		config.WitnessNodes, config.MinClients, config.RoundsPerEpoch, config.TotalSteps = 3, 3, 6, 12
		w := newWorld(t, config)
		bad := clienttest.Key(3).ID()
		// chosen returns the honest witness that may know the result, or the hostile member's key
		// if all may.
		chosen := func() identity.ID {
			s := w.host.State()
			r := s.CurrentRound()
			if r == nil {
				return bad
			}
			elected, first := false, bad
			for _, i := range r.ElectedWitnesses(s.Config) {
				if id := identity.ID(r.Members[i]); id == bad {
					elected = true
				} else if first == bad {
					first = id
				}
			}
			if !elected {
				return bad
			}
			return first
		}
		shows := func(to identity.ID) bool { c := chosen(); return c == bad || c == to }
		w.hub.DropGossip = func(from, to identity.ID, _ []byte) bool { return from == bad && !shows(to) }
		quick := func(o *options) { o.trainer.Duration = 100 * time.Millisecond }
		good := []*member{w.launch(0, quick), w.launch(1, quick), w.launch(2, quick)}
		byzantine := w.launch(3, func(o *options) {
			quick(o)
			o.Network = &shy{o.Network, shows}
			o.Backend = &hider{o.Backend.(*memory.Client), w.host, bad}
		})
		w.until("an epoch", func(s *coordinator.State) bool { return s.Progress.Epoch >= 1 || s.RunState == coordinator.Finished })
		for _, m := range append(good, byzantine) {
			m.cancel()
		}
		for _, m := range append(good, byzantine) {
			<-m.done
		}
		for i, m := range good {
			for _, lost := range all[event.Desynchronised](m) {
				t.Errorf("honest member %d left the epoch: %+v", i, lost)
			}
		}
	})
}
