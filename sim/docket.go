package sim

import (
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// docket is who audits whom in a round. Who does is drawn from the round and the one before alone, so
// it is worked out once for all clients that are told of the same two.
type docket struct {
	round, before coordinator.Round // as they were drawn; what clients did in them is not looked at
	target        map[coordinator.ClientID]coordinator.ClientID
	verifiers     map[coordinator.ClientID][]coordinator.ClientID
	now           *coordinator.Round // of the state that was asked about
}

// dockets are those of the newest rounds, of each history.
type dockets struct{ known []docket }

// keptDockets is more than there are rounds in two histories that somebody may be accused in.
const keptDockets = 16

// of returns the docket of a step's round; one without anybody if the state does not have it.
func (d *dockets) of(s *coordinator.State, step uint32) docket {
	round, before := s.RoundOfStep(step), s.RoundOfStep(step-1)
	if round == nil || before == nil {
		return docket{}
	}
	i := slices.IndexFunc(d.known, func(k docket) bool { return sameDraw(&k.round, round) && sameDraw(&k.before, before) })
	if i < 0 {
		if len(d.known) == keptDockets {
			d.known = slices.Delete(d.known, 0, 1)
		}
		i, d.known = len(d.known), append(d.known, newDocket(s, round, before))
	}
	found := d.known[i]
	found.now = round
	return found
}

func newDocket(s *coordinator.State, round, before *coordinator.Round) docket {
	d := docket{
		round: drawOf(round), before: drawOf(before),
		target:    make(map[coordinator.ClientID]coordinator.ClientID),
		verifiers: make(map[coordinator.ClientID][]coordinator.ClientID),
	}
	for _, id := range round.Members {
		audit, ok := s.AuditOf(round.Step, id)
		if !ok {
			continue
		}
		d.target[id] = audit.Trainer
		if d.verifiers[audit.Trainer] == nil {
			d.verifiers[audit.Trainer] = s.Auditors(round.Step, audit.Trainer)
		}
	}
	return d
}

func drawOf(r *coordinator.Round) coordinator.Round {
	return coordinator.Round{Step: r.Step, Seed: r.Seed, BatchSeed: r.BatchSeed, BatchSize: r.BatchSize, Members: slices.Clone(r.Members)}
}

func sameDraw(a, b *coordinator.Round) bool {
	return a.Step == b.Step && a.Seed == b.Seed && a.BatchSeed == b.BatchSeed && a.BatchSize == b.BatchSize && slices.Equal(a.Members, b.Members)
}

// audit is State.AuditOf.
func (d docket) audit(id coordinator.ClientID) (coordinator.Audit, bool) {
	trainer, ok := d.target[id]
	if !ok {
		return coordinator.Audit{}, false
	}
	member, ok := d.now.MemberIndex(id)
	return coordinator.Audit{Step: d.now.Step, Trainer: trainer, Sealed: d.now.Sealed.Has(member), Judged: d.now.Judged.Has(member)}, ok
}

// auditors is State.Auditors.
func (d docket) auditors(trainer coordinator.ClientID) []coordinator.ClientID {
	return d.verifiers[trainer]
}

// audits is State.Audits of the process.
func (p *process) audits(s *coordinator.State) (audits []coordinator.Audit) {
	me := coordinator.ClientID(p.machine.id)
	if client, ok := s.Member(me); !ok || client.State != coordinator.Healthy || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
		return nil
	}
	for step := s.Progress.Step - 1; step <= s.Progress.Step; step++ {
		if audit, ok := p.world.dockets.of(s, step).audit(me); ok {
			audits = append(audits, audit)
		}
	}
	return audits
}
