package dashtest

import (
	"errors"
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// audit has members judge whom they audit, and accuse.
func (p *player) audit() error {
	s := &p.state
	for _, id := range s.CurrentRound().Members {
		member := p.index[id]
		for _, a := range s.Audits(id) {
			if a.Judged || p.hangs(member) {
				continue
			}
			trainer := p.index[a.Trainer]
			passed := (p.o.Cheat == 0 || trainer != p.o.Cheat) && (p.o.Slander == 0 || member != p.o.Slander)
			accuse := coordinator.Accuse{Step: a.Step, Client: a.Trainer, Fault: coordinator.FaultResult}
			err := errors.Join(p.act(member, coordinator.SealVerdict{Step: a.Step, Seal: [32]byte{1}}), p.act(member, coordinator.Verdict{Step: a.Step, Passed: passed, Body: [32]byte{2}}))
			if err == nil && !passed && s.MayAccuse(id, accuse) == nil {
				err = p.act(member, accuse)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// judge has the accused open, and jurors vote.
func (p *player) judge() error {
	s := &p.state
	for _, t := range slices.Clone(s.Epoch.Trials) {
		accused := p.index[t.Accused]
		if len(t.Jury) == 0 || p.hangs(accused) {
			continue
		}
		if t.Opening == [32]byte{} {
			if err := p.act(accused, coordinator.Open{Step: t.Step, Blob: [32]byte{3}}); err != nil {
				return err
			}
		}
		for _, juror := range t.Jury {
			now := s.Trial(t.Accused)
			if p.o.Hung || now == nil || p.hangs(p.index[juror]) || now.HasVoted(juror) {
				continue
			}
			if err := p.act(p.index[juror], coordinator.Vote{Step: t.Step, Client: t.Accused, Guilty: p.o.Cheat > 0 && accused == p.o.Cheat, Body: [32]byte{4}}); err != nil {
				return err
			}
		}
	}
	return nil
}
