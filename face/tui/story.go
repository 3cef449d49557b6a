package tui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/record/event"
)

// namedMembers is the maximum number of members that one sentence names.
const namedMembers = 3

// changes describes the differences between the newest state and the next one in sentences.
func (r *run) changes(next event.State) (texts []string) {
	say := func(is bool, format string, args ...any) {
		if is {
			texts = append(texts, fmt.Sprintf(format, args...))
		}
	}
	last := r.state
	entered := func(phase string) bool { return next.RunState == phase && last.RunState != phase }
	say(entered(paused), "the run is %s", words(next))
	say(last.RunState == paused && next.RunState != paused, "the run continues")
	say(next.Pausing && !last.Pausing, "the run pauses when its epoch ends")
	say(entered(waiting) && missing(next) > 0, "the run waits for %s", counted(missing(next), "more member"))
	begins := inEpoch(next) && (!inEpoch(last) || next.Epoch != last.Epoch)
	say(begins, "epoch %d begins with %s", next.Epoch, counted(len(next.Members), "member"))
	if inEpoch(next) {
		came, went := without(next.Members, r.members), without(r.members, next.Members)
		verb := "is no longer a member"
		if len(went) > 1 {
			verb = "are no longer members"
		}
		say(len(came) > 0 && len(r.members) > 0, "%s joined", r.list(came))
		say(len(went) > 0, "%s %s", r.list(went), verb)
	}
	say(next.Digest != last.Digest && next.Digest != "", "a quorum recorded a new model, %.8s", next.Digest)
	say(entered(finished), "the run is finished")
	return texts
}

// list names members, or their number if there are many.
func (r *run) list(ids []string) string {
	if len(ids) > namedMembers {
		return counted(len(ids), "member")
	}
	var shown []string
	for _, id := range ids {
		shown = append(shown, r.label(id))
	}
	return strings.Join(shown, ", ")
}

// without returns the elements of all that are not in others.
func without(all, others []string) (rest []string) {
	for _, one := range all {
		if !slices.Contains(others, one) {
			rest = append(rest, one)
		}
	}
	return rest
}
