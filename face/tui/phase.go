package tui

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// Phases of a run by their names in events.
var (
	waiting      = coordinator.WaitingForMembers.String()
	warmup       = coordinator.Warmup.String()
	roundTrain   = coordinator.RoundTrain.String()
	roundWitness = coordinator.RoundWitness.String()
	cooldown     = coordinator.Cooldown.String()
	paused       = coordinator.Paused.String()
	finished     = coordinator.Finished.String()
)

func isOver(state event.State) bool { return state.RunState == finished }

// missing returns the number of members that the next epoch waits for.
func missing(state event.State) int { return max(0, state.Needed-state.Pending) }

// inEpoch reports whether the members of a state take part in an epoch.
func inEpoch(state event.State) bool {
	return slices.Contains([]string{warmup, roundTrain, roundWitness, cooldown}, state.RunState)
}

// words describes a state for people, as the page does.
func words(state event.State) string {
	rounds := fmt.Sprintf("round %d of %d", state.ShownStep(), state.TotalSteps)
	switch state.RunState {
	case "":
		return "starting"
	case waiting:
		if n := missing(state); n > 0 {
			return "waiting for " + counted(n, "more member")
		}
		return "starting: enough members have joined"
	case warmup:
		return "getting ready: members load the model"
	case roundTrain:
		return "training, " + rounds
	case roundWitness:
		return "training, " + rounds + ": witnesses report"
	case cooldown:
		return "saving the model of " + rounds
	case paused:
		if state.ShownStep() == 0 {
			return "paused before the first round"
		}
		return "paused after " + rounds
	case finished:
		return "finished"
	}
	return "starting"
}

// brief describes a phase in a word or two, for lists of runs.
func brief(state event.State) string {
	switch state.RunState {
	case waiting:
		return "waiting"
	case warmup:
		return "getting ready"
	case roundTrain, roundWitness:
		return "training"
	case cooldown:
		return "saving"
	case paused:
		return "paused"
	case finished:
		return "finished"
	}
	return "starting"
}

// counted formats a number of things.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// joined describes the members of the epoch, or the clients that the next epoch waits for.
func joined(state event.State) string {
	if state.Needed > 0 {
		return fmt.Sprintf("%d of %d needed members", state.Pending, state.Needed)
	}
	return fmt.Sprintf("%s, %d waiting", counted(len(state.Members), "member"), state.Pending)
}

// quorum draws how many members have done what the phase waits for. It is empty if the phase only
// waits for time.
func quorum(state event.State, width int) string {
	switch state.RunState {
	case warmup:
		return fmt.Sprintf("%d of %d members hold the model %s", state.Ready, len(state.Members), bar(state.Ready, len(state.Members), width))
	case roundTrain, roundWitness:
		return fmt.Sprintf("%d of %d witnesses reported %s", state.Witnesses, state.Quorum, bar(state.Witnesses, state.Quorum, width))
	}
	return ""
}

// roleOf describes what a member does, for tables of members.
func roleOf(state event.State, c court, id string) string {
	switch {
	case c.tries(id):
		return "on trial"
	case !slices.Contains(state.Members, id):
		return "waits"
	case slices.Contains(state.Uncounted, id):
		return "not counted yet"
	case slices.Contains(state.Idle, id):
		return "audits"
	case state.RunState == roundTrain || state.RunState == roundWitness:
		return "trains"
	case isOver(state):
		return "took part"
	}
	return "takes part"
}
