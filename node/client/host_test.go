package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/event"
)

// blinkingBackend hides some updates, so that the client receives only later ones.
type blinkingBackend struct {
	env.Backend
	updates chan backend.Update
}

func blink(ctx context.Context, inner env.Backend, hidden func(s *coordinator.State) bool) *blinkingBackend {
	b := &blinkingBackend{Backend: inner, updates: make(chan backend.Update, 1)}
	go func() {
		defer close(b.updates)
		for u := range inner.Updates() {
			if hidden(u.State) {
				continue
			}
			select {
			case <-b.updates:
			default:
			}
			select {
			case b.updates <- u:
			case <-ctx.Done():
			}
		}
	}()
	return b
}

func (b *blinkingBackend) Updates() <-chan backend.Update { return b.updates }

// TestMissedStates hides states from one client.
func TestMissedStates(t *testing.T) {
	tests := map[string]struct {
		hidden  func(s *coordinator.State) bool
		resyncs int
	}{
		"all witness phases": {func(s *coordinator.State) bool { return s.RunState == coordinator.RoundWitness }, 0},
		"a whole cooldown":   {func(s *coordinator.State) bool { return s.RunState == coordinator.Cooldown && s.Progress.Epoch == 0 }, 0},
		"cooldown and afterwards": {func(s *coordinator.State) bool {
			return s.Progress.Step == 4 && s.RunState != coordinator.Warmup && s.Epoch.StartStep == 1
		}, 1},
		"a round, and is late": {func(s *coordinator.State) bool { return s.Progress.Step == 2 }, 0},
	}
	for name, test := range tests {
		for lag := range uint32(2) {
			t.Run(fmt.Sprint(name, ", lag ", lag+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, clienttest.Config(4))
					late := func(o *options) { o.trainer.Lag = lag + 1 }
					a, b, c := w.launch(0, late), w.launch(1, late), w.launch(2, late)
					d := w.launch(3, func(o *options) {
						late(o)
						o.Backend = blink(w.ctx, o.Backend, test.hidden)
					})
					finishEqual(w, a, b, c, d)
					if lost := all[event.Desynchronised](d); len(lost) != test.resyncs {
						t.Errorf("desynchronised: %+v", lost)
					}
					if d.trainer.Unapplied() != 0 {
						t.Errorf("%d results are unapplied", d.trainer.Unapplied())
					}
				})
			})
		}
	}
}

// flakyBackend loses the answers to some actions, after or before the actions arrive.
type flakyBackend struct {
	env.Backend
	mu    sync.Mutex
	count int
}

func (f *flakyBackend) Submit(ctx context.Context, a coordinator.Action) error {
	f.mu.Lock()
	f.count++
	turn := f.count % 3
	f.mu.Unlock()
	if turn == 1 {
		return backend.ErrDisconnected
	}
	err := f.Backend.Submit(ctx, a)
	if turn == 2 {
		return errors.Join(backend.ErrDisconnected, ctx.Err())
	}
	return err
}

func TestFlakyBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		var members []*member
		for i := range 3 {
			members = append(members, w.launch(i, func(o *options) { o.Backend = &flakyBackend{Backend: o.Backend} }))
		}
		finishEqual(w, members...)
		if applied := all[event.Applied](members[0]); len(applied) != 9 {
			t.Errorf("applied %d rounds", len(applied))
		}
	})
}
