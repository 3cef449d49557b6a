package console

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// paced returns the estimator after rounds of the given durations. Before round 3, the run is in the given states for a
// minute.
func paced(between []event.State, seconds ...float64) *Pace {
	p, at := &Pace{}, time.Unix(1000, 0)
	for i := 0; i <= len(seconds); i++ {
		if i == 2 {
			for _, s := range between {
				p.See(at, s)
				at = at.Add(time.Minute)
			}
		}
		p.See(at, event.State{RunState: "RoundTrain", Step: uint32(i + 1)})
		p.See(at, event.State{RunState: "RoundWitness", Step: uint32(i + 1)})
		if i < len(seconds) {
			at = at.Add(time.Duration(seconds[i] * float64(time.Second)))
		}
	}
	return p
}

// TestPace checks that the estimate has no range if the rounds are equally long, is unknown after few rounds, and is the
// same for a client that saw a pause or a wait for members as for a client that came later.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		pace *Pace
		want string
	}{
		"equal rounds":     {paced(nil, 3, 3, 3, 3), "2 min left"},
		"different rounds": {paced(nil, 1, 3, 4, 4), "2 min left (2 min to 3 min)"},
		"too few":          {paced(nil, 3, 3), ""},
		"a pause":          {paced([]event.State{{RunState: "Paused"}}, 3, 3, 3, 3), "2 min left"},
		"few members":      {paced([]event.State{{RunState: "WaitingForMembers", Pending: 1, Needed: 2}}, 3, 3, 3, 3), "2 min left"},
		"the wait for more members, which every epoch has": {paced([]event.State{{RunState: "WaitingForMembers", Pending: 2, Needed: 2}}, 3, 3, 3, 3), "12 min left (12 min to 52 min)"},
	} {
		if got := c.pace.Text(40); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := paced(nil, 3, 3, 3).Text(0); got != "" {
		t.Errorf("after the last round: %q", got)
	}
}
