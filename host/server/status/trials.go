package status

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Trial is an accusation that a jury votes on.
type Trial struct {
	Accused  string  `json:"accused"`
	Accuser  string  `json:"accuser"`
	Fault    string  `json:"fault"`
	Step     uint32  `json:"step"`                 // of the result
	Since    uint32  `json:"since"`                // step of the accusation
	Until    uint32  `json:"until"`                // step of the first round at whose end the trial may end undecided
	Deadline float64 `json:"until_unix_timestamp"` // earliest time at which the trial may end undecided
	Jury     int     `json:"jury"`                 // 0: not drawn yet
	Guilty   int     `json:"guilty"`
	Innocent int     `json:"innocent"`
}

// Ejection excludes a client.
type Ejection struct {
	Client string `json:"client"`
	Until  uint32 `json:"until"` // first epoch in which it may join again
	Reason string `json:"reason"`
}

func trialsOf(s *coordinator.State) []Trial {
	trials := []Trial{}
	for i := range s.Trials {
		t := &s.Trials[i]
		trials = append(trials, Trial{
			Accused: name(t.Accused), Accuser: name(t.Accuser), Fault: t.Fault.String(), Step: t.Step, Since: t.Since,
			Until: t.Since + s.Config.TrialRounds(), Deadline: seconds(t.SinceTime + coordinator.TrialTime),
			Jury: int(t.Jurors), Guilty: int(t.Guilty), Innocent: int(t.Innocent),
		})
	}
	return trials
}

func ejectionsOf(s *coordinator.State) []Ejection {
	ejections := []Ejection{}
	for _, e := range s.Authority.Ejections {
		ejections = append(ejections, Ejection{Client: name(e.Client), Until: e.Until, Reason: e.Reason.String()})
	}
	return ejections
}

// text describes the trial.
func (t Trial) text() string {
	votes := "no jury yet"
	if t.Jury > 0 {
		votes = fmt.Sprintf("%d guilty and %d innocent of %d", t.Guilty, t.Innocent, t.Jury)
	}
	return fmt.Sprintf("%s, accused by %s in step %d: %s in step %d, %s, until step %d at least",
		t.Accused, t.Accuser, t.Since, t.Fault, t.Step, votes, t.Until)
}
