package main

import (
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/ledger"
)

// plan is the log's information about one round.
type plan struct {
	round       coordinator.Round
	assignments []assign.Assignment
	elected     []string // witnesses
	proofs      int      // number of accepted proofs
}

// quorum reports whether enough witnesses sent proofs. Otherwise nothing in the round counts.
func (p *plan) quorum() bool { return p.proofs >= int(p.round.WitnessesNeeded) }

// owner returns the trainer of a batch, and whether its result does not count in any case.
func (p *plan) owner(batch event.Batch) (id string, warming bool) {
	if p == nil {
		return "", false
	}
	for _, a := range p.assignments {
		if (event.Batch{a.Batch.Start, a.Batch.End}) == batch {
			return identity.ID(p.round.Members[a.Member]).String(), p.round.Warming.Has(a.Member)
		}
	}
	return "", false
}

// seen is a member and a step.
type seen struct {
	id   string
	step uint32
}

// record is the information in a run's log.
type record struct {
	plans   map[uint32]*plan // by step
	steps   []uint32         // in order of their start
	dropped map[seen]bool
	late    map[seen]bool
	accused map[seen]string // key of the accuser
	book    ledger.Ledger
	final   coordinator.State
}

// readRecord replays a journal or an archive. It returns an error if the log does not verify.
func readRecord(path string) (*record, error) {
	r := &record{plans: map[uint32]*plan{}, dropped: map[seen]bool{}, late: map[seen]bool{}, accused: map[seen]string{}}
	if archive.Is(path) {
		final, _, err := archive.Replay(path, func(_ archive.Step, s *coordinator.State) error { return r.see(s) })
		r.final = final
		return r, err
	}
	followed, _, err := server.Replay(path, func(_ follow.Record, s *coordinator.State) error { return r.see(s) })
	if err == nil {
		r.final = followed.State
	}
	return r, err
}

// see processes a state of the run.
func (r *record) see(s *coordinator.State) error {
	if err := r.book.See(s); err != nil {
		return err
	}
	step := s.Progress.Step
	for _, t := range s.Trials {
		r.accused[seen{identity.ID(t.Accused).String(), t.Step}] = identity.ID(t.Accuser).String()
	}
	for _, c := range s.Epoch.Exited {
		if c.State == coordinator.Dropped {
			r.dropped[seen{identity.ID(c.ID).String(), s.Epoch.StartStep + c.ExitedHeight}] = true
		}
	}
	for _, c := range s.Epoch.Clients {
		if c.Lateness != coordinator.OnTime {
			r.late[seen{identity.ID(c.ID).String(), step}] = true
		}
	}
	for i := range s.Epoch.Rounds {
		if one := r.plans[s.Epoch.Rounds[i].Step]; one != nil {
			one.proofs = max(one.proofs, len(s.Epoch.Rounds[i].Witnesses))
		}
	}
	round := s.CurrentRound()
	if round == nil || s.RunState != coordinator.RoundTrain {
		return nil
	}
	if _, known := r.plans[round.Step]; known {
		return nil
	}
	kept := *round
	kept.Members, kept.Witnesses = slices.Clone(round.Members), nil
	one := &plan{round: kept, assignments: round.Assignments(s.Config)}
	for _, member := range round.ElectedWitnesses(s.Config) {
		one.elected = append(one.elected, identity.ID(round.Members[member]).String())
	}
	r.plans[round.Step] = one
	r.steps = append(r.steps, round.Step)
	return nil
}

// wasLate reports whether a member was found late in a step or in one of the two following steps.
func (r *record) wasLate(id string, step uint32) bool {
	return r.late[seen{id, step}] || r.late[seen{id, step + 1}] || r.late[seen{id, step + 2}]
}
