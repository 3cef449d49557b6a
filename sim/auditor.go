package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
)

// inquiry is what a member does about one result: as its auditor, or as a juror.
type inquiry struct {
	result
	trial *coordinator.Trial // as it was when this began; nil: an audit

	began  int64 // when it was asked for the first time; 0: it was not
	step   uint32
	asks   int
	again  int64 // when the next attempt may be
	busy   bool  // a task goes on
	opened bool
	judged bool
	failed bool
	over   bool
}

// mostAudits is how many audits a member has at a time.
const mostAudits = 4

// trains reports whether a client has a batch of the running round.
func (p *process) trains(s *coordinator.State) bool {
	round, me := s.CurrentRound(), coordinator.ClientID(p.machine.id)
	return s.RunState == coordinator.RoundTrain && slices.ContainsFunc(p.world.draws.Assignments(round, s.Config), func(a assign.Assignment) bool {
		return round.Members[a.Member] == me
	})
}

// throw draws once in a round, where a member has no batch, whose result it audits: one time in two of
// the newest two rounds, else of the newest twelve. What it cannot get it draws no other one for.
func (p *process) throw(s *coordinator.State) {
	c, step := &p.court, s.Progress.Step
	if s.RunState != coordinator.RoundTrain || c.thrown >= step || len(c.cases) >= mostAudits || !slices.Contains(s.CurrentRound().Members, coordinator.ClientID(p.machine.id)) {
		return
	}
	c.thrown = step
	if p.trains(s) {
		return
	}
	window := uint32(auditedRounds)
	if p.dice().chance(500) {
		window = 2
	}
	var candidates []result
	for of := step - min(step-1, window); of < step; of++ {
		for _, id := range c.past[of].held {
			if id != coordinator.ClientID(p.machine.id) {
				candidates = append(candidates, result{of, id})
			}
		}
	}
	if len(candidates) == 0 {
		return
	}
	drawn := candidates[p.dice().below(len(candidates))]
	if !slices.ContainsFunc(c.cases, func(q *inquiry) bool { return q.result == drawn }) {
		c.cases = append(c.cases, &inquiry{result: drawn})
	}
}

func (p *process) dice() *random { return p.machine.dice }

// mayJudge reports whether an honest member may hold against a trainer what it sent: it is there, has
// not begun its optimizer anew since, and can have no other reason to be silent than that it wants to.
func mayJudge(s *coordinator.State, r result) bool {
	trainer, ok := s.Member(r.trainer)
	return ok && trainer.State == coordinator.Healthy && trainer.OptimizerSince != 0 && trainer.OptimizerSince <= r.step
}

// isOver reports whether there is nothing left to do about an inquiry.
func (p *process) isOver(s *coordinator.State, q *inquiry) bool {
	if q.trial != nil {
		bit, voted := p.jurorOf(s, q.trial)
		return !bit || voted
	}
	passed := q.judged && !q.failed
	old := q.result.step+keptRounds/2 < s.Progress.Step && q.began != 0 && p.world.now > q.began+keptTime/2
	return passed || old || !mayJudge(s, q.result) || isTried(s, q.result)
}

// pursue takes the next step of an inquiry.
func (p *process) pursue(s *coordinator.State, q *inquiry) {
	now := p.world.now
	if q.began == 0 {
		q.began, q.step = now, s.Progress.Step
	}
	switch {
	case q.trial != nil && p.pronounces(s, q):
	case now < q.again:
	case q.judged && q.failed:
		q.again = now + resend
		p.sendAside(coordinator.Accuse{Step: q.result.step, Client: q.trainer, Fault: coordinator.FaultResult})
	case q.judged:
	case q.opened:
		if p.court.applied[q.result.step] && (q.trial != nil || !p.trains(s)) {
			p.examine(q)
		}
	case q.trial == nil && p.isSilent(s, q, auditorsPatience):
		q.again = now + resend
		p.sendAside(coordinator.Accuse{Step: q.result.step, Client: q.trainer, Fault: coordinator.FaultSilent})
	default:
		p.ask(s, q)
	}
}

// isSilent reports whether somebody was asked often and long enough for an opening, and was alive all
// the while: it is a member whose optimizer goes on, and later results of it have come.
func (p *process) isSilent(s *coordinator.State, q *inquiry, most patience) bool {
	if p.world.rules.impatient && q.asks >= 1 {
		return mayJudge(s, q.result)
	}
	heard := p.court.heard[p.world.machineOf(q.trainer).index]
	return mayJudge(s, q.result) && q.asks >= leastAsks && p.world.now >= q.began+most.time && s.Progress.Step >= q.step+most.rounds &&
		heard > q.result.step && heard+aliveRounds >= s.Progress.Step
}

// ask asks the trainer for an opening, a juror the accuser too, and one other member, who may have it.
func (p *process) ask(s *coordinator.State, q *inquiry) {
	q.busy, q.asks, q.again = true, q.asks+1, p.world.now+askAgain
	whom := []*machine{p.world.machineOf(q.trainer)}
	if q.trial != nil {
		whom = append(whom, p.world.machineOf(q.trial.Accuser))
	}
	if n := len(s.Epoch.Clients); n > 0 {
		whom = append(whom, p.world.machineOf(s.Epoch.Clients[p.dice().below(n)].ID))
	}
	p.inBackground(func(ctx context.Context) {
		for _, m := range whom {
			other, err := p.roundTrip(ctx, m.id)
			if !p.alive {
				return
			}
			p.world.note('O', uint64(p.machine.index), uint64(m.index), func() string {
				return fmt.Sprintf("%s asked %s to open step %d of %s: %v", p.machine.name(), m.name(), q.result.step, p.world.nameOf(q.trainer), orAnswer(err))
			})
			if err == nil && other != p && other.shows(p, q.result) {
				q.opened, q.again, p.court.opens[q.result] = true, 0, p.world.now
				break
			}
		}
		q.busy = false
	})
}

func orAnswer(err error) string {
	if err == nil {
		return "reached"
	}
	return err.Error()
}

// examine computes what a result should have been. Who would accuse computes it twice.
func (p *process) examine(q *inquiry) {
	q.busy = true
	p.inBackground(func(ctx context.Context) {
		defer func() { q.busy = false }()
		if p.fetchTokens(ctx) != nil {
			q.again = p.world.now + 2*second
			return
		}
		failed := p.world.machineOf(q.trainer).cheats(q.result.step)
		for range 2 {
			if p.wait(ctx, p.world.now+p.machine.trainTime) != nil {
				return
			}
			if !failed {
				break
			}
		}
		q.judged, q.failed = true, failed
	})
}

// inBackground runs a task of the process that is not the node's.
func (p *process) inBackground(task func(ctx context.Context)) {
	p.world.workers.run(func() {
		ctx, cancel := p.WithTimeout(p.root, 10*time.Minute)
		defer cancel()
		task(ctx)
		if p.alive {
			p.schedule(p.world.now)
		}
	})
}
