package sim

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// result identifies an audited result: a trainer's result in a step.
type result struct {
	step    uint32
	trainer coordinator.ClientID
}

// court is the memory of a Byzantine process about audits and trials.
type court struct {
	firstRequest map[result]int64 // time of the first request for an opening
	spoke        uint32           // newest step in which it accused a member

	hogged uint32         // newest step in which it flooded a member with requests
	served map[result]int // the only client that gets an opening
}

func newCourt() court {
	return court{firstRequest: make(map[result]int64), served: make(map[result]int)}
}

// chance draws a machine's decision for a step, with a probability of perMille/1000.
func (m *machine) chance(label string, step uint32, perMille uint32) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(label))
	_, _ = h.Write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, step), m.world.options.Seed))
	_, _ = h.Write(m.ID[:])
	return uint32(h.Sum64()>>20)%1000 < perMille
}

// cheats reports whether the machine sends a false result in a step.
func (m *machine) cheats(step uint32) bool {
	return m.Roles&(scenario.CheatingTrainer|scenario.Coalition) != 0 && m.chance("cheats", step, 500)
}

// refusesToOpen reports whether a process denies having a requested opening.
func (p *process) refusesToOpen(asker *process, request []byte) bool {
	m := p.machine
	r, ok := openedResult(request)
	if !ok {
		return false
	}
	if p.world.rules.forgets && r.step+1 < m.history().State().Progress.Step {
		return true
	}
	if p.court.firstRequest[r] == 0 {
		p.court.firstRequest[r] = p.world.now
	}
	switch own := r.trainer == coordinator.ClientID(m.ID); {
	case m.HasRole(scenario.Coalition):
		return !asker.machine.HasRole(scenario.Coalition)
	case !own:
		return false
	case m.HasRole(scenario.CheatingTrainer) && m.cheats(r.step) && m.chance("opens", r.step, 500):
		return true
	case m.HasRole(scenario.Silent):
		return p.withholds(asker, r)
	case m.HasRole(scenario.Fleeing) && m.chance("flees", r.step, 500):
		p.sendAside(coordinator.Withdraw{Client: coordinator.ClientID(m.ID)})
		return true
	}
	return false
}

// withholds reports whether a silent trainer refuses now to open a result to asker. Some of these
// trainers never open, some open late, and some open only to one half of the members.
func (p *process) withholds(asker *process, r result) bool {
	switch p.machine.Index % 3 {
	case 0:
		return true
	case 1:
		return p.world.now < p.court.firstRequest[r]+20*second
	default:
		return (asker.machine.Index+int(r.step))%2 == 1
	}
}

// perverts returns the vote of a Byzantine juror. Slanderers always vote guilty. The coalition
// votes guilty against non-members, and blocks trials of its members.
func (p *process) perverts(v coordinator.Vote) (vote coordinator.Vote, votes bool) {
	m, accused := p.machine, p.world.cast.Of(v.Client)
	v.Guilty = !m.HasRole(scenario.Coalition) || !accused.HasRole(scenario.Coalition)
	return v, v.Guilty || !m.chance("abstains", v.Step, 500)
}

// victims returns the results of members on slow links. Without such results, or without links, it
// returns all candidates.
func (p *process) victims(candidates []result) []result {
	l := p.world.plan.Links
	if l == nil {
		return candidates
	}
	var slow []result
	for _, r := range candidates {
		if slices.Contains(l.Slow, p.world.cast.Of(r.trainer).Index) {
			slow = append(slow, r)
		}
	}
	if len(slow) == 0 {
		return candidates
	}
	return slow
}

// slander makes false accusations. Slanderers accuse any member. The coalition accuses honest
// members, and occasionally a coalition member, so that accomplices judge it or other trials of it
// are blocked. Some accuse hastily.
func (p *process) slander(s *coordinator.State) {
	m, step := p.machine, s.Progress.Step
	if m.Roles&(scenario.Slanderer|scenario.Coalition) == 0 || s.Config.VerificationPercent == 0 || p.court.spoke == step || !m.chance("slander", step, 400) {
		return
	}
	p.court.spoke = step
	friendly := m.HasRole(scenario.Coalition) && m.chance("friendly", step, 300)
	var candidates []result
	for i := range s.Epoch.Rounds {
		round := &s.Epoch.Rounds[i]
		for _, a := range p.world.draws.Assignments(round, s.Config) {
			id := round.Members[a.Member]
			if other := p.world.cast.Of(id); other != m.Member && (!m.HasRole(scenario.Coalition) || other.HasRole(scenario.Coalition) == friendly) {
				candidates = append(candidates, result{round.Step, id})
			}
		}
	}
	if len(candidates) == 0 {
		return
	}
	candidates = p.victims(candidates)
	r := candidates[p.world.attacks.Below(len(candidates))]
	fault := coordinator.FaultResult
	if m.chance("fault", step, 500) {
		fault = coordinator.FaultSilent
		if m.chance("part", step, 500) {
			fault = coordinator.FaultPart + coordinator.Fault(p.world.attacks.Below(scenario.Parts))
		}
	}
	p.sendAside(coordinator.Accuse{Step: r.step, Client: r.trainer, Fault: fault})
}
