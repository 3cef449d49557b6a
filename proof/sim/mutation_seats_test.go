package sim

import (
	"errors"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

func probationCounts() rules {
	return onRoundStart(func(_ *coordinator.State, round *coordinator.Round) { round.Warming = coordinator.MemberSet{} })
}

// onWarmup changes an epoch that has just begun.
func onWarmup(change func(s *coordinator.State)) rules {
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		if s.RunState == coordinator.Warmup {
			change(s)
		}
	})
}

func noProbation() rules {
	return onWarmup(func(s *coordinator.State) {
		for i := range s.Epoch.Clients {
			if m := &s.Epoch.Clients[i]; m.ProbationUntil == s.Epoch.StartStep+s.Config.ProbationSteps {
				m.ProbationUntil = s.Epoch.StartStep
			}
		}
	})
}

// droppedIsNew restarts the probation of a dropped member.
func droppedIsNew() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if _, ok := a.(coordinator.Join); !ok || err != nil {
			return err
		}
		dropped := slices.ContainsFunc(s.Epoch.Exited, func(c coordinator.Client) bool { return c.ID == from && c.State == coordinator.Dropped })
		if i := slices.IndexFunc(s.Pending, func(c coordinator.Client) bool { return c.ID == from }); dropped && i >= 0 && s.Pending[i].ProbationUntil != 0 {
			s.Pending[i].ProbationUntil = s.Progress.Step + s.Config.ProbationSteps
		}
		return nil
	}}
}

// seat gives a pending newcomer a seat.
func seat(s *coordinator.State, i int) {
	client := s.Pending[i]
	client.OptimizerSince, client.ProbationUntil, client.Waited = s.Epoch.StartStep, s.Epoch.StartStep+s.Config.ProbationSteps, false
	s.Pending = slices.Delete(s.Pending, i, i+1)
	s.Epoch.Clients = append(s.Epoch.Clients, client)
}

func everybodySeated() rules {
	return onWarmup(func(s *coordinator.State) {
		for len(s.Pending) > 0 {
			seat(s, 0)
		}
	})
}

// returningWaits leaves the last returning member without a seat.
func returningWaits() rules {
	return onWarmup(func(s *coordinator.State) {
		last := len(s.Epoch.Clients) - 1
		if m := s.Epoch.Clients[last]; m.ProbationUntil < s.Epoch.StartStep && last >= int(s.Config.MinClients) {
			s.Epoch.Clients = s.Epoch.Clients[:last]
			s.Pending = append(s.Pending, m)
		}
	})
}

// onReturn changes a member that returned.
func onReturn(change func(member *coordinator.Client)) rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if _, ok := a.(coordinator.Return); ok && err == nil {
			member, _ := s.Member(from)
			change(member)
		}
		return err
	}}
}

func returnsOnTime() rules {
	return onReturn(func(member *coordinator.Client) { member.Lateness = coordinator.OnTime })
}

func returnsForEver() rules { return onReturn(func(member *coordinator.Client) { member.Returns = 0 }) }

// anybodyReturns gives a seat to every pending client.
func anybodyReturns() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if _, ok := a.(coordinator.Return); ok && errors.Is(err, coordinator.ErrNotMember) && s.IsPending(from) {
			s.Pending = slices.DeleteFunc(slices.Clone(s.Pending), func(c coordinator.Client) bool { return c.ID == from })
			s.Epoch.Clients = append(s.Epoch.Clients, coordinator.Client{ID: from, Nonce: nonce})
			return nil
		}
		return err
	}}
}

// fewRecord removes all honest members at the end and accepts the reports of the other members.
func fewRecord() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState != coordinator.Cooldown || len(s.Reporters(s.Progress.Step-1)) < 5 {
			return s.Tick(now, draw)
		}
		before := s.Clone()
		if !s.Tick(now, draw) || s.RunState == coordinator.Cooldown {
			return s.Hash() != before.Hash()
		}
		reports := make(map[[32]byte]int)
		for _, r := range before.Reporters(before.Progress.Step - 1) {
			reports[r.Report.Digest]++
		}
		for _, r := range before.Reporters(before.Progress.Step - 1) { // the digest with the fewest reports
			if c := &s.Model.Checkpoint; reports[r.Report.Digest] < len(before.Epoch.Clients)/3 {
				if c.Origin == 0 {
					c.Origin, c.Kind = c.Kind, coordinator.CheckpointP2P
				}
				c.Digest, c.Step = r.Report.Digest, s.Progress.Step-1
			}
		}
		return true
	}}
}
