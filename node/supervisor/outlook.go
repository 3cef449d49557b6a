package supervisor

import (
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Outlook is the result of checking whether a run can be joined.
type Outlook struct {
	Prospect
	Reason   string // reason why it is not open
	Met      bool   // the host sent the run's state, so the link is correct
	Progress Progress
}

// Prospect classifies a run.
type Prospect uint8

const (
	Open        Prospect = iota // it can be joined
	Later                       // not now
	Over                        // never again
	OtherServer                 // its address has a different server
	Hopeless                    // not with this link
)

// Progress is the progress of an open run, which distinguishes a waiting run from a training one.
type Progress struct {
	Step     uint32
	Clients  int  // members and pending clients
	Training bool // rounds are in progress
}

// since reports whether a run has progressed: it had a round, or has more clients than ever.
func (p Progress) since(before Progress) bool {
	return p.Step != before.Step || p.Clients > before.Clients
}

// Judge evaluates the state of a run for a client with a key, which the run admits or not. key may be nil.
func Judge(s *coordinator.State, key *identity.ID, admits bool) Outlook {
	later := func(reason string) Outlook { return Outlook{Prospect: Later, Reason: reason, Met: true} }
	switch s.RunState {
	case coordinator.Finished:
		return Outlook{Prospect: Over, Reason: "it is finished", Met: true}
	case coordinator.Uninitialized:
		return later("it has not begun")
	}
	if s.Closed {
		return Outlook{Prospect: Over, Reason: "its main authority closed it", Met: true}
	}
	if key != nil {
		if !admits {
			return later(fmt.Sprintf("it admits only keys that its join authority authorized, and %s is not authorized", key))
		}
		for _, out := range s.Authority.Ejections {
			if out.Client == coordinator.ClientID(*key) && s.Progress.Epoch < out.Until {
				return later(fmt.Sprintf("it excludes %s until epoch %d: %s", key, out.Until, out.Reason))
			}
		}
	}
	if s.RunState == coordinator.Paused {
		return later("its main authority paused it")
	}
	training := s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness
	return Outlook{Met: true, Progress: Progress{Step: s.Progress.Step, Clients: len(s.Epoch.Clients) + len(s.Pending), Training: training}}
}
