package tui

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/psyche-go/psyche/record/event"
)

// phaseName says in words what the run does in a phase.
func phaseName(state string) string {
	switch state {
	case "":
		return "starting"
	case "WaitingForMembers":
		return "waiting for members"
	case "Warmup":
		return "members load the model"
	case "RoundTrain":
		return "training"
	case "RoundWitness":
		return "witnesses report"
	case "Cooldown":
		return "taking the checkpoint"
	default:
		return strings.ToLower(state)
	}
}

// phase names the phase of a state, and says since when it lasts and how long at most.
func phase(state event.State, since, now time.Time) string {
	text := good.Render(phaseName(state.RunState))
	if since.IsZero() {
		return text
	}
	text += "  " + clock(now.Sub(since))
	if state.Limit > 0 {
		text += " of at most " + clock(time.Duration(state.Limit*float64(time.Second)))
	}
	return text
}

// quorum draws how many members did what the phase waits for; empty: it waits for time alone.
func quorum(state event.State, width int) string {
	switch state.RunState {
	case "Warmup":
		return fmt.Sprintf("%d of %d members hold the model %s", state.Ready, len(state.Members), bar(state.Ready, len(state.Members), width))
	case "RoundTrain", "RoundWitness":
		return fmt.Sprintf("%d of %d witnesses reported %s", state.Witnesses, state.Quorum, bar(state.Witnesses, state.Quorum, width))
	}
	return ""
}

// apart puts two texts at the ends of a line.
func apart(left, right string, width int) string {
	return left + strings.Repeat(" ", max(2, width-lipgloss.Width(left)-lipgloss.Width(right))) + right
}

// stepOf is the step that a state is at, and how many the run has. A run that is over has no next one.
func stepOf(state event.State) (step, total uint32) {
	if state.TotalSteps == 0 {
		return state.Step, 0
	}
	return min(state.Step, state.TotalSteps), state.TotalSteps
}
