package verify

import (
	"encoding/hex"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/record/follow"
)

// serverLog is the log of a run on a server.
type serverLog struct{ follower *follow.Follower }

func (l *serverLog) take(number uint64, payload []byte, see func(history.Entry, *coordinator.State)) (signatures int, err error) {
	record, log, err := follow.Take(l.follower, payload)
	if l.follower = log; err != nil {
		return 0, err
	}
	if record.Kind == follow.KindAction || record.Kind == follow.KindGenesis {
		signatures = 1
	}
	if e, tells := history.EntryOf(number, record); tells {
		see(e, &l.follower.State)
	}
	return signatures, nil
}

func (l *serverLog) state() *coordinator.State {
	if l.follower == nil {
		return nil
	}
	return &l.follower.State
}

func (l *serverLog) describe(r *Report) {
	run := l.follower.Run()
	r.Run, r.Host = hex.EncodeToString(run[:]), identity.ID(l.follower.State.Host).String()
}

func (l *serverLog) run() [32]byte { return l.follower.Run() }

func (l *serverLog) costs() *history.Costs { return nil }

func (l *serverLog) event([32]byte) uint64 { return 0 }

// chainLog is the archive of a run on a chain.
type chainLog struct {
	replayer archive.Replayer
	paid     history.Payments
	heads    [][32]byte // after each event, starting with the genesis
}

func (l *chainLog) take(_ uint64, payload []byte, see func(history.Entry, *coordinator.State)) (signatures int, err error) {
	before := l.replayer.Signatures()
	l.replayer.Visit = func(step archive.Step, s *coordinator.State) error {
		if step.Event.Instruction == event.Genesis {
			l.heads = l.heads[:0] // the account was created again
		}
		l.heads = append(l.heads, step.Event.Head)
		l.paid.See(step)
		see(history.EntryOfStep(step), s)
		return nil
	}
	err = l.replayer.Take(payload)
	return l.replayer.Signatures() - before, err
}

func (l *chainLog) state() *coordinator.State {
	state, _ := l.replayer.State()
	return state
}

func (l *chainLog) describe(r *Report) {
	s := l.replayer.Summary()
	run := s.RunHash()
	r.Run = hex.EncodeToString(run[:])
	r.Chain = &Chain{Program: s.Program.String(), Account: s.Run.String(), Began: s.Main.String(), Genesis: s.Genesis.String(), Event: s.Sequence, Head: hex.EncodeToString(s.Head[:])}
}

func (l *chainLog) run() [32]byte { return [32]byte{} }

func (l *chainLog) event(head [32]byte) uint64 { return uint64(slices.Index(l.heads, head) + 1) }

func (l *chainLog) costs() *history.Costs {
	costs := l.paid.Costs(l.replayer.Summary())
	return &costs
}
