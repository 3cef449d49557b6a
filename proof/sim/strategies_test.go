package sim

import (
	"context"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
)

// strategy is a way in which a coalition tries to gain work or votes, or to harm others. Its members are real
// clients, but replace the decisions of the functions.
type strategy struct {
	name string
	// offers returns the offer of a member with a true level; nil: the member's client decides.
	offers func(level int) int
	// delivers is called when a result is complete, and may wait or withhold it; nil: the member delivers it.
	delivers func(ctx context.Context, f *field, p *process, step uint32) error
	// proves changes the proof of a witness; nil: it does not.
	proves func(p *process, a coordinator.WitnessRound) coordinator.WitnessRound
}

// strategies are the strategies against shares by speed. The first is the control.
var strategies = []*strategy{
	{name: "honest"},
	{name: "offers 255", offers: func(int) int { return 255 }},
	{name: "offers 1/16", offers: func(level int) int { return level - 32 }},
	{name: "delivers, then withholds", offers: trueLevel, delivers: withholdLarge},
	{name: "says late that it is slow", offers: trueLevel, delivers: sayLate},
	{name: "delivers at the last moment", offers: trueLevel, delivers: deliverLast},
	{name: "always withholds", offers: trueLevel, delivers: func(context.Context, *field, *process, uint32) error { return errSilent }},
	{name: "denies a third", offers: trueLevel, proves: denyThird},
}

func trueLevel(level int) int { return level }

// hasAll reports whether the share of a member in a round is almost the largest that its speed allows.
func (f *field) hasAll(p *process, step uint32) bool {
	round := p.world.host.State().RoundOfStep(step)
	if round == nil {
		return false
	}
	member, ok := round.MemberIndex(coordinator.ClientID(p.machine.ID))
	return ok && int(round.Levels[member]) >= f.level(p.machine)-1
}

// withholdLarge withholds the results of two rounds whenever the member has its whole share.
func withholdLarge(_ context.Context, f *field, p *process, step uint32) error {
	before := func(rounds uint32) bool { return f.withheld[[2]uint32{uint32(p.machine.Index), step - rounds}] }
	if !f.hasAll(p, step) && (!before(1) || before(2)) {
		return nil
	}
	f.withheld[[2]uint32{uint32(p.machine.Index), step}] = true
	return errSilent
}

// sayLate withholds the result whenever the member has its whole share. Only at the end of the round, when other
// members have waited, it offers less, so that the run excuses it.
func sayLate(ctx context.Context, f *field, p *process, step uint32) error {
	if !f.hasAll(p, step) {
		return nil
	}
	if err := f.waitLong(ctx, p, step); err != nil {
		return err
	}
	p.sendAside(coordinator.Offer{Step: step, Level: uint8(max(1, f.level(p.machine)-16))})
	return errSilent
}

// deliverLast delivers just before the witnesses stop to wait.
func deliverLast(ctx context.Context, f *field, p *process, step uint32) error {
	return f.waitLong(ctx, p, step)
}

// waitLong waits until a second before the witnesses stop to wait for the last third of the results.
func (f *field) waitLong(ctx context.Context, p *process, step uint32) error {
	round := p.world.host.State().RoundOfStep(step)
	if round == nil {
		return errSilent
	}
	owners := len(round.Owners(p.world.plan.Config))
	for {
		authors := make(map[identity.ID]bool)
		for _, s := range p.world.registry.OfStep(step) {
			authors[s.Author] = true
		}
		if len(authors) >= assign.Quorum(owners) {
			took := p.world.now - f.opened[step]
			return p.wait(ctx, p.world.now+max(2*second, took/4)-second)
		}
		if err := p.wait(ctx, p.world.now+second/5); err != nil {
			return err
		}
	}
}

// denyThird removes a third of the honest results from a proof. All members of the coalition remove the same ones.
func denyThird(p *process, a coordinator.WitnessRound) coordinator.WitnessRound {
	round := p.machine.history().State().RoundOfStep(a.Step)
	if round == nil {
		return a
	}
	held := a.Participants
	a.Participants, a.Commitments = bloom.Filter{}, bloom.Filter{}
	for i, one := range round.Assignments(p.world.plan.Config) {
		id := round.Members[one.Member]
		if !held.Contains(round.Seed, id[:]) || i%3 == 0 && p.world.cast.Of(id).Honest() {
			continue
		}
		a.Participants.Add(round.Seed, id[:])
		for _, s := range p.world.registry.Of(a.Step, one.Batch, identity.ID(id)) {
			a.Commitments.Add(round.Seed, s.Announcement.Blob[:])
		}
	}
	return a
}

// TestStrategies measures the work and the votes of a coalition of fewer than a third with each strategy, and the
// utilisation of the honest members. README.md has a table.
func TestStrategies(t *testing.T) {
	for _, part := range []string{"fast", "slow"} {
		if *speedPart != "" && *speedPart != part {
			continue
		}
		t.Log(header)
		var control series
		for _, s := range strategies {
			r := runSeries(t, field{
				strategy: s, relative: []float64{1, 4, 16}, clients: *speedMembers, rounds: *speedRounds,
				coalition: (*speedMembers - 1) / 3, slow: part == "slow",
			})
			t.Log(r.row(part + ", " + s.name))
			if s == strategies[0] {
				control = r
			}
			work, votes := r.share()
			usualWork, usualVotes := control.share()
			if votes > usualVotes+0.03 || work > usualWork+0.03 {
				t.Errorf("%s, %s: %.3f of the work and %.3f of the votes, but %.3f and %.3f of an honest coalition", part, s.name, work, votes, usualWork, usualVotes)
			}
			if r.away > 0 {
				t.Errorf("%s, %s: %d honest members lost their seats", part, s.name, r.away)
			}
		}
	}
}
