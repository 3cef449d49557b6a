package dashtest

import (
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// audit makes members that do not train in this round accuse other members. They accuse the cheat,
// unless it is already on trial. The slanderer accuses a trainer of the previous round.
func (p *player) audit() error {
	s := &p.state
	now, before := s.CurrentRound(), s.RoundOfStep(s.Progress.Step-1)
	if before == nil || now.Step == 1 {
		return nil
	}
	percent := int(s.Config.VerificationPercent)
	trained := assign.Trainers(before.BatchSeed, len(before.Members), percent)
	trains := assign.Trainers(now.BatchSeed, len(now.Members), percent)
	for i, id := range now.Members {
		accuser := p.index[id]
		if slices.Contains(trains, i) || p.hangs(accuser) {
			continue
		}
		for _, at := range trained {
			accused := p.index[before.Members[at]]
			slanders := p.o.Slander > 0 && accuser == p.o.Slander
			tried := slices.ContainsFunc(s.Trials, func(t coordinator.Trial) bool { return t.Accused == p.ids[accused] })
			if accused == accuser || tried || !slanders && (p.o.Cheat == 0 || accused != p.o.Cheat) {
				continue
			}
			if err := p.act(accuser, coordinator.Accuse{Step: before.Step, Client: p.ids[accused], Fault: coordinator.FaultResult}); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// judge makes jurors vote.
func (p *player) judge() error {
	s := &p.state
	for _, t := range slices.Clone(s.Trials) {
		for _, c := range slices.Clone(s.Epoch.Clients) {
			juror := p.index[c.ID]
			if p.o.Hung || p.hangs(juror) || c.Juror&^c.Voted&(1<<t.Slot) == 0 {
				continue
			}
			vote := coordinator.Vote{Step: t.Step, Client: t.Accused, Guilty: p.o.Cheat > 0 && p.index[t.Accused] == p.o.Cheat}
			if err := p.act(juror, vote); err != nil {
				return err
			}
		}
	}
	return nil
}
