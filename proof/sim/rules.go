package sim

import (
	"fmt"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// rules are where a test of the checker can break the protocol. The zero rules are the
// right ones: what the packages under test do.
type rules struct {
	apply        func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error
	tick         func(s *coordinator.State, now uint64, draw [32]byte) bool
	due          func(s *coordinator.State, now uint64) (at uint64, ok bool)
	unproved     bool // proofs that two results were signed are not verified
	holdsProofs  bool // honest witnesses wait for the last result
	deaf         bool // clients do not hear of other histories
	accusesEarly bool // a member that is asked for an opening once in vain is accused
	forgets      bool // openings are kept for one round
	restarts     bool // with links: a transfer that ends early begins again at byte 0, and an opening is one transfer
	servesAll    bool // with links: handlers of requests do not wait until the one before has been sent
	lateIsSilent bool // with links: a juror votes that a member is silent as soon as one of its answers is late
	keeps        bool // what was foreseen stays in the model when it does not come true
	reports      bool // honest members report a model with each witness proof, though they do not keep it
	// origin changes from where the host thinks that an action comes.
	origin func(h *host, a coordinator.Action, from core.Origin) core.Origin
	// times changes how long the host waits.
	times func(*core.Times)
	// finish is instead of the order in which the host writes, publishes and answers.
	finish func(h *host)
	// payloads changes what a client applies.
	payloads func(p *process, step uint32, payloads [][]byte) [][]byte
	// trains changes what a client makes a result from.
	trains func(m *model.Model)
	// verified sees every result that a client verifies.
	verified func(p *process, step uint32, batch assign.BatchID, payload []byte)
}

func (r *rules) doApply(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
	if r.apply != nil {
		return r.apply(s, from, nonce, a)
	}
	return s.Apply(from, nonce, a)
}

// verifies reports whether an action is what package wire would open.
func (r *rules) verifies(a coordinator.Action) bool {
	proof, is := a.(coordinator.Equivocation)
	return !is || r.unproved || wire.Proves(proof, [32]byte{})
}

func (r *rules) from(h *host, a coordinator.Action, from core.Origin) core.Origin {
	if r.origin != nil {
		return r.origin(h, a, from)
	}
	return from
}

func (r *rules) doDue(s *coordinator.State, now uint64) (at uint64, ok bool) {
	if r.due != nil {
		return r.due(s, now)
	}
	return s.Due(now)
}

func (r *rules) doTick(s *coordinator.State, now uint64, draw [32]byte) bool {
	if r.tick != nil {
		return r.tick(s, now, draw)
	}
	return s.Tick(now, draw)
}

// redo does to a state what a record did.
func (r *rules) redo(s *coordinator.State, record follow.Record) error {
	if a := record.Action; record.Kind == follow.KindAction {
		return r.doApply(s, coordinator.ClientID(a.From), a.Nonce, a.Action)
	}
	if !r.doTick(s, record.Now, record.Draw) {
		return fmt.Errorf("%w: a tick without effect", follow.ErrRecord)
	}
	return nil
}
