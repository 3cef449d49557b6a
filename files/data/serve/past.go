package serve

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// pastRounds is the number of newest finished rounds whose batches every member may get. A member
// needs them to audit results of these rounds, and to judge them as a juror.
const pastRounds = 64

// Limits of the batches of other members that one member may get, in multiples of a round's
// batches. The allowance grows by sharePerRound with each finished round, up to maxShare.
const (
	sharePerRound = 2
	maxShare      = 8
)

// past contains the server's records of finished rounds and their members. A state of the run keeps
// them for a shorter time.
type past struct {
	notes   []note // in ascending order of steps
	readers map[coordinator.ClientID]*reader
	newest  uint32           // step of the newest finished round; 0: none
	over    uint64           // first sequence of the running or next round
	allowed []assign.BatchID // batches for readers: of the newest rounds, and of those with a member on trial
}

// note contains the sequences of a round.
type note struct {
	step       uint32
	start, end uint64 // fresh sequences
	size       uint32 // of all its sequences
	retries    []coordinator.Stretch
}

// reader is a member of one of the newest rounds.
type reader struct {
	newest uint32 // step of its newest round
	credit uint64 // number of other members' sequences that it may get
}

// follow processes a newer state.
func (p *past) follow(state *coordinator.State) {
	if state.Config.VerificationPercent == 0 { // no audits
		*p = past{}
		return
	}
	if p.readers == nil {
		p.readers = make(map[coordinator.ClientID]*reader)
	}
	p.over = state.Progress.DataIndex
	for i := range state.Epoch.Rounds {
		r := &state.Epoch.Rounds[i]
		if r.Step >= state.Progress.Step {
			p.over = min(p.over, r.DataIndex)
		} else {
			p.add(note{r.Step, r.DataIndex, r.NextData(), r.BatchSize, r.Retries})
		}
		p.join(r)
	}
	p.expel(state)
	p.forget(state)
}

// add records a finished round.
func (p *past) add(n note) {
	i, known := slices.BinarySearchFunc(p.notes, n.step, func(n note, step uint32) int { return int(int64(n.step) - int64(step)) })
	if known {
		p.notes[i] = n
		return
	}
	p.notes = slices.Insert(p.notes, i, n)
	newer := int64(n.step) - int64(p.newest)
	if newer <= 0 {
		return
	}
	p.newest = n.step
	for _, r := range p.readers {
		r.credit = min(r.credit+sharePerRound*uint64(min(newer, maxShare))*uint64(n.size), maxShare*uint64(n.size))
	}
}

// join makes the members of a round readers.
func (p *past) join(r *coordinator.Round) {
	for _, id := range r.Members {
		if p.readers[id] == nil {
			p.readers[id] = &reader{credit: maxShare * uint64(r.BatchSize)}
		}
		p.readers[id].newest = max(p.readers[id].newest, r.Step)
	}
}

// expel removes readers that were ejected, or left long ago.
func (p *past) expel(state *coordinator.State) {
	for _, clients := range [][]coordinator.Client{state.Epoch.Clients, state.Epoch.Exited, state.Departed} {
		for i := range clients {
			if clients[i].State == coordinator.Ejected {
				delete(p.readers, clients[i].ID)
			}
		}
	}
	for id, r := range p.readers {
		if r.newest+pastRounds <= p.newest {
			delete(p.readers, id)
		}
	}
}

// forget drops the records of old rounds, and computes allowed.
func (p *past) forget(state *coordinator.State) {
	p.allowed = p.allowed[:0]
	if len(p.notes) == 0 {
		return
	}
	first := p.newest - min(p.newest, pastRounds-1)
	p.allowed = append(p.allowed, assign.BatchID{Start: p.startOf(first), End: min(p.over, p.notes[len(p.notes)-1].end)})
	kept, known := map[uint32]bool{}, p.notes[0].step <= first
	for i := range state.Trials {
		step := state.Trials[i].Step
		kept[step], known = true, known && p.knows(step)
		p.allowed = append(p.allowed, assign.BatchID{Start: p.startOf(step), End: min(p.over, p.endOf(step))})
	}
	p.notes = slices.DeleteFunc(p.notes, func(n note) bool { return n.step < first && !kept[n.step] })
	for _, n := range p.notes {
		for _, t := range n.retries {
			p.allowed = append(p.allowed, assign.BatchID{Start: t.Start, End: t.End})
		}
	}
	if start := p.notes[0].start; state.Config.RetryLost && !known && start > 0 {
		p.allowed = append(p.allowed, assign.BatchID{End: start}) // rounds that the server has not seen may have any lost sequences
	}
}

// knows reports whether the server has seen a round.
func (p *past) knows(step uint32) bool {
	return slices.ContainsFunc(p.notes, func(n note) bool { return n.step == step })
}

// startOf returns the first sequence of a round, or a lower one if the server has not seen the
// round, for example because of a restart.
func (p *past) startOf(step uint32) uint64 {
	for _, n := range slices.Backward(p.notes) {
		if n.step <= step {
			return n.start
		}
	}
	oldest := p.notes[0]
	before := uint64(oldest.step-step) * uint64(oldest.size)
	return oldest.start - min(oldest.start, before)
}

// endOf returns the end of a round's sequences, or a higher index if the server has not seen the
// round.
func (p *past) endOf(step uint32) uint64 {
	for i, n := range p.notes {
		switch {
		case n.step == step:
			return n.end
		case n.step > step && i == 0:
			return p.startOf(step + 1)
		case n.step > step:
			return n.start
		}
	}
	return math.MaxUint64
}
