package sim

import (
	"maps"
	"strconv"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// hostAttack is the memory of a host in the coalition.
type hostAttack struct {
	bent      uint32 // newest step whose witnesses it has tried to choose
	withdrawn uint32 // epoch in which it last withdrew honest members
	count     int    // number of members withdrawn in that epoch
	asked     int64  // start time of an epoch that it delays, because the coalition would be too large
}

// Schemes of a host in the coalition. It cannot forge signatures, and is committed to its draws.
const (
	leavesReadies = iota // few honest members reveal their values
	leavesWords          // drops proofs, findings, reports and evidence against the coalition
	bends                // withdraws honest members so that the next draw elects more coalition members
	turnsClock           // ends phases early
	hostSchemes
)

func (h *host) schemeOf(epoch uint32) int {
	return random.New(h.world.options.Seed, "host "+strconv.Itoa(int(epoch))).Below(hostSchemes)
}

// leavesOut reports whether the host drops an action of an honest client.
func (h *host) leavesOut(r *request) bool {
	if !h.world.plan.HasByzantineHost() || !r.from.Honest() || h.attack.asked != 0 {
		return false
	}
	aim := h.schemeOf(h.State().Progress.Epoch)
	switch r.action.(type) {
	case coordinator.Ready:
		return aim == leavesReadies && h.random.Chance(700)
	case coordinator.WitnessRound, coordinator.HealthCheck, coordinator.ReportCheckpoint, coordinator.Equivocation:
		return aim == leavesWords && h.random.Chance(500)
	}
	return false
}

// scheme performs the host's attacks.
func (h *host) scheme() {
	if !h.world.plan.HasByzantineHost() || h.attack.asked != 0 {
		return
	}
	switch h.schemeOf(h.State().Progress.Epoch) {
	case bends:
		h.bend()
	case turnsClock:
		if h.random.Chance(20) {
			h.offset += h.random.Between(0, 15_000)
		}
	}
}

// mostWithdrawn is the number of honest members that a host of the coalition withdraws in an epoch.
const mostWithdrawn = 4

// bend withdraws an honest member before a round if the next draw, which only the host knows, then
// elects more coalition members.
func (h *host) bend() {
	step := h.State().Progress.Step
	if h.State().RunState != coordinator.RoundWitness || h.attack.bent == step || h.writing {
		return
	}
	best, victim := h.coalitionWitnesses(nil), (*machine)(nil)
	if best < 0 {
		return // the round is not over
	}
	h.attack.bent = step
	if h.attack.withdrawn != h.State().Progress.Epoch+1 {
		h.attack.withdrawn, h.attack.count = h.State().Progress.Epoch+1, 0
	}
	for range 4 {
		m := h.world.machines[h.random.Below(h.world.plan.Clients)]
		if !m.Honest() || m.history() != h || h.attack.count >= mostWithdrawn {
			continue
		}
		if elected := h.coalitionWitnesses(m); elected > best {
			best, victim = elected, m
		}
	}
	if victim != nil {
		h.attack.count++
		h.withdraw(victim)
	}
}

// coalitionWitnesses returns the number of coalition members among the next round's witnesses if a member is
// withdrawn, or -1 if the round does not start now.
func (h *host) coalitionWitnesses(without *machine) int {
	next := h.State().Clone()
	if without != nil {
		if err := next.Apply(scenario.HostID, 1<<62, coordinator.Withdraw{Client: coordinator.ClientID(without.ID)}); err != nil {
			return -1
		}
	}
	draw, _, _ := h.draws.Opening(next.DrawCommitment)
	if next.Tick(h.now().Clock, draw); next.RunState != coordinator.RoundTrain || next.Progress.Step == h.State().Progress.Step {
		return -1
	}
	return h.world.cast.CoalitionElected(next.CurrentRound(), next.Config)
}

// stalls reports whether a host of the coalition delays an epoch in which the coalition would have
// a third of the members, for which the protocol makes no guarantees. The host is honest until
// enough other clients are present.
func (h *host) stalls() bool {
	if !h.world.plan.HasByzantineHost() || h.State().RunState != coordinator.WaitingForMembers {
		return false
	}
	next := h.State().Clone()
	next.Tick(h.now().Clock, [32]byte{})
	if next.RunState != coordinator.Warmup || !h.world.cast.Overrun(next.Epoch.Clients) {
		h.attack.asked = 0
		return false
	}
	w := h.world
	if h.attack.asked == 0 {
		h.attack.asked = w.now
	}
	w.over = w.over || w.host.stalled() && (w.other == nil || w.other.stalled())
	return true
}

// stalled reports whether no more clients will arrive.
func (h *host) stalled() bool {
	return h.attack.asked != 0 && h.world.now > h.attack.asked+40*second
}

// wantsFork reports whether a host of the coalition starts to fork its history now. It forks once,
// when a round in the middle of an epoch has its quorum, so that neither history lacks it.
func (h *host) wantsFork() bool {
	w, s := h.world, h.State()
	running := s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness
	if !h.world.plan.HasByzantineHost() || w.other != nil || w.now < w.plan.Crew.ForkAt || !running || !s.CurrentRound().HasQuorum() {
		return false
	}
	_, goesOn := s.NextRound()
	return goesOn
}

// fork shows some honest clients a different history from now on. If it partitions the clients, it
// withdraws from each history the clients that see the other history, so that the two groups do not
// communicate. Otherwise the histories differ by one member.
func (h *host) fork() {
	w, log := h.world, h.Log()
	r := random.New(w.options.Seed, "fork")
	other := *h
	w.other = &other
	other.disk = h.disk.Clone()
	other.inbox, other.update = nil, nil
	other.sent = make([]*backend.Update, len(h.sent))
	other.starts, other.random = maps.Clone(h.starts), random.New(w.options.Seed, "host of another history")
	other.checker = h.checker.Clone(&other)
	times := core.DefaultTimes
	times.RestartGrace = 0 // it continues without a restart
	other.open(follow.Resume(log.Genesis(), log.State.Clone(), log.Head(), log.Starts()), times)
	other.checker.Restarted() // its core learns of connections from now on
	for _, m := range w.machines {
		if m.Honest() && r.Chance(450) {
			m.shown = &other
		}
	}
	w.Note('K', uint64(h.State().Progress.Step), 0, func() string { return "the host shows some clients another history" })
	divides, victim := r.Chance(400), w.machines[r.Below(w.plan.Clients)]
	for _, m := range w.machines {
		switch {
		case divides && m.Honest() && m.shown == nil:
			other.withdraw(m)
		case divides && m.Honest():
			h.withdraw(m)
		case !divides && m == victim:
			other.withdraw(m)
		}
	}
	h.wake(0)
	other.wake(0)
	w.after(90*second, func() { w.over = true }) // by then the fork should be detected
}
