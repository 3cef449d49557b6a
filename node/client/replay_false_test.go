package client

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

const maxResultsAnswer = 4 << 20 // bytes, as documented in docs/p2p.md

type handler func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)

// falseResults is a network that changes its answers to requests for counted results.
type falseResults struct {
	env.Network
	falsify func(rounds []exchange.AppliedRound) []byte
}

func (l *falseResults) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol != exchange.ResultsProtocol {
		l.Network.Handle(protocol, maxRequest, handle)
		return
	}
	l.Network.Handle(protocol, maxRequest, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		answer, err := handle(ctx, from, request)
		if err != nil {
			return nil, err
		}
		rounds, _, err := exchange.AskResults(ctx, &desk{answer: answer}, from, 3, 6, [32]byte{})
		if err != nil {
			return nil, err
		}
		return l.falsify(rounds), nil
	})
}

// desk is a peer that answers requests for counted results, either from a recorded answer or by its
// handler, whose answer it records.
type desk struct {
	answer []byte
	handle handler
}

func (d *desk) Request(ctx context.Context, from identity.ID, _ string, request []byte, _ int) (answer []byte, err error) {
	if d.handle != nil {
		d.answer, err = d.handle(ctx, from, request)
	}
	return d.answer, err
}

func (d *desk) Handle(protocol string, _ int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol == exchange.ResultsProtocol {
		d.handle = handle
	}
}

// answerOf returns the answer of a member that reports these rounds after step 3.
func answerOf(t *testing.T, rounds []exchange.AppliedRound) []byte {
	store, d := exchange.NewStore(func([32]byte) {}), &desk{}
	store.Forget(1<<62, 1<<62) // bytes
	for i, round := range rounds {
		round.Step = uint32(4 + i)
		store.Remember(round)
	}
	store.Serve(d)
	_, _, _ = exchange.AskResults(t.Context(), d, identity.ID{}, 3, 6, [32]byte{}) // records the answer, valid or not
	if len(d.answer) == 0 {
		t.Error("the Byzantine peer has no answer")
	}
	return d.answer
}

// TestFalseListFallsBack checks that the client ends with the run's model, whichever results all
// peers claim to be counted.
func TestFalseListFallsBack(t *testing.T) {
	change := func(f func(rounds []exchange.AppliedRound)) func(rounds []exchange.AppliedRound) []byte {
		return func(rounds []exchange.AppliedRound) []byte { f(rounds); return answerOf(t, rounds) }
	}
	for name, falsify := range map[string]func(rounds []exchange.AppliedRound) []byte{
		"another commitment":   change(func(r []exchange.AppliedRound) { r[1].Results[0].Commitment[0]++ }),
		"another trainer":      change(func(r []exchange.AppliedRound) { r[1].Results[0].Owner[0]++ }),
		"another size":         change(func(r []exchange.AppliedRound) { r[1].Results[0].Size++ }),
		"an absurd size":       change(func(r []exchange.AppliedRound) { r[1].Results[0].Size = 1<<32 - 1 }),
		"more than is allowed": change(func(r []exchange.AppliedRound) { r[1].Results[0].Size = 1<<10 + 1 }),
		"another vote":         change(func(r []exchange.AppliedRound) { r[1].Results[0].Vote = 3 }),
		"a result left out":    change(func(r []exchange.AppliedRound) { r[2].Results = r[2].Results[1:] }),
		"nothing counted":      change(func(r []exchange.AppliedRound) { r[0].Results, r[1].Results, r[2].Results = nil, nil, nil }),
		"another cold start":   change(func(r []exchange.AppliedRound) { r[0].ColdSteps = 9 }),
		"rounds swapped":       change(func(r []exchange.AppliedRound) { r[0], r[1] = r[1], r[0] }),
		"malformed":            func([]exchange.AppliedRound) []byte { return []byte{1, 2, 3} },
		"too long":             func([]exchange.AppliedRound) []byte { return make([]byte, maxResultsAnswer+1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, longer(3))
				back := crashAndReturn(t, w, func(o *options) { large(o); o.Network = &falseResults{o.Network, falsify} }, func(*options) {})
				if ready := all[event.Ready](back); len(ready) == 0 || ready[0].Source != "peers" || ready[0].Step != 6 {
					t.Errorf("ready: %+v", ready)
				}
			})
		})
	}
}

// TestListOfMostPeersIsTriedFirst checks that the list of most peers is tried first.
func TestListOfMostPeersIsTriedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longer(4))
		a, b := w.launch(0, large), w.launch(1, large)
		d := w.launch(3, func(o *options) {
			large(o)
			o.Network = &falseResults{o.Network, func(rounds []exchange.AppliedRound) []byte {
				rounds[0].Results[0].Commitment[0]++
				return answerOf(t, rounds)
			}}
		})
		c := w.launch(2, saving(w, "saved"))
		w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Step == 4 && s.RunState == coordinator.RoundTrain })
		c.crash()
		w.until("the end of the epoch", func(s *coordinator.State) bool { return s.Progress.Step == 7 })
		back := w.launch(2, saving(w, "saved"))
		finishEqual(w, a, b, d, back)
		if ready := all[event.Ready](back); len(ready) == 0 || ready[0].Source != "results" {
			t.Errorf("ready: %+v", ready)
		}
	})
}
