package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// scaled multiplies a gradient.
func scaled(gradient []float32, by float32) []float32 {
	for i := range gradient {
		gradient[i] *= by
	}
	return gradient
}

// answering changes a member's answers to the requests of a protocol.
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

// opens changes a member's answers to requests for openings.
func opens(o *options, answer func(from identity.ID, opening []byte) ([]byte, error)) {
	o.Network = &answering{Network: o.Network, protocol: auditor.OpeningProtocol, answer: answer}
}

// acting changes the actions that a member sends to the host. If act returns true, nothing is sent.
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

// sends makes a member with changed gradients.
func sends(change func(step uint32, batch data.Batch, gradient []float32) []float32) func(o *options) {
	return audited(func(a *clienttest.Audited) { a.Cheat = change })
}

// turnsSign makes a member send its negated gradients.
func turnsSign(o *options) {
	sends(func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, -1) })(o)
}

// TestCheatsAreEjected checks that one cheat of seven members is ejected by a jury. No other member
// is ejected, no honest member is found late, and the honest members keep one model. The runs stop soon
// after the ejection; TestTrialsOutliveTheEpoch checks the end of such a run, and
// TestCheatsThatHideResultsAreEjected more ways to withhold openings.
func TestCheatsAreEjected(t *testing.T) {
	var mu sync.Mutex
	var before []float32
	for name, attack := range map[string]func(o *options){
		"turned sign": turnsSign,
		"noise": sends(func(step uint32, _ data.Batch, g []float32) []float32 {
			for i := range g {
				g[i] = float32((uint32(i)*7919+step*104729)%199)/100 - 1
			}
			return g
		}),
		"a little": sends(func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, 1.05) }),
		"an old gradient": sends(func(_ uint32, _ data.Batch, g []float32) []float32 {
			mu.Lock()
			defer mu.Unlock()
			if before == nil {
				before = slices.Clone(g)
			}
			return slices.Clone(before)
		}),
		"no gradient": sends(func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, 0) }),
		"opens late": func(o *options) {
			turnsSign(o)
			asked := make(map[identity.ID]int)
			opens(o, func(from identity.ID, b []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if asked[from]++; asked[from]%12 != 0 {
					return nil, errRefusesToOpen
				}
				return b, nil
			})
		},
		// It claims to continue from a step in which it trained nothing, so that its momentum after
		// that step could be anything.
		"continues from what nobody saw": audited(func(a *clienttest.Audited) {
			a.Forge = func(h *codec.Header) {
				if h.Previous != 0 && h.Previous+1 < h.Step {
					h.Previous = h.Step - 1
				}
			}
		}),
		"leaves out what it sent": audited(func(a *clienttest.Audited) {
			a.Forge = func(h *codec.Header) {
				if h.Previous > 4 {
					h.Previous--
				}
			}
		}),
		"says it had other tokens": func(o *options) {
			sends(func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, -1) })(o)
			o.audited.Forge = func(h *codec.Header) { h.Batch[0] ^= 1 }
		},
		"accuses wrongly": accusesEverybody,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "turned sign" {
				t.Skip("-short: each takes minutes with the race detector")
			}
			synctest.Test(t, func(t *testing.T) {
				w, honest := ejectOnly(t, auditedConfig(7, 240), attack)
				ejected := w.host.State().Progress.Step
				w.until("some rounds after the ejection", func(s *coordinator.State) bool { return s.Progress.Step >= ejected+8 })
				crash(honest...)
				checkApplied(t, ejected, honest)
				checkVerdict(w, honest)
			})
		})
	}
}

// TestTrialsOutliveTheEpoch checks that a member that sends no openings is ejected although epochs
// are shorter than trials.
func TestTrialsOutliveTheEpoch(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes minutes with the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		config := auditedConfig(7, 24)
		config.TotalSteps, config.EjectionEpochs, config.InitMinClients = 240, 100, 6
		w, honest := ejectOnly(t, config, func(o *options) {
			turnsSign(o)
			opens(o, func(identity.ID, []byte) ([]byte, error) { return nil, errRefusesToOpen })
		})
		finishEqual(w, honest...)
		checkVerdict(w, honest)
	})
}

// ejectOnly runs six honest members and one cheat until the first ejection, and checks that only the
// cheat was ejected, and that no honest member was late.
func ejectOnly(t *testing.T, config coordinator.Config, attack func(o *options)) (w *world, honest []*member) {
	t.Helper()
	w = newWorld(t, config)
	for i := range 6 {
		honest = append(honest, w.launch(i, audited(nil)))
	}
	cheat := w.launch(6, attack)
	late := map[coordinator.ClientID]int{}
	w.until("the cheat is ejected", func(s *coordinator.State) bool {
		for _, c := range s.Epoch.Clients {
			if c.Lateness != coordinator.OnTime && c.ID != coordinator.ClientID(cheat.id) {
				late[c.ID]++
			}
		}
		return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
	})
	s := w.host.State()
	if e := s.Authority.Ejections; len(e) != 1 || identity.ID(e[0].Client) != cheat.id || len(late) > 0 {
		t.Fatalf("ejected: %v, want %s; found late: %v; trials %+v, audits %v", e, cheat.id.Short(), late, s.Trials, found(honest))
	}
	t.Logf("ejected in step %d: %v", s.Progress.Step, s.Authority.Ejections[0].Reason)
	return w, honest
}

// checkVerdict checks that one member is ejected, and that the votes of honest members agree.
func checkVerdict(w *world, honest []*member) {
	w.t.Helper()
	if e := w.host.State().Authority.Ejections; len(e) != 1 {
		w.t.Errorf("ejected: %v", e)
	}
	checkVotes(w.t, honest)
}

// checkApplied checks that stopped members applied the same results in every step, at least until step
// least.
func checkApplied(t *testing.T, least uint32, members []*member) {
	t.Helper()
	replicas := map[uint32]string{}
	for _, m := range members {
		last := uint32(0)
		for _, a := range all[event.Applied](m) {
			if last = a.Step; replicas[a.Step] == "" {
				replicas[a.Step] = a.Replica
			}
			if a.Replica != replicas[a.Step] {
				t.Errorf("client %s has another model after step %d", m.id.Short(), a.Step)
			}
		}
		if last < least {
			t.Errorf("client %s applied step %d last, want at least %d", m.id.Short(), last, least)
		}
	}
}

// TestJurorsAreInTime checks that jurors whose recomputations fail, or take longer than witnesses
// wait, still train in time.
func TestJurorsAreInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes minutes with the race detector")
	}
	for name, change := range map[string]func(a *clienttest.Audited){
		"slow":  func(a *clienttest.Audited) { a.RecomputeTime = 5 * time.Second },
		"fails": func(a *clienttest.Audited) { a.Guess = func(audit.Recomputation, []float32) []float32 { return nil } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, auditedConfig(7, 80))
				var honest []*member
				for i := range 6 {
					honest = append(honest, w.launch(i, audited(change)))
				}
				accuser := w.launch(6, accusesEverybody)
				late := watch(w)
				delete(late, coordinator.ClientID(accuser.id)) // it loses its seat if a jury has finished
				finishEqual(w, honest...)
				if len(late) > 0 {
					t.Errorf("found late: %v", late)
				}
			})
		})
	}
}

// checkVotes checks that members voted, and that all votes in a trial agree.
func checkVotes(t *testing.T, honest []*member) {
	t.Helper()
	type trial struct {
		step    uint32
		accused string
	}
	votes := map[trial]bool{}
	for _, m := range honest {
		for _, v := range all[event.Voted](m) {
			key := trial{v.Step, v.Accused}
			if said, known := votes[key]; known && said != v.Guilty {
				t.Errorf("two votes on %v", key)
			}
			votes[key] = v.Guilty
		}
	}
	if len(votes) == 0 {
		t.Error("no member voted")
	}
}
