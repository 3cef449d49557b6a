package client

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/clienttest"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// TestVerifiersWithTwoFaces lets a verifier show the trainer whom it audited something else than a jury,
// which sees the truth: nobody honest loses its seat for having said so.
func TestVerifiersWithTwoFaces(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes minutes of it")
	}
	for name, change := range map[string]func(b []byte){
		"another salt":   func(b []byte) { b[0] ^= 1 },
		"another length": func(b []byte) { b[len(b)-10] ^= 64 }, // of the last chunk
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, auditedConfig(7, 20))
				var honest []*member
				for i := range 6 {
					honest = append(honest, w.launch(i, audited(nil)))
				}
				w.launch(6, func(o *options) {
					audited(nil)(o)
					o.Network = &answering{Network: o.Network, protocol: audits.ReportProtocol, answer: func(_ identity.ID, b []byte) ([]byte, error) {
						change(b)
						return b, nil
					}}
				})
				w.until("the end", func(s *coordinator.State) bool {
					return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
				})
				if e := w.host.State().Authority.Ejections; len(e) > 0 {
					t.Errorf("ejected: %v", e)
				}
				accused := 0
				for _, m := range honest {
					for _, a := range all[event.Accused](m) {
						if accused++; a.Fault != coordinator.FaultUnrevealed.String() {
							t.Errorf("%+v", a)
						}
					}
				}
				if accused == 0 {
					t.Error("nobody said anything")
				}
			})
		})
	}
}

// without is a network that never gets some blobs.
type without struct {
	env.Network
	blobs *sync.Map
}

func (n *without) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if _, found := n.blobs.Load(hash); found {
		return nil, errRefusesToOpen
	}
	return n.Network.Fetch(ctx, hash, size, holders)
}

// TestWhoHasNothingToAuditSaysSo lets a newcomer on probation keep its results from one member, and say
// that this verifier revealed nothing: it has nothing, which it may, and keeps its seat.
func TestWhoHasNothingToAuditSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := auditedConfig(6, 60)
		config.ProbationSteps = 58 // so the founders have theirs behind them when it joins
		w := newWorld(t, config)
		victim, newcomer := coordinator.ClientID(clienttest.Key(2).ID()), coordinator.ClientID(clienttest.Key(6).ID())
		var kept sync.Map // commitments of the newcomer's results
		w.hub.DropGossip = func(from, _ identity.ID, message []byte) bool {
			if _, a, err := wire.OpenAnnouncement(message, clienttest.Run); err == nil && from == identity.ID(newcomer) {
				kept.Store(a.Blob, true)
			}
			return false
		}
		var members []*member
		for i := range 6 {
			members = append(members, w.launch(i, func(o *options) {
				if audited(nil)(o); i == 2 {
					o.Network = &without{o.Network, &kept}
				}
			}))
		}
		w.until("a round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		var accused atomic.Uint32
		members = append(members, w.launch(6, func(o *options) {
			audited(nil)(o)
			honest := o.Backend
			o.Backend = blink(t.Context(), honest, func(s *coordinator.State) bool {
				for i := range s.Epoch.Rounds {
					r := &s.Epoch.Rounds[i]
					member, ok := r.MemberIndex(victim)
					if !ok || !r.Judged.Has(member) || !slices.Contains(s.Auditors(r.Step, newcomer), victim) {
						continue
					}
					if honest.Submit(context.Background(), coordinator.Accuse{Step: r.Step, Client: victim, Fault: coordinator.FaultUnrevealed}) == nil {
						accused.Store(r.Step)
					}
				}
				return false
			})
		}))
		w.until("the end", func(s *coordinator.State) bool {
			if m, ok := s.Member(victim); ok && (m.State != coordinator.Healthy || m.Returns > 0) {
				t.Errorf("step %d: %+v", s.Progress.Step, m)
				return true
			}
			return s.RunState == coordinator.Finished
		})
		if accused.Load() == 0 {
			t.Error("it was not accused")
		}
		if e := w.host.State().Authority.Ejections; len(e) > 0 {
			t.Errorf("ejected: %v", e)
		}
		said := 0
		for _, v := range all[event.Verdict](members[2]) {
			if v.Outcome == "nothing to audit" {
				said++
			}
		}
		acquitted := 0
		for _, m := range members {
			for _, v := range all[event.Voted](m) {
				if v.Guilty {
					t.Errorf("%+v", v)
				}
				acquitted++
			}
		}
		if said == 0 || acquitted == 0 {
			t.Errorf("it had nothing to audit %d times, %d votes", said, acquitted)
		}
	})
}
