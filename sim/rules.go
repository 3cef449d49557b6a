package sim

import (
	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
)

// rules are where a test of the checker can break the protocol. The zero rules are the
// right ones: what the packages under test do.
type rules struct {
	apply       func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error
	tick        func(s *coordinator.State, now uint64, draw [32]byte) bool
	due         func(s *coordinator.State, now uint64) (at uint64, ok bool)
	refuse      func(h *host, from coordinator.ClientID, a coordinator.Action) error // before apply
	holdsProofs bool                                                                 // honest witnesses wait for the last result
	deaf        bool                                                                 // clients do not hear of other histories
	impatient   bool                                                                 // who is asked for an opening once in vain is accused
	forgets     bool                                                                 // openings are kept for one round
	answerEarly bool                                                                 // the host acknowledges what is not on the disk
	// payloads changes what a client applies.
	payloads func(p *process, step uint32, payloads [][]byte) [][]byte
	// trains changes what a client makes a result from.
	trains func(m *model)
	// verified sees every result that a client verifies.
	verified func(p *process, step uint32, batch assign.BatchID, payload []byte)
}

func (r *rules) doApply(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
	if r.apply != nil {
		return r.apply(s, from, nonce, a)
	}
	return s.Apply(from, nonce, a)
}

func (r *rules) doRefuse(h *host, from coordinator.ClientID, a coordinator.Action) error {
	if r.refuse != nil {
		return r.refuse(h, from, a)
	}
	return h.refuse(from, a)
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
