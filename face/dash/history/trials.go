package history

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Trial is an accusation with an open or closed vote of a jury.
type Trial struct {
	Accused  string `json:"accused"`
	Accuser  string `json:"accuser"`
	Fault    string `json:"fault"`
	Epoch    uint32 `json:"epoch"`         // in which it began
	Step     uint32 `json:"step"`          // of the result
	Since    uint32 `json:"since"`         // step of the round of the accusation
	Until    uint32 `json:"until"`         // step of the first round at whose end it may end undecided
	Deadline uint64 `json:"until_unix_ms"` // Unix, milliseconds
	Entry    uint64 `json:"entry"`         // of the accusation
	Time     uint64 `json:"t"`             // of the accusation: Unix, milliseconds
	Jury     int    `json:"jury"`          // 0: not drawn yet
	Guilty   int    `json:"guilty"`        // votes
	Innocent int    `json:"innocent"`      // votes

	Outcome string `json:"outcome,omitempty"` // one of the constants Outcome…; empty: it is open
	Ejected string `json:"ejected,omitempty"` // member that was ejected as a result
	End     uint64 `json:"end,omitempty"`     // entry that ended it
}

// Outcomes of a trial.
const (
	outcomeGuilty    = "guilty"
	outcomeInnocent  = "innocent"
	outcomeUndecided = "no decision"
	outcomeGone      = "no decision; the accused had left"
	outcomeNoJury    = "too few members for a jury"
)

// tried records an accusation that starts a trial.
func (h *History) tried(e Entry, s *coordinator.State, a coordinator.Accuse) {
	h.member(e.Actor, s).Accuses++
	m := h.member(a.Client, s)
	m.Tried++
	h.note(e, Event{Kind: eventTrial, Subject: m.ID, Step: a.Step, Detail: a.Fault.String()}, s)
}

// follow updates the open trials from the state.
func (h *History) follow(e Entry, s *coordinator.State) {
	if len(h.Open) == 0 && len(s.Trials) == 0 {
		return
	}
	still := h.Open[:0]
	for _, t := range h.Open {
		if now := find(s, &t); now != nil {
			t.take(now)
			still = append(still, t)
			continue
		}
		h.end(e, s, &t)
	}
	h.Open = still
	for i := range s.Trials {
		t := &s.Trials[i]
		if slices.ContainsFunc(h.Open, func(o Trial) bool { return o.Accused == name(t.Accused) && o.Step == t.Step }) {
			continue
		}
		begun := Trial{
			Accused: name(t.Accused), Accuser: name(t.Accuser), Fault: t.Fault.String(), Epoch: s.Progress.Epoch, Step: t.Step, Since: t.Since,
			Until: t.Since + s.Config.TrialRounds(), Deadline: t.SinceTime + coordinator.TrialTime, Entry: e.Number, Time: e.Time,
		}
		begun.take(t)
		h.Open = append(h.Open, begun)
	}
}

// find returns the trial in a state, or nil.
func find(s *coordinator.State, t *Trial) *coordinator.Trial {
	for i := range s.Trials {
		if now := &s.Trials[i]; now.Step == t.Step && name(now.Accused) == t.Accused {
			return now
		}
	}
	return nil
}

func (t *Trial) take(now *coordinator.Trial) {
	t.Jury, t.Guilty, t.Innocent = int(now.Jurors), int(now.Guilty), int(now.Innocent)
}

// end records the end of a trial: by the vote in this entry, or as time passed.
func (h *History) end(e Entry, s *coordinator.State, t *Trial) {
	t.End, t.Outcome = e.Number, h.outcome(e, s, t)
	loser, reason := h.idOf(s, t.Accused), coordinator.FoundGuilty
	if t.Outcome == outcomeInnocent {
		loser, reason = h.idOf(s, t.Accuser), coordinator.AccusedWrongly
	}
	loses := t.Outcome == outcomeGuilty || t.Outcome == outcomeInnocent && t.Fault == coordinator.FaultResult.String()
	loses = loses && loser != (coordinator.ClientID{}) && h.member(loser, s).Status != statusEjected
	if loses && h.expelled(e, s, loser, reason, t.Fault) {
		t.Ejected = name(loser)
	}
	h.Trials = keepNewest(append(h.Trials, *t), maxTrials)
	h.note(e, Event{Kind: eventTrialOver, Subject: t.Accused, Step: t.Step, Detail: t.Outcome, Count: t.Guilty, Of: t.Jury}, s)
}

// outcome returns the outcome of a trial that is missing from the state after the entry. If the entry
// is the deciding vote, outcome also adds this vote to the trial's counts.
func (h *History) outcome(e Entry, s *coordinator.State, t *Trial) string {
	if vote, ok := e.Action.(coordinator.Vote); ok && vote.Step == t.Step && name(vote.Client) == t.Accused {
		votes, outcome := &t.Innocent, outcomeInnocent
		if vote.Guilty {
			votes, outcome = &t.Guilty, outcomeGuilty
		}
		*votes++
		return outcome
	}
	accused, isMember := s.Member(h.idOf(s, t.Accused))
	switch {
	case t.Jury == 0:
		return outcomeNoJury
	case !isMember || accused.State != coordinator.Healthy:
		return outcomeGone
	default:
		return outcomeUndecided
	}
}

// idOf returns the key of the client in the state whose text form is id.
func (h *History) idOf(s *coordinator.State, id string) coordinator.ClientID {
	for _, list := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending, s.Departed} {
		for i := range list {
			if name(list[i].ID) == id {
				return list[i].ID
			}
		}
	}
	return coordinator.ClientID{}
}

// expelled records an ejection if the state excludes the client for the given reason, and reports
// whether it does. The text of is the cause.
func (h *History) expelled(e Entry, s *coordinator.State, id coordinator.ClientID, reason coordinator.EjectionReason, of string) bool {
	for _, x := range slices.Backward(s.Authority.Ejections) {
		if x.Client != id || x.Reason != reason {
			continue
		}
		why := whyEjected
		if reason != coordinator.ByAuthority {
			why = reason.String()
		}
		if of != "" {
			why += " (" + of + ")"
		}
		h.gone(s, id, e, statusEjected, why)
		h.member(id, s).Until = x.Until
		h.note(e, Event{Kind: eventEjected, Subject: name(id), Detail: why, Until: x.Until}, s)
		return true
	}
	return false
}
