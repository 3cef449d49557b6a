package client

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/audit/toy"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/clienttest"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
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
		config := auditedConfig(6, 100)
		config.VerificationPercent = 50
		config.ProbationSteps = 98 // so the founders have theirs behind them when it joins
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

// TestPrintsAtTheLimit lets a verifier seal and reveal prints that its own gradient, and that of jurors
// with the same bits, just allows, and that of the trainer, by a hair another one, does not: nobody is
// accused of that. It would lose its seat to a jury that finds the prints in order.
func TestPrintsAtTheLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes minutes of it")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(7, 20))
		var honest []*member
		for i := range 6 {
			honest = append(honest, w.launch(i, audited(func(a *clienttest.Audited) {
				a.Cheat = func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, 1-2e-7) } // rounding
			})))
		}
		liar := &bordering{world: w, me: clienttest.Key(6).ID(), exams: map[uint32]*audit.Exam{}}
		w.launch(6, func(o *options) {
			audited(func(a *clienttest.Audited) { a.Guess = liar.note })(o)
			o.Network = &answering{Network: o.Network, protocol: audits.ReportProtocol, answer: func(_ identity.ID, b []byte) ([]byte, error) { return liar.change(b) }}
			liar.Network, liar.Backend = o.Network, o.Backend
			o.Network, o.Backend = liar, &acting{Backend: o.Backend, act: liar.seal}
		})
		w.until("the end", func(s *coordinator.State) bool {
			return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
		})
		if e := w.host.State().Authority.Ejections; len(e) > 0 {
			t.Errorf("ejected: %v", e)
		}
		for _, m := range honest {
			for _, a := range all[event.Accused](m) {
				if a.Fault == coordinator.FaultPrints.String() || a.Fault == coordinator.FaultResult.String() {
					t.Errorf("%+v", a)
				}
			}
		}
		if liar.sealed.Load() < 2 {
			t.Errorf("it sealed %d times", liar.sealed.Load())
		}
	})
}

// bordering is a verifier whose prints are as far from its gradient as jurors allow.
type bordering struct {
	env.Network
	Backend env.Backend
	world   *world
	me      identity.ID
	sealed  atomic.Int32

	mu    sync.Mutex
	exams map[uint32]*audit.Exam // by step of the result
}

var borderSalt = [32]byte{7}

func (b *bordering) note(x env.Examination, gradient []float32) []float32 {
	exam, err := toy.Exam(x.Step, x.Trainer, x.Chunks, gradient)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.exams[x.Step] = exam
	}
	return gradient
}

func (b *bordering) seal(ctx context.Context, a coordinator.Action) (bool, error) {
	seal, ok := a.(coordinator.SealVerdict)
	b.mu.Lock()
	exam := b.exams[seal.Step-min(seal.Step, 1)]
	b.mu.Unlock()
	if !ok || exam == nil {
		return false, nil
	}
	state := b.world.host.State()
	prints := atTheLimit(exam.Prints(audit.PrintSeed(state.RoundOfStep(seal.Step).Seed, coordinator.ClientID(b.me))))
	seal.Seal = audit.Seal(audit.SealPrints, borderSalt, audit.EncodePrints(prints))
	b.sealed.Add(1)
	return true, b.Backend.Submit(ctx, seal)
}

func (b *bordering) Put(report []byte) ([32]byte, error) {
	changed, err := b.change(report)
	if err != nil {
		changed = report // a result, or an opening
	}
	return b.Network.Put(changed)
}

func (b *bordering) change(encoded []byte) ([]byte, error) {
	report, err := audits.DecodeReport(encoded)
	if err != nil || report.Nothing() {
		return encoded, err
	}
	report.Salt = borderSalt
	for i, p := range atTheLimit(report.Prints()) {
		report.Verdict.Chunks[i].Print = p
	}
	return report.Encode()
}

// atTheLimit moves prints until one more bit would be too much for a jury.
func atTheLimit(prints []audit.Print) []audit.Print {
	out := slices.Clone(prints)
	for i := range out {
		p := &out[i]
		allowed := func() bool {
			return audit.Alike(prints[i:i+1], out[i:i+1], audit.PrintsWithin) == 1
		}
		for p.Length /= 1 - audit.PrintsWithin; !allowed(); {
			p.Length = math.Nextafter32(p.Length, 0)
		}
		for p.Projection += audit.PrintsWithin * p.Length; !allowed(); {
			p.Projection = math.Nextafter32(p.Projection, -math.MaxFloat32)
		}
	}
	return out
}
