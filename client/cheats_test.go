package client

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/clienttest"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// scaled multiplies a gradient.
func scaled(gradient []float32, by float32) []float32 {
	for i := range gradient {
		gradient[i] *= by
	}
	return gradient
}

// answering changes what a member answers to requests of a protocol.
type answering struct {
	env.Network
	protocol string
	answer   func(from identity.ID, response []byte) ([]byte, error)
}

func (a *answering) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol == a.protocol {
		honest := handle
		handle = func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
			response, err := honest(ctx, from, request)
			if err != nil {
				return nil, err
			}
			return a.answer(from, slices.Clone(response))
		}
	}
	a.Network.Handle(protocol, maxRequest, handle)
}

// acting changes what a member says to the run's host. Done says that nothing is sent.
type acting struct {
	env.Backend
	act func(ctx context.Context, a coordinator.Action) (done bool, err error)
}

func (b *acting) Submit(ctx context.Context, a coordinator.Action) error {
	if done, err := b.act(ctx, a); done {
		return err
	}
	return b.Backend.Submit(ctx, a)
}

var errRefusesToOpen = errors.New("no")

// TestCheatsAreEjected lets one of seven members cheat: a jury of the others ejects it, nobody else,
// and the honest end with one model.
func TestCheatsAreEjected(t *testing.T) {
	cheat := func(change func(step uint32, batch data.Batch, gradient []float32) []float32) func(o *options) {
		return audited(func(a *clienttest.Audited) { a.Cheat = change })
	}
	var before []float32
	for name, attack := range map[string]func(o *options){
		"turned sign": cheat(func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, -1) }),
		"noise": cheat(func(step uint32, _ data.Batch, g []float32) []float32 {
			for i := range g {
				g[i] = float32((uint32(i)*7919+step*104729)%199)/100 - 1
			}
			return g
		}),
		"a little": cheat(func(_ uint32, _ data.Batch, g []float32) []float32 {
			return scaled(g, 1.05)
		}),
		"an old gradient": cheat(func(_ uint32, _ data.Batch, g []float32) []float32 {
			if before == nil {
				before = slices.Clone(g)
			}
			return slices.Clone(before)
		}),
		"no gradient":   cheat(func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, 0) }),
		"opens nothing": opensNothing,
		"opens something else": func(o *options) {
			cheat(func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, -1) })(o)
			o.Network = &answering{Network: o.Network, protocol: audits.OpeningProtocol, answer: func(_ identity.ID, b []byte) ([]byte, error) {
				b[len(b)/2] ^= 1
				return b, nil
			}}
		},
		"accuses wrongly": accusesEverybody,
		"made-up prints":  verifiesNothing,
		"sealed nothing":  sealsNothing,
		"reveals nothing": revealsNothing,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "turned sign" {
				t.Skip("-short: the race detector makes minutes of each")
			}
			synctest.Test(t, func(t *testing.T) {
				before = nil
				config := auditedConfig(7, 60) // the trial is over long before
				config.TotalSteps = 60
				w := newWorld(t, config)
				var honest []*member
				for i := range 6 {
					honest = append(honest, w.launch(i, audited(nil)))
				}
				cheat := w.launch(6, attack)
				late := map[coordinator.ClientID]bool{}
				w.until("the cheat is ejected", func(s *coordinator.State) bool {
					for _, c := range s.Epoch.Clients {
						if c.Lateness != coordinator.OnTime {
							late[c.ID] = true
						}
					}
					return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
				})
				ejections := w.host.State().Authority.Ejections
				if len(ejections) != 1 || identity.ID(ejections[0].Client) != cheat.id {
					t.Fatalf("ejected: %v, want %s", ejections, cheat.id.Short())
				}
				// In one of some twenty runs a juror lacks what it would judge by when it is asked, and is
				// late. Late once costs nobody its seat.
				if delete(late, coordinator.ClientID(cheat.id)); len(late) > 1 {
					t.Errorf("found late: %v", late)
				}
				t.Logf("ejected in step %d: %v", w.host.State().Progress.Step, ejections[0].Reason)
				finishEqual(w, honest...)
				if e := w.host.State().Authority.Ejections; len(e) != 1 {
					t.Errorf("ejected: %v", e)
				}
				checkVotes(t, honest)
				checkCourt(t, honest, cheat.id)
			})
		})
	}
}

// sealsNothing seals before it knows anything, and reveals what is right: whoever waits for the opening
// has prints without a gradient.
func sealsNothing(o *options) {
	audited(nil)(o)
	honest := o.Backend
	o.Backend = &acting{Backend: honest, act: func(ctx context.Context, a coordinator.Action) (bool, error) {
		seal, ok := a.(coordinator.SealVerdict)
		if !ok {
			return false, nil
		}
		seal.Seal = [32]byte{1}
		return true, honest.Submit(ctx, seal)
	}}
}

// revealsNothing makes up what it seals, and shows it to nobody, nor to a jury.
func revealsNothing(o *options) {
	verifiesNothing(o)
	o.Network = &answering{Network: o.Network, protocol: audits.ReportProtocol, answer: func(identity.ID, []byte) ([]byte, error) { return nil, errRefusesToOpen }}
	o.Backend = &acting{Backend: o.Backend, act: func(_ context.Context, a coordinator.Action) (bool, error) {
		_, open := a.(coordinator.Open)
		return open, errRefusesToOpen
	}}
}

// opensNothing sends the negative of its gradient, opens it to nobody, and says nothing of verifiers.
func opensNothing(o *options) {
	audited(func(a *clienttest.Audited) {
		a.Cheat = func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, -1) }
	})(o)
	o.Network = &answering{Network: o.Network, protocol: audits.OpeningProtocol, answer: func(identity.ID, []byte) ([]byte, error) { return nil, errRefusesToOpen }}
	o.Backend = &acting{Backend: o.Backend, act: func(_ context.Context, a coordinator.Action) (bool, error) {
		switch a.(type) {
		case coordinator.Open:
			return true, errRefusesToOpen
		case coordinator.Accuse:
			return true, nil
		}
		return false, nil
	}}
}

// TestWhoOpensNothingInShortRounds has rounds that are over before anybody could ask thrice with a second
// in between: who opens nothing is ejected all the same, and its verifiers and jurors are not found late.
func TestWhoOpensNothingInShortRounds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes minutes of it")
	}
	synctest.Test(t, func(t *testing.T) {
		config := auditedConfig(7, 60)
		config.TotalSteps = 60
		w := newWorld(t, config)
		short := func(o *options) { o.trainer.Duration = 250 * time.Millisecond }
		var honest []*member
		for i := range 6 {
			honest = append(honest, w.launch(i, func(o *options) { audited(nil)(o); short(o) }))
		}
		cheat := w.launch(6, func(o *options) { opensNothing(o); short(o) })
		late := map[coordinator.ClientID]bool{}
		w.until("the end", func(s *coordinator.State) bool {
			for _, c := range s.Epoch.Clients {
				if c.Lateness != coordinator.OnTime {
					late[c.ID] = true
				}
			}
			return s.RunState == coordinator.Finished
		})
		if e := w.host.State().Authority.Ejections; len(e) != 1 || identity.ID(e[0].Client) != cheat.id || e[0].Reason != coordinator.FoundGuilty {
			t.Errorf("ejected: %v, want %s", e, cheat.id.Short())
		}
		if delete(late, coordinator.ClientID(cheat.id)); len(late) > 1 { // all were, when there was no time to ask
			t.Errorf("found late: %v", late)
		}
		finishEqual(w, honest...)
	})
}

// checkVotes wants somebody to have voted, and all alike on a trial.
func checkVotes(t *testing.T, honest []*member) {
	t.Helper()
	type trial struct {
		step    uint32
		accused string
	}
	votes, count := map[trial]bool{}, 0
	for _, m := range honest {
		for _, v := range all[event.Voted](m) {
			key := trial{v.Step, v.Accused}
			if said, known := votes[key]; known && said != v.Guilty {
				t.Errorf("two votes on %v", key)
			}
			votes[key] = v.Guilty
			count++
		}
	}
	if count == 0 {
		t.Error("nobody voted")
	}
}

// checkCourt wants every member's log to tell of the ejection, once, of trials until none was open, and
// of audits and seats on juries of its own.
func checkCourt(t *testing.T, honest []*member, cheat identity.ID) {
	t.Helper()
	audits, seats := 0, 0
	for _, m := range honest {
		ejected, trials := all[event.Ejected](m), all[event.Trials](m)
		if len(ejected) != 1 || ejected[0].Client != cheat.String() || ejected[0].Until == 0 || ejected[0].Reason == "" {
			t.Errorf("%s tells of ejections %+v", m.id.Short(), ejected)
		}
		if len(trials) < 2 || len(trials[0].Open) != 1 || len(trials[len(trials)-1].Open) != 0 {
			t.Errorf("%s tells of trials %+v", m.id.Short(), trials)
		}
		for _, now := range trials {
			for _, trial := range now.Open {
				if trial.Juror {
					seats++
				}
			}
		}
		for _, now := range all[event.Audits](m) {
			audits += len(now.Due)
		}
	}
	if audits == 0 || seats == 0 {
		t.Errorf("%d audits and %d seats on juries", audits, seats)
	}
}

// accusesEverybody accuses whom it audits, whatever it found.
func accusesEverybody(o *options) {
	audited(nil)(o)
	honest := o.Backend
	me := coordinator.ClientID(o.Key.ID())
	var target atomic.Pointer[coordinator.State]
	updates := blink(context.Background(), honest, func(s *coordinator.State) bool {
		target.Store(s)
		return false
	})
	o.Backend = &acting{Backend: updates, act: func(ctx context.Context, a coordinator.Action) (bool, error) {
		v, verdict := a.(coordinator.Verdict)
		if !verdict {
			return false, nil
		}
		if err := honest.Submit(ctx, a); err != nil {
			return true, err
		}
		if s := target.Load(); s != nil {
			if audit, ok := s.AuditOf(v.Step, me); ok {
				_ = honest.Submit(ctx, coordinator.Accuse{Step: v.Step, Client: audit.Trainer, Fault: coordinator.FaultResult})
			}
		}
		return true, nil
	}}
}

// verifiesNothing makes up what it seals, and passes everybody.
func verifiesNothing(o *options) {
	audited(func(a *clienttest.Audited) {
		a.Guess = func(_ env.Examination, g []float32) []float32 {
			for i := range g {
				g[i] = float32(i + 1)
			}
			return g
		}
	})(o)
	o.Backend = &acting{Backend: o.Backend, act: func(ctx context.Context, a coordinator.Action) (bool, error) {
		switch a.(type) {
		case coordinator.Accuse, coordinator.Vote:
			return true, nil
		}
		return false, nil
	}}
}
