package client

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// far is a backend with slow answers of the host.
type far struct {
	env.Backend
	way time.Duration
}

func (f far) Submit(ctx context.Context, a coordinator.Action) error {
	time.Sleep(f.way)
	return f.Backend.Submit(ctx, a)
}

// noteSpeculative makes a trainer record its trainings, in a run with a slow host.
func (b *beginnings) noteSpeculative(w *world, o *options) {
	b.note(w, o)
	o.trainer.Lag = 1
	o.Backend = far{o.Backend, 200 * time.Millisecond}
}

// TestMembersSpeculateOnTheNextRound checks that members speculate on the results of a round while
// witnesses report to a slow host. The run confirms each speculation, with and without audits.
func TestMembersSpeculateOnTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.TotalSteps, config.RoundsPerEpoch = 8, 8
		w := newWorld(t, config)
		noted := make([]beginnings, 3)
		var members []*member
		for i := range noted {
			members = append(members, w.launch(i, func(o *options) { noted[i].noteSpeculative(w, o) }))
		}
		finishEqual(w, members...)
		for i, m := range members {
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("client %d: %+v", i, lost)
			}
			if m.trainer.Momentum() != 8 || m.trainer.Unapplied() != 0 || len(all[event.Applied](m)) != 8 {
				t.Errorf("client %d: %d results in the momentum, %d unapplied, %d rounds applied", i, m.trainer.Momentum(), m.trainer.Unapplied(), len(all[event.Applied](m)))
			}
			ahead := 0
			for step := uint32(2); step <= 8; step++ {
				begun := noted[i].of(step)
				if len(begun) != 1 || begun[0].weights != noted[i].after[step-1] {
					t.Errorf("client %d trained step %d: %+v", i, step, begun)
				}
				if begun[0].ahead {
					ahead++
				}
			}
			if ahead < 5 { // the first round measures how long the decision about a round takes
				t.Errorf("client %d began %d of 7 rounds ahead", i, ahead)
			}
			if m.node.engine.outlook.Mistakes > 0 {
				t.Errorf("client %d mispredicted %d times", i, m.node.engine.outlook.Mistakes)
			}
		}
	})
}

// TestMispredictedOutcomeIsUndone checks a member whose result reaches only one other member in
// time. The result does not count. The other member undoes its speculation, and does not mispredict
// again in the next rounds.
func TestMispredictedOutcomeIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(4)
		config.TotalSteps, config.RoundsPerEpoch, config.InitMinClients = 8, 8, 3
		w := newWorld(t, config)
		bad, victim := clienttest.Key(3).ID(), clienttest.Key(0).ID()
		var mu sync.Mutex
		hidden := false
		hides := func(from, to identity.ID) bool {
			mu.Lock()
			defer mu.Unlock()
			return hidden && (from == bad && to != victim || to == bad && from != victim)
		}
		w.hub.DropLink = hides
		w.hub.DropGossip = func(from, to identity.ID, _ []byte) bool { return hides(from, to) }
		var noted beginnings
		a := w.launch(0, func(o *options) { noted.noteSpeculative(w, o) })
		away := func(o *options) { o.Backend = far{o.Backend, 200 * time.Millisecond} }
		b, c := w.launch(1, away), w.launch(2, away)
		d := w.launch(3, away)
		w.until("some rounds", func(s *coordinator.State) bool { return s.Progress.Step == 4 && s.RunState == coordinator.RoundTrain })
		mu.Lock()
		hidden = true
		mu.Unlock()
		w.until("one more", func(s *coordinator.State) bool { return s.Progress.Step == 5 })
		mu.Lock()
		hidden = false
		mu.Unlock()
		finishEqual(w, a, b, c)
		d.cancel()
		d.wait()
		if lost := all[event.Desynchronised](a); len(lost) != 0 {
			t.Errorf("got %+v; want len(lost) == 0", lost)
		}
		if m := a.node.engine.outlook.Mistakes; m != 1 {
			t.Errorf("the victim mispredicted %d times, want once", m)
		}
		if begun := noted.of(5); len(begun) != 2 || !begun[0].ahead || begun[1].ahead || begun[0].weights == begun[1].weights || begun[1].weights != noted.after[4] {
			t.Errorf("step 5: %+v", begun)
		}
		for step := uint32(6); step <= 8; step++ {
			if begun := noted.of(step); len(begun) != 1 || begun[0].ahead {
				t.Errorf("step %d: %+v", step, begun)
			}
		}
	})
}

// TestSpeculativeRoundsAreAudited checks that members with a slow host audit each other. No member
// is accused, as many audits pass as without speculation, and most trainings begin ahead.
func TestSpeculativeRoundsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 60
		w := newWorld(t, auditedConfig(6, rounds))
		var members []*member
		noted := make([]beginnings, 6)
		for i := range noted {
			members = append(members, w.launch(i, func(o *options) {
				audited(nil)(o)
				noted[i].noteSpeculative(w, o)
			}))
		}
		finishEqual(w, members...)
		checkNobodyAccused(t, w, members)
		outcomes := found(members)
		if outcomes["passed"] < rounds/4 || outcomes["failed"] > 0 || len(outcomes) > 1 {
			t.Errorf("audits %v", outcomes)
		}
		ahead, trained := 0, 0
		for i := range noted {
			for _, begun := range noted[i].all {
				trained++
				if begun.ahead {
					ahead++
				}
			}
		}
		if 2*ahead < trained {
			t.Errorf("%d of %d trainings began ahead of their round", ahead, trained)
		}
	})
}
