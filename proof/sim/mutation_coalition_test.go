package sim

import (
	"errors"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
)

// fewDrop drops a member at the second finding, whether or not a quorum denies the result.
func fewDrop() rules {
	return onFinding(func(s *coordinator.State, _ *coordinator.Round, member *coordinator.Client) bool {
		member.State = coordinator.Dropped
		return true
	})
}

// onFinding changes a healthy member when a health check reports for the second time in an epoch
// that its results are missing.
func onFinding(change func(s *coordinator.State, round *coordinator.Round, member *coordinator.Client) bool) rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		var late []coordinator.ClientID
		check, ok := a.(coordinator.HealthCheck)
		for _, id := range check.Clients {
			if member, ok := s.Member(id); ok && member.Lateness == coordinator.Late {
				late = append(late, id)
			}
		}
		err := s.Apply(from, nonce, a)
		round := s.RoundOfStep(s.Progress.Step - 1)
		if !ok || round == nil || err != nil && !errors.Is(err, coordinator.ErrDuplicate) {
			return err
		}
		for _, id := range late {
			if member, ok := s.Member(id); ok && member.State == coordinator.Healthy && change(s, round, member) {
				err = nil
			}
		}
		return err
	}}
}

func everybodySlow() rules {
	return onFinding(func(_ *coordinator.State, _ *coordinator.Round, member *coordinator.Client) bool {
		member.Lateness = coordinator.Slow
		return true
	})
}

// anyNumberDropped drops the members that a quorum denies, however many were dropped before.
func anyNumberDropped() rules {
	return onFinding(func(s *coordinator.State, round *coordinator.Round, member *coordinator.Client) bool {
		if len(round.Witnesses)-round.Score(member.ID) < int(round.WitnessesNeeded) {
			return false
		}
		member.State = coordinator.Dropped
		return true
	})
}

// anyNetwork makes the host admit clients from any network.
func anyNetwork() rules {
	return rules{origin: func(*host, coordinator.Action, core.Origin) core.Origin { return core.Origin{} }}
}

// countsConnected counts only the members of a network and its waiting clients, not clients that
// left and may return.
func countsConnected() rules {
	return rules{origin: func(h *host, a coordinator.Action, from core.Origin) core.Origin {
		there := 0
		for id := range h.world.cast.FromNetwork(h.State()) {
			if member, ok := h.State().Member(id); ok && member.State == coordinator.Healthy || h.State().IsPending(id) {
				there++
			}
		}
		if there < from.Most {
			return core.Origin{}
		}
		return from
	}}
}

// onProof replaces the ejection of a member that signed two results.
func onProof(change func(s *coordinator.State, id coordinator.ClientID)) rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if proof, ok := a.(coordinator.Equivocation); ok && err == nil {
			change(s, proof.Client)
		}
		return err
	}}
}

func forgiven() rules {
	return onProof(func(s *coordinator.State, id coordinator.ClientID) {
		if member, ok := s.Member(id); ok {
			member.State, s.Authority.Ejections = coordinator.Healthy, nil
		}
	})
}

func ejectedReturns() rules {
	return onProof(func(s *coordinator.State, id coordinator.ClientID) {
		if member, ok := s.Member(id); ok {
			member.State, s.Authority.Ejections = coordinator.Withdrawn, nil
		}
	})
}

// takesBack removes the reveal of a member that leaves in Warmup from the combined reveals.
func takesBack() rules {
	parts := make(map[coordinator.ClientID][32]byte)
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		before := s.Reveals
		err := s.Apply(from, nonce, a)
		if err != nil {
			return err
		}
		switch a.(type) {
		case coordinator.Ready:
			var part [32]byte
			for i := range part {
				part[i] = before[i] ^ s.Reveals[i]
			}
			parts[from] = part
		case coordinator.Withdraw:
			part := parts[from]
			for i := range part {
				s.Reveals[i] ^= part[i]
			}
			delete(parts, from)
		}
		return nil
	}}
}

// firstCome gives the correct number of newcomers seats, in the order in which they wait.
func firstCome() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		waited, before := slices.Clone(s.Pending), s.RunState
		changed := s.Tick(now, draw)
		if s.RunState != coordinator.Warmup || before != coordinator.WaitingForMembers {
			return changed
		}
		everybody := append(slices.Clone(s.Epoch.Clients), s.Pending...)
		drawn := len(s.Epoch.Clients)
		for i := range waited {
			if waited[i].ProbationUntil != 0 {
				drawn--
			}
		}
		s.Epoch.Clients, s.Pending = nil, nil
		for i := range waited {
			at := slices.IndexFunc(everybody, func(c coordinator.Client) bool { return c.ID == waited[i].ID })
			switch client := everybody[at]; {
			case waited[i].ProbationUntil != 0:
				s.Epoch.Clients = append(s.Epoch.Clients, client)
			case drawn > 0:
				drawn--
				client.Waited, client.ProbationUntil, client.OptimizerSince = false, s.Epoch.StartStep+s.Config.ProbationSteps, s.Epoch.StartStep
				s.Epoch.Clients = append(s.Epoch.Clients, client)
			default:
				s.Pending = append(s.Pending, waited[i])
			}
		}
		return changed
	}}
}

func lateDrawn() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		for i := range s.Pending {
			s.Pending[i].Waited = true
		}
		return s.Tick(now, draw)
	}}
}
