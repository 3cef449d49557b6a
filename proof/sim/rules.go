package sim

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// rules let a test of the checker break the protocol. The zero value breaks nothing.
type rules struct {
	apply        func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error
	tick         func(s *coordinator.State, now uint64, draw [32]byte) bool
	due          func(s *coordinator.State, now uint64) (at uint64, ok bool)
	unproved     bool // proofs that two results were signed are not verified
	holdsProofs  bool // honest witnesses wait for the last result
	deaf         bool // clients ignore other histories
	accusesEarly bool // a member is accused after one failed request for an opening
	forgets      bool // openings are kept for one round
	restarts     bool // with links: a transfer that ends early restarts at byte 0, and an opening is one transfer
	servesAll    bool // with links: handlers of requests do not wait until the previous part was sent
	lateIsSilent bool // with links: a juror votes that a member is silent as soon as one of its answers is late
	keeps        bool // mispredicted results stay in the model
	reports      bool // honest members report a model with each witness proof, though they do not keep it
	// origin changes the origin of an action as seen by the host.
	origin func(h *host, a coordinator.Action, from core.Origin) core.Origin
	// times changes the host's times.
	times func(*core.Times)
	// finish replaces the order in which the host writes, publishes and answers.
	finish func(h *host)
	// payloads changes the results that a client applies.
	payloads func(p *process, step uint32, payloads [][]byte) [][]byte
	// trains changes the model from which a client makes a result.
	trains func(m *model.Model)
	// verified is called with every result that a client verifies.
	verified func(p *process, step uint32, batch assign.BatchID, payload []byte)
	// setup changes the plan and the cast of a run before it starts.
	setup func(w *world)
	// moved is called after a change of the host's run state.
	moved func(h *host, before coordinator.RunState)
	// machines replaces the speeds of machines; nil: random times.
	machines machines
	// submits changes an action that a client submits.
	submits func(p *process, a coordinator.Action) coordinator.Action
}

// machines are the speeds of a run's machines.
type machines interface {
	// SeqLen returns the number of tokens of a sequence.
	SeqLen() int
	// Takes returns the time that a machine needs for the gradient of a batch.
	Takes(m *machine, step uint32, sequences int) int64
	// Delivers is called when a gradient is complete and its round has started. If it returns an error, the
	// machine has no result.
	Delivers(ctx context.Context, p *process, step uint32) error
}

func (r *rules) doApply(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
	if r.apply != nil {
		return r.apply(s, from, nonce, a)
	}
	return s.Apply(from, nonce, a)
}

// verifies reports whether package wire would accept an action.
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

// redo applies a record to a state.
func (r *rules) redo(s *coordinator.State, record follow.Record) error {
	if a := record.Action; record.Kind == follow.KindAction {
		return r.doApply(s, coordinator.ClientID(a.From), a.Nonce, a.Action)
	}
	if !r.doTick(s, record.Now, record.Draw) {
		return fmt.Errorf("%w: a tick without effect", follow.ErrRecord)
	}
	return nil
}
