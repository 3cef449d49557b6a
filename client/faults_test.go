package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data/tokens"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// TestLostGossip loses messages: announcements are repeated and asked for.
func TestLostGossip(t *testing.T) {
	tests := map[string]func(n int64) bool{
		"every second message": func(n int64) bool { return n%2 == 0 },
		"every message":        func(int64) bool { return true },
	}
	for name, drop := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeConfig(3))
				var count atomic.Int64
				w.hub.DropGossip = func(identity.ID, identity.ID, []byte) bool { return drop(count.Add(1)) }
				a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
				finishEqual(w, a, b, c)
				for _, applied := range all[event.Applied](b) {
					if applied.Counted != 3 {
						t.Errorf("step %d: %d results counted", applied.Step, applied.Counted)
					}
				}
			})
		})
	}
}

// TestLostLink cuts one pair of clients: they get each other's results from the third.
func TestLostLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(3))
		one, other := testKey(0).ID(), testKey(1).ID()
		cut := func(from, to identity.ID) bool { return from == one && to == other || from == other && to == one }
		w.hub.DropLink = cut
		w.hub.DropGossip = func(from, to identity.ID, _ []byte) bool { return cut(from, to) }
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		finishEqual(w, a, b, c)
	})
}

// TestSilentTrainer has a client that stops producing results: it is dropped, and its
// batches are recorded as lost with their owner.
func TestSilentTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		c := w.launch(2, func(o *options) { o.trainer.silent = func(step uint32) bool { return step == 2 } })
		finishEqual(w, a, b, c)
		applied := all[event.Applied](a)
		if len(applied) != 9 || len(applied[1].Lost) != 1 || applied[1].Lost[0].Owner != c.id.String() {
			t.Fatalf("applied %+v", applied)
		}
		if len(all[event.HealthCheckSent](a))+len(all[event.HealthCheckSent](b)) == 0 {
			t.Error("nobody accused the silent trainer")
		}
		if len(all[event.Desynchronised](c)) == 0 || len(all[event.Rejoined](c)) == 0 {
			t.Error("the silent trainer did not leave and come back")
		}
	})
}

// TestLyingTrainer has a client whose results are invalid: nobody counts them.
func TestLyingTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(4))
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		liar := w.launch(3, func(o *options) { o.trainer.lie = func(uint32) bool { return true } })
		for _, m := range []*member{a, b, c} {
			m.wait()
		}
		for _, applied := range all[event.Applied](a) {
			for _, lost := range applied.Lost {
				if lost.Owner != liar.id.String() {
					t.Errorf("step %d: a result of %s is lost", applied.Step, lost.Owner)
				}
			}
		}
		if rejected := all[event.Rejected](a); len(rejected) == 0 || rejected[0].From != liar.id.String() {
			t.Errorf("rejected %+v", rejected)
		}
		finishEqual(w, a, b, c)
	})
}

// equivocator is a network that announces two different results to two halves.
type equivocator struct {
	Network
	key    identity.Key
	second func(a wire.ResultAnnouncement) ([]byte, bool)
}

func (e *equivocator) Publish(ctx context.Context, message []byte) error {
	_, a, err := wire.OpenAnnouncement(message, testRun)
	if err != nil {
		return err
	}
	payload, ok := e.second(a)
	if !ok {
		return e.Network.Publish(ctx, message)
	}
	if a.Blob, err = e.Put(payload); err != nil {
		return err
	}
	a.Size = uint32(len(payload))
	return errors.Join(e.Network.Publish(ctx, message), e.Network.Publish(ctx, wire.SignAnnouncement(e.key, a)))
}

// doubleSizer is a network that announces its client's results a second time, with a
// wrong size.
type doubleSizer struct {
	Network
	key   identity.Key
	wrong uint32
}

func (d *doubleSizer) Publish(ctx context.Context, message []byte) error {
	_, a, err := wire.OpenAnnouncement(message, testRun)
	if err != nil {
		return err
	}
	a.Size = d.wrong
	return errors.Join(d.Network.Publish(ctx, message), d.Network.Publish(ctx, wire.SignAnnouncement(d.key, a)))
}

// TestResultOfTwoSizes has a trainer that tells one client a wrong size of its result. It
// counts, as the others hold it, and the one gets it nevertheless.
func TestResultOfTwoSizes(t *testing.T) {
	for _, wrong := range []uint32{83, 1 << 20} { // cannot be fetched; is more than any result has
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, fakeConfig(4))
			bad, victim := testKey(3), testKey(0).ID()
			w.hub.DropGossip = func(from, to identity.ID, message []byte) bool {
				_, a, err := wire.OpenAnnouncement(message, testRun)
				return err != nil || from == bad.ID() && (to == victim) != (a.Size == wrong)
			}
			a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
			d := w.launch(3, func(o *options) { o.Network = &doubleSizer{o.Network, bad, wrong} })
			finishEqual(w, a, b, c, d)
			if lost := all[event.Desynchronised](a); len(lost) > 0 {
				t.Errorf("wrong size %d: desynchronised: %+v", wrong, lost)
			}
			for _, applied := range all[event.Applied](a) {
				if applied.Counted != 4 {
					t.Errorf("wrong size %d: step %d: %d results counted", wrong, applied.Step, applied.Counted)
				}
			}
		})
	}
}

// thief is a network that announces a part of the model as its client's result.
type thief struct {
	Network
	key  identity.Key
	part [32]byte
	size uint32
}

func (t *thief) Publish(ctx context.Context, message []byte) error {
	_, a, err := wire.OpenAnnouncement(message, testRun)
	if err != nil {
		return err
	}
	a.Blob, a.Size = t.part, t.size
	return t.Network.Publish(ctx, wire.SignAnnouncement(t.key, a))
}

// keeper is a network that counts how often a part of the model is dropped.
type keeper struct {
	Network
	part  [32]byte
	drops atomic.Int64
}

func (k *keeper) Drop(hash [32]byte) {
	if hash == k.part {
		k.drops.Add(1)
	}
	k.Network.Drop(hash)
}

// TestModelPartAsResult has a trainer that announces a part of the model as its result:
// others refuse it, and go on to share the part.
func TestModelPartAsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := fakeModel().Files[0].Data
		for _, size := range []uint32{uint32(len(config)), 1 << 20} { // fetched; refused before
			w := newWorld(t, fakeConfig(4))
			k := &keeper{part: blake3Sum(config)}
			a := w.launch(0, func(o *options) { k.Network, o.Network = o.Network, k })
			b, c := w.launch(1, nil), w.launch(2, nil)
			bad := testKey(3)
			w.launch(3, func(o *options) { o.Network = &thief{o.Network, bad, k.part, size} })
			finishEqual(w, a, b, c)
			if rejected := all[event.Rejected](a); len(rejected) == 0 || rejected[0].From != bad.ID().String() {
				t.Errorf("rejected %+v", rejected)
			}
			if n := k.drops.Load(); n > 0 {
				t.Errorf("dropped a part of the model %d times", n)
			}
		}
	})
}

// TestEquivocatingTrainer signs two valid results for one batch. Whatever counts, it is
// the same for all.
func TestEquivocatingTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(4))
		bad := testKey(3)
		var odd atomic.Int64
		w.hub.DropGossip = func(from, _ identity.ID, _ []byte) bool { return from == bad.ID() && odd.Add(1)%2 == 0 }
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		d := w.launch(3, func(o *options) {
			o.Network = &equivocator{Network: o.Network, key: bad, second: func(a wire.ResultAnnouncement) ([]byte, bool) {
				payload := append(fakeHeader(a.Step, a.Batch, bad.ID()), make([]byte, 32)...)
				payload[len(payload)-1] = byte(a.Step)
				return payload, true
			}}
		})
		finishEqual(w, a, b, c)
		d.wait()
		equivocations := 0
		for _, m := range []*member{a, b, c} {
			equivocations += len(all[event.Equivocation](m))
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("%+v", lost)
			}
		}
		if equivocations == 0 {
			t.Error("nobody noticed")
		}
	})
}

// TestCorruptedWeights damages the weights of one client: the witnesses' replica hash
// cannot show it, the digest at the epoch's end does.
func TestCorruptedWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		c := w.launch(2, func(o *options) { o.trainer.corrupt = func(step uint32) bool { return step == 2 } })
		finishEqual(w, a, b, c)
		if lost := all[event.Desynchronised](c); len(lost) != 1 || lost[0].Epoch != 1 {
			t.Errorf("desynchronised: %+v", lost)
		}
		if ready := all[event.Ready](c); len(ready) != 3 || ready[1].Source != "peers" {
			t.Errorf("ready: %+v", ready)
		}
		if c.trainer.loads != 2 {
			t.Errorf("%d loads", c.trainer.loads)
		}
	})
}

// TestDivergedReplica has a client that applied another set: within a round its replica
// hash differs from the witnesses'.
func TestDivergedReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		launched := make(chan *member, 1)
		c := w.launch(2, func(o *options) {
			o.trainer.onApply = func(step uint32, _ bool) {
				if step == 1 { // the loop waits for this call's report: nobody else uses the hash
					m := <-launched
					m.node.replica.hash[0] ^= 1
				}
			}
		})
		launched <- c
		finishEqual(w, a, b, c)
		lost := all[event.Desynchronised](c)
		if len(lost) != 1 || lost[0].Epoch != 0 || lost[0].Step > 3 {
			t.Errorf("desynchronised: %+v", lost)
		}
	})
}

// blinkingBackend hides some updates, so that the client sees only later ones.
type blinkingBackend struct {
	Backend
	updates chan backend.Update
}

func blink(ctx context.Context, inner Backend, hidden func(s *coordinator.State) bool) *blinkingBackend {
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
		"a round, and is dropped": {func(s *coordinator.State) bool { return s.Progress.Step == 2 }, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeConfig(4))
				a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
				d := w.launch(3, func(o *options) { o.Backend = blink(w.ctx, o.Backend, test.hidden) })
				finishEqual(w, a, b, c, d)
				if lost := all[event.Desynchronised](d); len(lost) != test.resyncs {
					t.Errorf("desynchronised: %+v", lost)
				}
			})
		})
	}
}

// flakyBackend loses the answers to some actions, after or before they arrive.
type flakyBackend struct {
	Backend
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
		w := newWorld(t, fakeConfig(3))
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

// TestSlowTrainer cannot finish within a round: its training is stopped, nothing of it
// counts, and it is dropped in each epoch.
func TestSlowTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		var own atomic.Int64
		c := w.launch(2, func(o *options) {
			o.trainer.duration = time.Minute
			o.trainer.onApply = func(_ uint32, counted bool) {
				if counted {
					own.Add(1)
				}
			}
		})
		finishEqual(w, a, b)
		c.wait()
		if c.err != nil {
			t.Error(c.err)
		}
		if own.Load() != 0 || len(all[event.Trained](c)) != 0 {
			t.Errorf("%d own results counted", own.Load())
		}
	})
}

// TestDataOutage has a provider that fails at first.
func TestDataOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(2))
		var failures atomic.Int64
		a := w.launch(0, func(o *options) {
			o.Data = fakeData{err: func(assign.BatchID) error {
				if failures.Add(1) <= 3 {
					return errFake
				}
				return nil
			}}
		})
		b := w.launch(1, nil)
		finishEqual(w, a, b)
		if trained := all[event.Trained](a); len(trained) != 9 {
			t.Errorf("trained %d rounds", len(trained))
		}
	})
}

// TestWrongData has a client whose data no retry makes right: it ends and says why.
func TestWrongData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(1))
		a := w.launch(0, func(o *options) {
			o.Data = fakeData{err: func(assign.BatchID) error { return tokens.ErrTokenRange }}
		})
		a.wait()
		if !errors.Is(a.err, tokens.ErrTokenRange) || len(all[event.Failed](a)) != 1 {
			t.Errorf("run ended with %v", a.err)
		}
	})
}

// TestEjected ejects a client: the others go on without it, it keeps asking, and is a
// member again in the epoch from which on it may be.
func TestEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(2))
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		if err := w.host.Apply(coordinator.Eject{Client: coordinator.ClientID(c.id)}); err != nil {
			t.Fatal(err)
		}
		w.until("return of the ejected", func(s *coordinator.State) bool {
			client, isMember := s.Member(coordinator.ClientID(c.id))
			healthy := isMember && client.State == coordinator.Healthy
			if healthy && s.Progress.Epoch == 1 {
				t.Error("the ejected client is a member of the next epoch")
			}
			return healthy && s.Progress.Epoch == 2
		})
		finishEqual(w, a, b, c)
	})
}

// TestReconfigure gives a paused run another definition: every member builds its trainer
// again, from the model that it holds.
func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(2))
		a, b := w.launch(0, nil), w.launch(1, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		if err := w.host.Apply(coordinator.SetPaused{Paused: true}); err != nil {
			t.Fatal(err)
		}
		w.until("pause", func(s *coordinator.State) bool { return s.RunState == coordinator.Paused })
		state := w.host.State()
		update := coordinator.UpdateConfig{Config: state.Config, Model: state.Model}
		update.Model.Definition = []byte("another learning rate")
		for _, action := range []coordinator.Action{update, coordinator.SetPaused{}} {
			if err := w.host.Apply(action); err != nil {
				t.Fatal(err)
			}
		}
		finishEqual(w, a, b)
		for _, m := range []*member{a, b} {
			if m.trainer.loads != 2 {
				t.Errorf("the model was loaded %d times", m.trainer.loads)
			}
			if got := string(m.node.built); got != "another learning rate" {
				t.Errorf("the trainer is built from %q", got)
			}
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("%+v", lost)
			}
		}
	})
}

// TestPause pauses and resumes a run: it goes on from the model that was reached.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(2))
		a, b := w.launch(0, nil), w.launch(1, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		if err := w.host.Apply(coordinator.SetPaused{Paused: true}); err != nil {
			t.Fatal(err)
		}
		w.until("pause", func(s *coordinator.State) bool { return s.RunState == coordinator.Paused })
		time.Sleep(time.Minute)
		if err := w.host.Apply(coordinator.SetPaused{Paused: false}); err != nil {
			t.Fatal(err)
		}
		finishEqual(w, a, b)
		for _, m := range []*member{a, b} {
			if m.trainer.loads != 1 {
				t.Errorf("the model was loaded %d times", m.trainer.loads)
			}
			if steps := all[event.Applied](m); len(steps) != 9 {
				t.Errorf("applied %d rounds", len(steps))
			}
		}
	})
}

// TestLateJoiner joins a running run and gets the model from the members.
func TestLateJoiner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(2))
		a, b := w.launch(0, nil), w.launch(1, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		c := w.launch(2, nil)
		finishEqual(w, a, b, c)
		joined := all[event.Applied](c)
		if len(joined) == 0 || joined[0].Step != 4 || !slices.ContainsFunc(joined, func(e event.Applied) bool { return e.OwnCounted }) {
			t.Errorf("the late joiner applied %+v", joined)
		}
		if len(all[event.Rejoined](c)) != 0 {
			t.Error("a newcomer was reported as returned")
		}
	})
}

// TestCheckpointThatCannotBeSaved ends the run with an error that names the folder.
func TestCheckpointThatCannotBeSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeConfig(1))
		a := w.launch(0, func(o *options) { o.CheckpointDir = "/dev/null/here" })
		a.wait()
		if a.err == nil || len(all[event.Failed](a)) != 1 {
			t.Errorf("run ended with %v", a.err)
		}
	})
}
