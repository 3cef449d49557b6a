package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
)

// TestSilenceInShortRounds checks that a member that negates its gradients and sends no openings is
// found, in rounds of a fraction of a second.
func TestSilenceInShortRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := auditedConfig(5, 400)
		config.RoundWitnessTime = 100
		w := newWorld(t, config)
		quick := func(o *options) { o.trainer.Duration = 300 * time.Millisecond }
		var honest []*member
		for i := range 4 {
			honest = append(honest, w.launch(i, func(o *options) { audited(nil)(o); quick(o) }))
		}
		cheat := w.launch(4, func(o *options) {
			turnsSign(o)
			quick(o)
			opens(o, func(identity.ID, []byte) ([]byte, error) { return nil, errors.New("no") })
		})
		w.until("the cheat is ejected", func(s *coordinator.State) bool {
			return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
		})
		s := w.host.State()
		if e := s.Authority.Ejections; len(e) != 1 || identity.ID(e[0].Client) != cheat.id {
			t.Fatalf("ejected: %v, want %s; audits %v", e, cheat.id.Short(), found(honest))
		}
		t.Logf("ejected in step %d", s.Progress.Step)
		finishEqual(w, honest...)
	})
}

// slowLine delays every opening.
type slowLine struct {
	env.Network
	takes time.Duration
}

func (l slowLine) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	l.Network.Handle(protocol, maxRequest, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		if protocol == auditor.OpeningProtocol {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(l.takes):
			}
		}
		return handle(ctx, from, request)
	})
}

// TestSlowLineIsNotSilent checks an honest member whose link takes seconds for an opening when all
// members ask at once. A different member accuses it of silence, but no jury finds it guilty.
func TestSlowLineIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(7, 60))
		var accused atomic.Bool // trials may be shorter than the time between two checks of the state
		slow := clienttest.Key(5).ID()
		var honest []*member
		for i := range 6 {
			honest = append(honest, w.launch(i, func(o *options) {
				audited(nil)(o)
				if i == 5 {
					o.Network = slowLine{o.Network, 7 * time.Second}
				}
			}))
		}
		w.launch(6, func(o *options) {
			audited(nil)(o)
			backend := o.Backend
			o.Backend = &acting{backend, func(ctx context.Context, a coordinator.Action) (bool, error) {
				if p, ok := a.(coordinator.WitnessRound); ok && p.Step > 4 {
					accuse := coordinator.Accuse{Step: p.Step - 2, Client: coordinator.ClientID(slow), Fault: coordinator.FaultSilent}
					if backend.Submit(ctx, accuse) == nil {
						accused.Store(true)
					}
				}
				return false, nil
			}}
		})
		w.until("the end", func(s *coordinator.State) bool {
			return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
		})
		if s := w.host.State(); len(s.Authority.Ejections) > 0 || !accused.Load() {
			t.Errorf("ejected: %v; accused: %v", s.Authority.Ejections, accused.Load())
		}
		finishEqual(w, honest...)
	})
}
