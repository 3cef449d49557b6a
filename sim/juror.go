package sim

import (
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// jurorOf reports whether a client is on the jury of a trial that goes on, and has voted.
func (p *process) jurorOf(s *coordinator.State, t *coordinator.Trial) (is, voted bool) {
	same := func(o coordinator.Trial) bool {
		return o.Slot == t.Slot && o.Accused == t.Accused && o.Accuser == t.Accuser && o.Step == t.Step
	}
	if !slices.ContainsFunc(s.Trials, same) {
		return false, false
	}
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Pending} {
		for i := range clients {
			if c := &clients[i]; c.ID == coordinator.ClientID(p.machine.id) {
				return c.Juror>>t.Slot&1 == 1, c.Voted>>t.Slot&1 == 1
			}
		}
	}
	return false, false
}

// summon takes up the trials on whose juries a client is.
func (p *process) summon(s *coordinator.State) {
	for i := range s.Trials {
		t := s.Trials[i]
		known := func(q *inquiry) bool {
			return q.trial != nil && q.trainer == t.Accused && q.result.step == t.Step && q.trial.Accuser == t.Accuser
		}
		if is, voted := p.jurorOf(s, &t); is && !voted && !slices.ContainsFunc(p.court.cases, known) {
			q := &inquiry{result: result{t.Step, t.Accused}, trial: &t}
			_, q.opened = p.court.opens[q.result]
			p.court.cases = append(p.court.cases, q)
		}
	}
}

// pronounces votes where a juror knows, and reports whether it does or never will.
func (p *process) pronounces(s *coordinator.State, q *inquiry) bool {
	guilty, knows := p.finds(s, q)
	if knows && p.world.now >= q.again {
		q.again = p.world.now + resend
		p.sendAside(coordinator.Vote{Step: q.result.step, Client: q.trainer, Guilty: guilty})
	}
	return knows
}

// finds returns what a juror votes, if it knows. Honest ones examine; a result that the round does not
// have is nobody's fault; who opens to nobody is guilty where it is accused of that.
func (p *process) finds(s *coordinator.State, q *inquiry) (guilty, knows bool) {
	accused := p.world.machineOf(q.trainer)
	switch m := p.machine; {
	case m.lies(Gang):
		blocks := accused.lies(Gang) && m.chance("abstains", q.result.step, 500)
		return !accused.lies(Gang), !blocks
	case m.lies(Slanderer):
		return true, true
	}
	f, known := p.court.past[q.result.step]
	switch {
	case known && !slices.Contains(f.held, q.trainer):
		return false, true
	case q.judged:
		return q.failed, true
	}
	return true, q.trial.Fault == coordinator.FaultSilent && !q.opened && p.isSilent(s, q, jurorsPatience)
}

// slander has those accuse who make it up: slanderers anybody, the gang honest members, and now and
// then one of its own, to be tried by accomplices or to keep others from trying it.
func (p *process) slander(s *coordinator.State) {
	m, step := p.machine, s.Progress.Step
	if m.roles&(Slanderer|Gang) == 0 || p.court.spoke[step] || !m.chance("slander", step, 400) {
		return
	}
	p.court.spoke[step] = true
	friendly := m.lies(Gang) && m.chance("friendly", step, 300)
	var candidates []result
	for of := step - min(step-1, auditedRounds); of < step; of++ {
		for _, id := range p.court.past[of].held {
			if other := p.world.machineOf(id); other != m && (!m.lies(Gang) || other.lies(Gang) == friendly) {
				candidates = append(candidates, result{of, id})
			}
		}
	}
	if len(candidates) == 0 {
		return
	}
	r := candidates[p.dice().below(len(candidates))]
	if m.chance("early", step, 150) {
		r.step = step
	}
	fault := coordinator.FaultResult
	if m.chance("fault", step, 500) {
		fault = coordinator.FaultSilent
	}
	p.sendAside(coordinator.Accuse{Step: r.step, Client: r.trainer, Fault: fault})
}
