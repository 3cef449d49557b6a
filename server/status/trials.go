package status

import (
	"encoding/hex"
	"fmt"
	"math/bits"

	"github.com/psyche-go/psyche/coordinator"
)

// Audits are what the members of a round that do not train have done.
type Audits struct {
	Sealed int `json:"sealed"`
	Judged int `json:"judged"`
}

// Trial is an accusation on which a jury votes.
type Trial struct {
	Accused  string `json:"accused"`
	Accuser  string `json:"accuser"`
	Fault    string `json:"fault"`
	Step     uint32 `json:"step"`  // in which the accuser verified
	Since    uint32 `json:"since"` // step of the accusation
	Opening  string `json:"opening,omitempty"`
	Jury     int    `json:"jury"`
	Guilty   int    `json:"guilty"`
	Innocent int    `json:"innocent"`
}

// Ejection keeps a client out.
type Ejection struct {
	Client string `json:"client"`
	Until  uint32 `json:"until"` // epoch from which on it may join again
	Reason string `json:"reason"`
}

func auditsOf(r *coordinator.Round) Audits {
	return Audits{Sealed: count(r.Sealed), Judged: count(r.Judged)}
}

func count(set coordinator.MemberSet) int {
	n := 0
	for _, b := range set {
		n += bits.OnesCount8(b)
	}
	return n
}

func trialsOf(s *coordinator.State) []Trial {
	trials := []Trial{}
	for i := range s.Epoch.Trials {
		t := &s.Epoch.Trials[i]
		shown := Trial{
			Accused: name(t.Accused), Accuser: name(t.Accuser), Fault: t.Fault.String(), Step: t.Step, Since: t.Since,
			Jury: len(t.Jury), Guilty: bits.OnesCount32(t.Guilty), Innocent: bits.OnesCount32(t.Innocent),
		}
		if t.Opening != ([32]byte{}) {
			shown.Opening = hex.EncodeToString(t.Opening[:])
		}
		trials = append(trials, shown)
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

// text returns the trial in words.
func (t Trial) text() string {
	opened := "not opened"
	if t.Opening != "" {
		opened = "opened"
	}
	return fmt.Sprintf("%s, accused by %s in step %d: %s, %s, %d guilty and %d innocent of %d",
		t.Accused, t.Accuser, t.Since, t.Fault, opened, t.Guilty, t.Innocent, t.Jury)
}
