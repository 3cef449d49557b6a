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
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/memnet"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
	"lukechampine.com/blake3"
)

// TestSilentTrainer checks a client that stops producing results. Two rounds wait for it until the
// witnesses have waited long enough. Then it is dropped, the third round does not wait for it, and
// its batches are recorded as lost with their owner.
func TestSilentTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.RoundsPerEpoch = 6
		w := newWorld(t, config)
		a, b := w.launch(0, nil), w.launch(1, nil)
		c := w.launch(2, func(o *options) { o.trainer.Silent = func(step uint32) bool { return step >= 2 && step <= 4 } })
		begins := make(map[uint32]time.Time)
		for step := range uint32(5) {
			w.until("a round", func(s *coordinator.State) bool { return s.Progress.Step > step && s.RunState == coordinator.RoundTrain })
			begins[step+1] = time.Now()
		}
		for step := range uint32(4) {
			took := begins[step+2].Sub(begins[step+1])
			if waits := step == 1 || step == 2; waits != (took >= core.LeastWitnessWait) || took > core.LeastWitnessWait+time.Second {
				t.Errorf("step %d took %v; more than the wait of %v: want %t", step+1, took, core.LeastWitnessWait, waits)
			}
		}
		finishEqual(w, a, b, c)
		applied := all[event.Applied](a)
		if len(applied) != 9 || len(applied[1].Lost) != 1 || applied[1].Lost[0].Owner != c.id.String() {
			t.Fatalf("applied %+v", applied)
		}
		if len(all[event.HealthCheckSent](a))+len(all[event.HealthCheckSent](b)) == 0 {
			t.Error("no member accused the silent trainer")
		}
		if len(all[event.Desynchronised](c)) != 0 || len(all[event.Rejoined](c)) != 1 {
			t.Errorf("the silent trainer did not take its seat back: %+v", all[event.Rejoined](c))
		}
		if len(applied[5].Lost) != 0 {
			t.Errorf("step 6 lost %+v", applied[5].Lost)
		}
	})
}

// TestByzantineTrainer checks that the invalid results of a client do not count.
func TestByzantineTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(4))
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		byzantine := w.launch(3, func(o *options) { o.trainer.Invalid = func(uint32) bool { return true } })
		for _, m := range []*member{a, b, c} {
			m.wait()
		}
		for _, applied := range all[event.Applied](a) {
			for _, lost := range applied.Lost {
				if lost.Owner != byzantine.id.String() {
					t.Errorf("step %d: a result of %s is lost", applied.Step, lost.Owner)
				}
			}
		}
		if rejected := all[event.Rejected](a); len(rejected) == 0 || rejected[0].From != byzantine.id.String() {
			t.Errorf("rejected %+v", rejected)
		}
		finishEqual(w, a, b, c)
	})
}

// silent is a network that does not push results, so that announced results must be fetched.
type silent struct{ env.Network }

func (s silent) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	if protocol == exchange.PushProtocol {
		return nil, memnet.ErrUnreachable
	}
	return s.Network.Request(ctx, to, protocol, request, maxResponse)
}

// equivocator is a network that announces a different result to each half of the members.
type equivocator struct {
	env.Network
	key    identity.Key
	second func(a wire.ResultAnnouncement) ([]byte, bool)
}

func (e *equivocator) Publish(ctx context.Context, message []byte) error {
	_, a, err := wire.OpenAnnouncement(message, clienttest.Run)
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

// TestEquivocatingTrainer signs two valid results for one batch. All members make the same decision
// which one counts, if any. The run continues without the trainer, because it needs only three
// members.
func TestEquivocatingTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(4)
		config.InitMinClients = 3
		w := newWorld(t, config)
		bad := clienttest.Key(3)
		var odd atomic.Int64
		w.hub.DropGossip = func(from, _ identity.ID, _ []byte) bool { return from == bad.ID() && odd.Add(1)%2 == 0 }
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		d := w.launch(3, func(o *options) {
			o.Network = &equivocator{Network: silent{o.Network}, key: bad, second: func(a wire.ResultAnnouncement) ([]byte, bool) {
				return clienttest.Result(a.Step, a.Batch, bad.ID(), [32]byte{31: byte(a.Step)}), true
			}}
		})
		finishEqual(w, a, b, c)
		d.wait()
		equivocations := 0
		for _, m := range []*member{a, b, c} {
			equivocations += len(all[event.Equivocation](m))
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("got %+v; want len(lost) == 0", lost)
			}
		}
		if equivocations == 0 {
			t.Error("no member noticed")
		}
	})
}

// thief is a network that announces a part of the model as its client's result.
type thief struct {
	env.Network
	key  identity.Key
	part [32]byte
	size uint32
}

func (t *thief) Publish(ctx context.Context, message []byte) error {
	_, a, err := wire.OpenAnnouncement(message, clienttest.Run)
	if err != nil {
		return err
	}
	a.Blob, a.Size = t.part, t.size
	return t.Network.Publish(ctx, wire.SignAnnouncement(t.key, a))
}

// dropCounter is a network that counts how often a part of the model is dropped.
type dropCounter struct {
	env.Network
	part  [32]byte
	drops atomic.Int64
}

func (k *dropCounter) Drop(hash [32]byte) {
	if hash == k.part {
		k.drops.Add(1)
	}
	k.Network.Drop(hash)
}

// TestModelPartAsResult checks a trainer that announces a part of the model as its result. Other
// members refuse it, but continue to share the part.
func TestModelPartAsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Model().Files[0].Data
		for _, size := range []uint32{uint32(len(config)), 1 << 20} { // fetched in one case; refused before a fetch in the other
			w := newWorld(t, clienttest.Config(4))
			k := &dropCounter{part: blake3.Sum256(config)}
			a := w.launch(0, func(o *options) { k.Network, o.Network = o.Network, k })
			b, c := w.launch(1, nil), w.launch(2, nil)
			bad := clienttest.Key(3)
			w.launch(3, func(o *options) { o.Network = &thief{silent{o.Network}, bad, k.part, size} })
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

// falseReporter is a backend whose client reports a false digest for each model.
type falseReporter struct {
	env.Backend
	reports atomic.Int64
}

func (f *falseReporter) Submit(ctx context.Context, a coordinator.Action) error {
	report, ok := a.(coordinator.ReportCheckpoint)
	if !ok {
		return f.Backend.Submit(ctx, a)
	}
	f.reports.Add(1)
	report.Digest = falseModel
	return f.Backend.Submit(ctx, report)
}

// TestFalseReportsOfIntermediateCheckpoints checks a member that reports models that no member has.
// The models of the other members still become intermediate checkpoints, no member adopts a false
// one, and nothing is lost when the epoch ends early.
func TestFalseReportsOfIntermediateCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := epochs(4)
		config.InitMinClients = 3
		w := newWorld(t, config)
		honest := []*member{w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)}
		f := &falseReporter{}
		byzantine := w.launch(3, func(o *options) { f.Backend, o.Backend = o.Backend, f })
		for step := uint32(3); step < 8; step++ {
			w.reach(step, coordinator.RoundWitness)
			if c := w.host.State().Epoch.Commit; c.Step < step-1 || c.Digest == falseModel {
				t.Errorf("in step %d the intermediate checkpoint is %x of step %d", step, c.Digest[:4], c.Step)
			}
		}
		byzantine.cancel()
		byzantine.wait()
		finishEqual(w, honest...)
		for _, m := range honest {
			if lost := all[event.Desynchronised](m); len(lost) > 0 {
				t.Errorf("got %+v; want len(lost) == 0", lost)
			}
		}
		if s := w.host.State(); f.reports.Load() == 0 || len(s.RollbackGaps) > 0 {
			t.Errorf("%d false reports, rollback gaps %v", f.reports.Load(), s.RollbackGaps)
		}
	})
}
