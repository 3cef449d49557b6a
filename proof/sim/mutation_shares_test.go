package sim

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// shareMutations break the rules of shares by speed.
var shareMutations = []mutation{
	{"the fastest member of an audited run gets its whole share", fastestUncut, scenario.SilentTrainer, []check.Assertion{check.SharesRight}, 7},
	{"trials last six rounds in spite of shares by speed", trialsLastSixRounds, courtFaults, []check.Assertion{check.FairlyTried}, 413},
}

// trialsLastSixRounds ends trials after the time for trials in runs with equal shares.
func trialsLastSixRounds() rules {
	return afterTick(func(s *coordinator.State, before coordinator.RunState) {
		for _, t := range slices.Clone(s.Trials) {
			if before == coordinator.RoundWitness && s.Progress.Step-t.Since > coordinator.TrialRounds && s.StateStart-t.SinceTime >= coordinator.TrialTime {
				closeTrial(s, t.Slot)
			}
		}
	})
}

// fastestUncut gives each member its own level in a new round.
func fastestUncut() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		levels := make(map[coordinator.ClientID]uint8)
		for i := range s.Epoch.Clients {
			levels[s.Epoch.Clients[i].ID] = s.Epoch.Clients[i].Level
		}
		before := s.RunState
		changed := s.Tick(now, draw)
		if round := s.CurrentRound(); s.RunState == coordinator.RoundTrain && before != s.RunState {
			for i, id := range round.Members {
				round.Levels[i] = levels[id]
			}
		}
		return changed
	}}
}
