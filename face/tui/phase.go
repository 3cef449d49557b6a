package tui

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/psyche-go/psyche/record/event"
)

// phaseName describes a phase.
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

// phase describes the phase of a state, with its duration so far and its maximum duration.
func phase(state event.State, since, now time.Time) string {
	text := good.Render(phaseName(state.RunState))
	if since.IsZero() {
		return text
	}
	text += "  " + clock(now.Sub(since))
	if state.Limit > 0 {
		text += " of at most " + clock(time.Duration(state.Limit*float64(time.Second)))
	}
	if state.Pausing {
		text += ", pauses at the end of the epoch"
	}
	return text
}

// joined describes the members of the epoch, or the clients that the next epoch waits for.
func joined(state event.State) string {
	if state.Needed > 0 {
		return fmt.Sprintf("%d of %d needed members", state.Pending, state.Needed)
	}
	return fmt.Sprintf("%d members, %d waiting", len(state.Members), state.Pending)
}

// quorum draws how many members have done what the phase waits for. It is empty if the phase only
// waits for time.
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
