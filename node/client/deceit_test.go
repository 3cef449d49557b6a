package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// accuser makes a member accuse the member that choose returns, whenever it may.
func accuser(choose func(s *coordinator.State) (coordinator.Accuse, bool)) func(o *options) {
	return func(o *options) {
		audited(nil)(o)
		honest := o.Backend
		o.Backend = blink(context.Background(), honest, func(s *coordinator.State) bool {
			if a, any := choose(s); any && s.MayAccuse(coordinator.ClientID(o.Key.ID()), a) == nil {
				_ = honest.Submit(context.Background(), a)
			}
			return false
		})
	}
}

// accusesEverybody makes a member accuse an honest member of a wrong result.
func accusesEverybody(o *options) {
	accuser(func(s *coordinator.State) (coordinator.Accuse, bool) {
		return heldOf(s, coordinator.ClientID(clienttest.Key(1).ID()), coordinator.FaultResult)
	})(o)
}

// heldOf returns an accusation of a member for its result in the newest finished round.
func heldOf(s *coordinator.State, id coordinator.ClientID, fault coordinator.Fault) (coordinator.Accuse, bool) {
	if s.Progress.Step < 2 {
		return coordinator.Accuse{}, false
	}
	r := s.RoundOfStep(s.Progress.Step - 1)
	if r == nil || r.Score(id) < int(r.WitnessesNeeded) {
		return coordinator.Accuse{}, false
	}
	return coordinator.Accuse{Step: r.Step, Client: id, Fault: fault}, true
}

// TestFalseAccusationsOfSilence checks that false accusations of silence have no effect. The
// accused sends its opening. After some accusations the accuser may not accuse again in the same
// epoch, and no other member is affected.
func TestFalseAccusationsOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(7, 60))
		var honest []*member
		for i := range 6 {
			honest = append(honest, w.launch(i, audited(nil)))
		}
		w.launch(6, accuser(func(s *coordinator.State) (coordinator.Accuse, bool) {
			return heldOf(s, coordinator.ClientID(clienttest.Key(1).ID()), coordinator.FaultSilent)
		}))
		late := watch(w)
		finishEqual(w, honest...)
		if e := w.host.State().Authority.Ejections; len(e) > 0 || len(late) > 0 {
			t.Errorf("ejected: %v, found late: %v", e, late)
		}
		trials := map[uint32]bool{}
		for _, m := range honest {
			for _, v := range all[event.Voted](m) {
				trials[v.Step] = true
				if v.Guilty {
					t.Errorf("%+v", v)
				}
			}
		}
		if len(trials) == 0 || len(trials) > coordinator.MaxComplaints {
			t.Errorf("%d accusations", len(trials))
		}
	})
}

// TestAccomplicesCannotProtectACheat checks that accomplices cannot protect a cheat. An accomplice
// repeatedly accuses it of a fault that it did not commit, and never accuses it in its own audits.
// The cheat is still ejected.
func TestAccomplicesCannotProtectACheat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(8, 100))
		cheat := coordinator.ClientID(clienttest.Key(6).ID())
		var honest []*member
		for i := range 6 {
			honest = append(honest, w.launch(i, audited(nil)))
		}
		w.launch(6, turnsSign)
		w.launch(7, func(o *options) {
			accuser(func(s *coordinator.State) (coordinator.Accuse, bool) {
				return heldOf(s, cheat, coordinator.FaultSilent)
			})(o)
			o.Backend = &acting{Backend: o.Backend, act: func(_ context.Context, a coordinator.Action) (bool, error) {
				switch a.(type) {
				case coordinator.Accuse, coordinator.Vote:
					return true, nil
				}
				return false, nil
			}}
		})
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		finishEqual(w, honest...)
		if e := w.host.State().Authority.Ejections; len(e) != 1 || e[0].Client != cheat {
			t.Errorf("ejected: %v", e)
		}
	})
}

// TestCheatThatLeavesBeforeAuditsGainsLittle checks a cheat that leaves at each request for its
// opening, and then returns. Few of its results count, because auditors ask often and it may return
// only three times in a term.
func TestCheatThatLeavesBeforeAuditsGainsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := auditedConfig(7, 120)
		config.ProbationSteps = 40
		w := newWorld(t, config)
		var honest []*member
		for i := range 6 {
			honest = append(honest, w.launch(i, audited(nil)))
		}
		cheat := w.launch(6, func(o *options) {
			turnsSign(o)
			backend, id := o.Backend, coordinator.ClientID(o.Key.ID())
			opens(o, func(identity.ID, []byte) ([]byte, error) {
				go func() { _ = backend.Submit(context.Background(), coordinator.Withdraw{Client: id}) }()
				return nil, errRefusesToOpen
			})
		})
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		finishEqual(w, honest...)
		for _, e := range w.host.State().Authority.Ejections {
			if identity.ID(e.Client) != cheat.id {
				t.Errorf("ejected: %v", e)
			}
		}
		counted := 0
		for _, a := range all[event.Applied](cheat) {
			if a.OwnCounted {
				counted++
			}
		}
		if t.Logf("%d of its results counted", counted); counted > 20 {
			t.Errorf("%d of its results counted", counted)
		}
	})
}

// TestSlowAuditors checks that members that take too long to recompute, or never get the tokens of
// other members, are not punished.
func TestSlowAuditors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(6, 30))
		var members []*member
		for i := range 6 {
			members = append(members, w.launch(i, func(o *options) {
				audited(func(a *clienttest.Audited) { a.RecomputeTime = time.Hour })(o)
				if i < 3 {
					o.Data = starved{given: make(map[assign.BatchID]bool)}
				}
			}))
		}
		late := watch(w)
		finishEqual(w, members...)
		checkNobodyAccused(t, w, members)
		if outcomes := found(members); outcomes["passed"] > 0 || len(late) > 0 {
			t.Errorf("audits %v; found late: %v", outcomes, late)
		}
	})
}

// otherTokens is a data server that gives one member different tokens, and signs a receipt for
// them.
type otherTokens struct {
	clienttest.Data
	key   identity.Key
	shift int32
}

func (d otherTokens) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	b, err := d.Data.Batch(ctx, id)
	for _, s := range b.Sequences {
		s[0] += d.shift
	}
	receipt := data.SignReceipt(d.key, [32]byte{1}, []assign.BatchID{id}, b.Hash())
	b.Receipt = &receipt
	return b, err
}

// TestFalseDataConvictsNoMember checks a data server that sends false data to one of six members. No member is
// convicted, because the server's receipt proves that the data is false.
func TestFalseDataConvictsNoMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(6, 60))
		var members []*member
		for i := range 6 {
			members = append(members, w.launch(i, func(o *options) {
				audited(nil)(o)
				server := otherTokens{key: clienttest.Key(100)}
				if i == 3 {
					server.shift = 1
				}
				o.Data = server
			}))
		}
		late := watch(w)
		finishEqual(w, members...)
		checkNobodyAccused(t, w, members)
		if outcomes := found(members); outcomes["other data"] == 0 || outcomes["passed"] == 0 || len(late) > 0 {
			t.Errorf("audits %v; found late: %v", outcomes, late)
		}
	})
}

// TestNewcomersMomentum checks that a newcomer whose results claim to continue from a step before
// its arrival is ejected by the older members.
func TestNewcomersMomentum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := auditedConfig(6, 20)
		config.TotalSteps = 120
		w := newWorld(t, config)
		var honest []*member
		for i := range 6 {
			honest = append(honest, w.launch(i, audited(nil)))
		}
		w.until("some rounds", func(s *coordinator.State) bool { return s.Progress.Step == 10 })
		cheat := w.launch(6, audited(func(a *clienttest.Audited) {
			a.Forge = func(h *codec.Header) {
				h.Previous = 9 // before it joined
			}
		}))
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		finishEqual(w, honest...)
		var ejected []identity.ID
		for _, m := range honest {
			for _, e := range all[event.Ejected](m) {
				if e.Client != cheat.id.String() {
					t.Errorf("ejected: %+v", e)
				}
				ejected = append(ejected, cheat.id)
			}
		}
		if len(ejected) == 0 {
			t.Errorf("the newcomer was not ejected: audits %v", found(honest))
		}
	})
}
