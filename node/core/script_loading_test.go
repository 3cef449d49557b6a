package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
)

// find passes what the loop of a client passes to get a model, in Warmup and in rounds.
func (s *script) find() {
	switch s.state.RunState {
	case coordinator.Warmup:
		s.pass(Warmup{s.model(), s.replica != nil})
	case coordinator.RoundTrain, coordinator.RoundWitness:
		if s.replica == nil {
			s.pass(Rejoin{
				Trainer: s.model(), Lag: max(1, s.step("lag")),
				Follows: func(step uint32) bool { return s.fact("tallies") && step+1 >= s.step("tallies") },
				Leads: func(after, until uint32) bool {
					return after >= until || s.fact("tallies") && after+1 >= s.step("tallies")
				},
			})
		}
		s.pass(SitDown{s.replica})
	}
}

// loaded ends the newest load. If it succeeds, the trainer holds its model.
func (s *script) loaded(result string) {
	e := Obtained{Load: s.load, Tries: 1}
	if result != "cancelled" && result != "ok" {
		e.Err = errors.New(result)
	}
	e.Fault = map[string]Fault{"ok": NoFault, "cancelled": Cancelled, "results-differ": ResultsDiffer, "no-room": NoMemory, "no-holder": NoHolder, "fails": OtherFault}[result]
	delete(s.facts, "held")
	if result == "ok" {
		s.facts["held"] = fmt.Sprint(s.load.Wanted().Step)
	}
	delete(s.facts, "redefined")
	delete(s.facts, "prepared")
	s.pass(e)
}

// replayed ends the newest replay. After that, the trainer's weights match no model.
func (s *script) replayed(ok bool) {
	e := Replayed{Until: s.replay.Until, Hash: [32]byte{2}, Before: [32]byte{2}, Rounds: int(s.replay.Until - s.replay.After)}
	if !ok {
		e.Hash, e.Err = [32]byte{}, errors.New("another replica")
	}
	if e.Rounds > 0 {
		delete(s.facts, "held")
	}
	s.pass(e)
}

func describeLoad(w Load) string {
	names := map[Source]string{
		SharedModel: "shared model", OwnCopy: "own copy", OwnDisk: "own disk", OwnResults: "own results", OtherMembers: "members", Archives: "archives", FirstModel: "the first model's location",
	}
	var from []string
	for _, source := range w.Sources {
		from = append(from, names[source])
	}
	text := "the initial model"
	switch {
	case w.Taken.Step != 0:
		text = fmt.Sprintf("the intermediate checkpoint of step %d within %v", w.Taken.Step, w.Limit)
	case w.From.FromPeers():
		text = fmt.Sprintf("the model of step %d", w.From.Step)
	}
	text += " from: " + strings.Join(from, ", ")
	if w.Taken.Step != 0 {
		text += fmt.Sprintf("; answers within %v", w.Answer)
		if w.Again {
			text += "; asks the same members"
		}
	}
	return text
}

// applies lists that a round is to be applied.
func (s *script) applies(e Event, w Apply) {
	switch e.(type) {
	case Judged, Early: // Counted follows
	case Counted:
		fmt.Fprintf(&s.out, "applies step %d\n", w.Step)
		if w.Take {
			fmt.Fprintf(&s.out, "takes the model of step %d\n", w.Step)
		}
	default:
		fmt.Fprintf(&s.out, "needs the results up to step %d\n", w.Step)
	}
}
