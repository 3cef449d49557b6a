package sim

import (
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/wire"
)

// notesStart signs the head of the journal when its newest entry began a round.
func (h *host) notesStart() {
	if h.state.RunState != coordinator.RoundTrain {
		return
	}
	step := h.state.Progress.Step
	h.starts[step] = wire.Head{Index: h.disk.count, Step: step, Hash: h.disk.last}.Sign(hostKey, [32]byte{})
}

// startsOf returns the heads at the starts of a state's rounds.
func (h *host) startsOf(s *coordinator.State) []wire.Head {
	starts := make([]wire.Head, 0, len(s.Epoch.Rounds))
	for _, round := range s.Epoch.Rounds {
		starts = append(starts, h.starts[round.Step])
	}
	return starts
}

// connected reports whether a client's connection stands and this is the history that it is shown.
// The gang acts in all of them.
func (h *host) connected(i int) bool {
	w := h.world
	m := w.machines[i]
	return h.up && (m.history() == h || m.lies(Gang)) && (w.healed || w.cutHost[i] == 0) && m.process != nil
}
