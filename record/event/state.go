package event

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// ShownStep returns the step that displays show: the running round, or else the last round that has ended. Step is
// already the number of the next round then. Before the first round, ShownStep returns 0.
func (s State) ShownStep() uint32 {
	step := s.Step
	if s.RunState != coordinator.RoundTrain.String() && s.RunState != coordinator.RoundWitness.String() {
		step = max(step, 1) - 1
	}
	if s.TotalSteps > 0 {
		step = min(step, s.TotalSteps)
	}
	return step
}

// StateOf returns the event for a state, without IsMember, which depends on the process.
func StateOf(s *coordinator.State) State {
	now := State{
		RunState: s.RunState.String(), Epoch: s.Progress.Epoch, Step: s.Progress.Step,
		Members: []string{}, Pending: len(s.Pending), Elected: []string{}, Ready: len(s.Epoch.Ready),
		Claimed: ClaimedOf(s), HeldOut: HeldOutOf(s), TotalSteps: s.Config.TotalSteps, Limit: float64(s.PhaseTime()) / 1000, Pausing: s.PendingPause,
	}
	if s.RunState == coordinator.WaitingForMembers {
		now.Needed = int(s.Config.InitMinClients)
	}
	for _, c := range s.Epoch.Clients {
		if c.State == coordinator.Healthy {
			now.Members = append(now.Members, nameOf(c.ID))
		}
	}
	if round := s.CurrentRound(); round != nil {
		now.addRound(round, s.Config)
	}
	if rounds := s.Config.RoundsPerEpoch; rounds > 0 && s.Epoch.StartStep > 0 && s.Epoch.StartStep <= s.Config.TotalSteps {
		now.EpochStart, now.EpochRounds = s.Epoch.StartStep, min(rounds, s.Config.TotalSteps-s.Epoch.StartStep+1)
	}
	if digest := s.Model.Checkpoint.Digest; digest != [32]byte{} {
		now.Digest = hex.EncodeToString(digest[:])
	}
	return now
}

func (s *State) addRound(round *coordinator.Round, c coordinator.Config) {
	for _, member := range round.ElectedWitnesses(c) {
		s.Elected = append(s.Elected, nameOf(round.Members[member]))
	}
	trainers := assign.Trainers(round.BatchSeed, len(round.Members), int(c.VerificationPercent))
	for i, id := range round.Members {
		if !slices.Contains(trainers, i) {
			s.Idle = append(s.Idle, nameOf(id))
		}
		if round.Warming.Has(i) {
			s.Uncounted = append(s.Uncounted, nameOf(id))
		}
	}
	s.Witnesses, s.Quorum = len(round.Witnesses), int(round.WitnessesNeeded)
	s.BatchSize, s.DataIndex = round.BatchSize, round.Position
	s.Batches = round.BatchCount(c)
}

// OnProbation describes the probation of a member whose results do not count for a number of rounds.
// whose is "your" or "its".
func OnProbation(rounds uint32, whose string) string {
	noun := "rounds"
	if rounds == 1 {
		noun = "round"
	}
	return fmt.Sprintf("on probation, %d %s to go: %s work is checked but not counted yet", rounds, noun, whose)
}
