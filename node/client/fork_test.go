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

// shy is a network that answers questions about rounds only to some.
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

// hider witnesses its own result in one filter and hides it in the other.
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

// TestOneWitnessCannotFork: one liar of four, with three witnesses. When it is one of them it shows
// its result to one of the honest ones only, and votes for it in one filter without naming itself
// in the other, so that whoever does not know the result sees no sign of it.
func TestOneWitnessCannotFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(4)
		config.WitnessNodes, config.MinClients, config.RoundsPerEpoch, config.TotalSteps = 3, 3, 6, 12
		w := newWorld(t, config)
		bad := clienttest.Key(3).ID()
		// chosen is the honest witness that may know, or the liar's own key when all may.
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
		liar := w.launch(3, func(o *options) {
			quick(o)
			o.Network = &shy{o.Network, shows}
			o.Backend = &hider{o.Backend.(*memory.Client), w.host, bad}
		})
		w.until("an epoch", func(s *coordinator.State) bool { return s.Progress.Epoch >= 1 || s.RunState == coordinator.Finished })
		for _, m := range append(good, liar) {
			m.cancel()
		}
		for _, m := range append(good, liar) {
			<-m.done
		}
		for i, m := range good {
			for _, lost := range all[event.Desynchronised](m) {
				t.Errorf("honest member %d left the epoch: %+v", i, lost)
			}
		}
	})
}
