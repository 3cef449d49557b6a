package sim

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// pace is when the results of the running round were announced.
type pace struct {
	step      uint32
	began     int64
	announced map[coordinator.ClientID]int64
	left      int64 // when a member left last: fewer trainers are awaited since
}

// What witnesses wait beyond two thirds of the trainers, and until their proofs are there: a client
// looks once in a heartbeat, and fetches first.
const (
	leastPatience = 2 * second
	underWay      = 2*heartbeat + second/2
)

func (p *pace) heard(m *machine, a wire.ResultAnnouncement, now int64) {
	id := coordinator.ClientID(m.id)
	if _, again := p.announced[id]; a.Step == p.step && !again && m.roles&(HiddenResult|InvalidResult|Equivocation) == 0 {
		p.announced[id] = now
	}
}

// paced checks the end of RoundTrain where no fault but lies goes on and the honest witnesses are a
// quorum: it waited for two thirds of the trainers, and not for the last.
func (c *checker) paced(s *coordinator.State, round *coordinator.Round) {
	w := c.world
	if w.plan.faults&^(liars&^GangHost) != 0 || w.host.lies() || c.pace.step != round.Step {
		return
	}
	honest := 0
	for _, i := range round.ElectedWitnesses(s.Config) {
		if m := w.machines[w.index[[32]byte(round.Members[i])]]; m.honest() && m.process != nil && !m.process.ended {
			if member, ok := s.Member(round.Members[i]); ok && member.State == coordinator.Healthy {
				honest++
			}
		}
	}
	if honest < quorumOf(electedOf(round, s.Config)) {
		return
	}
	var times []int64
	owners := make(map[int]bool)
	for _, a := range round.Assignments(s.Config) {
		id := round.Members[a.Member]
		if member, ok := s.Member(id); owners[a.Member] || c.slow[id] || !ok || member.State != coordinator.Healthy {
			continue
		}
		owners[a.Member] = true
		if at, announced := c.pace.announced[id]; announced {
			times = append(times, at)
		}
	}
	most := quorumOf(len(owners))
	if len(times) < most || most == 0 {
		return
	}
	slices.Sort(times)
	at := max(times[most-1], c.pace.left)
	if limit := at + max(leastPatience, (at-c.pace.began)/4) + underWay; w.now > limit {
		c.violate(NoPaceSetter, "two thirds of the results of step %d were there after %d ms, and RoundTrain lasted %d ms",
			round.Step, (at-c.pace.began)/1_000_000, (w.now-c.pace.began)/1_000_000)
	}
}
