package history

import (
	"cmp"
	encodinghex "encoding/hex"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Event is a notable event, with its entry in the log.
type Event struct {
	Entry   uint64 `json:"n"` // number of the log entry
	Time    uint64 `json:"t"` // Unix, milliseconds
	Kind    string `json:"kind"`
	Epoch   uint32 `json:"epoch"`
	Step    uint32 `json:"step"`
	Actor   string `json:"actor,omitempty"`   // key that acted; empty: the run itself changed, because time passed
	Subject string `json:"subject,omitempty"` // affected client
	Detail  string `json:"detail,omitempty"`
	Count   int    `json:"count,omitempty"`
	Of      int    `json:"of,omitempty"`
	Until   uint32 `json:"until,omitempty"` // of an ejection: first epoch in which it may join again
}

// Kinds of an Event.
const (
	eventBegan        = "began"
	eventJoined       = "joined"
	eventLeft         = "left"      // left voluntarily
	eventWithdrawn    = "withdrawn" // withdrawn by the host after it disconnected
	eventReturned     = "returned"  // took back its seat in the running epoch
	eventAccused      = "accused"
	eventTrial        = "trial"
	eventTrialOver    = "trial-over"
	eventFoundLate    = "late"
	eventFoundSlow    = "slow"
	eventDropped      = "dropped"
	eventEjected      = "ejected"
	eventDisagreed    = "disagreed" // reported a different model than the recorded one
	eventNoQuorum     = "no-quorum"
	eventNoCheckpoint = "no-checkpoint"
	eventTooFew       = "too-few"
	eventCheckpoint   = "checkpoint"
	eventUploaded     = "uploaded"
	eventPaused       = "paused"
	eventAuthority    = "authority" // a decision by a key with a role; Detail is the action
	eventOther        = "other"     // an action that this version of the page does not know
	eventFinished     = "finished"
)

// Reasons for a status.
const (
	whyWitnesses   = "witnesses denied its results of two rounds"
	whyLate        = "witnesses did not have its result"
	whySlow        = "witnesses did not have its results of two rounds; rounds of this epoch no longer wait for it"
	whySilent      = "it sent nothing in the whole epoch, or was late and then did not report its model"
	whyItself      = "it withdrew"
	whyHost        = "the host withdrew it after it lost its connection"
	whyNotAdmitted = "the run no longer admits it"
	whyEjected     = "the main authority ejected it"
)

func hex(digest [32]byte) string { return encodinghex.EncodeToString(digest[:]) }

// note adds an event.
func (h *History) note(e Entry, n Event, s *coordinator.State) {
	n.Entry, n.Time, n.Epoch = e.Number, e.Time, s.Progress.Epoch
	n.Step = cmp.Or(n.Step, s.Progress.Step)
	if e.Action != nil {
		n.Actor = name(e.Actor)
	}
	if len(h.Events) == MaxEvents {
		h.Dropped += MaxEvents / 8
		h.Events = keepNewest(h.Events, MaxEvents-MaxEvents/8)
	}
	h.Events = append(h.Events, n)
}

// Marks returns the newest ejections, drops and pauses from a step on, oldest first and at most n.
func (h *History) Marks(from uint32, n int) []Event {
	marks := []Event{}
	for i := len(h.Events) - 1; i >= 0 && len(marks) < n; i-- {
		switch e := &h.Events[i]; e.Kind {
		case eventEjected, eventDropped, eventPaused:
			if e.Step >= from {
				marks = append(marks, *e)
			}
		}
	}
	slices.Reverse(marks)
	return marks
}

// act processes an accepted action.
func (h *History) act(e Entry, s *coordinator.State) {
	actor, known := h.Members[name(e.Actor)]
	if known {
		actor.LastSeen = h.Now
	}
	switch a := e.Action.(type) {
	case coordinator.Join:
		joined := h.member(e.Actor, s)
		joined.LastSeen = h.Now
		joined.call(wire.NameOf(a))
		h.noticeOne(e, s, e.Actor, "")
		h.note(e, Event{Kind: eventJoined, Subject: name(e.Actor)}, s)
	case coordinator.Ready:
	case coordinator.WitnessRound:
		if known {
			actor.Witnessed++
		}
	case coordinator.HealthCheck:
		if known {
			actor.Accuses++
		}
		for _, id := range a.Clients {
			h.accused(e, s, id, a.Step)
		}
	case coordinator.ReportCheckpoint: // evaluated at the epoch's end
	case coordinator.ReportUpload:
		if known {
			actor.Uploads++
		}
		h.Uploads = keepNewest(append(h.Uploads, Upload{
			Entry: e.Number, Time: e.Time, Reporter: name(e.Actor), Step: a.Step,
			Kind: a.Place.Kind.String(), Repo: a.Place.Repo, Revision: a.Place.Revision, Digest: hex(a.Digest),
		}), maxUploads)
		h.note(e, Event{Kind: eventUploaded, Step: a.Step, Detail: a.Place.Repo + " " + a.Place.Revision}, s)
	case coordinator.Withdraw:
		kind, why := eventLeft, whyItself
		if e.Actor != a.Client {
			kind, why = eventWithdrawn, whyHost
		}
		h.gone(s, a.Client, e, statusLeft, why)
		h.note(e, Event{Kind: kind, Subject: name(a.Client)}, s)
	case coordinator.Return:
		h.noticeOne(e, s, e.Actor, "")
		h.note(e, Event{Kind: eventReturned, Subject: name(e.Actor)}, s)
	case coordinator.Eject:
		h.expelled(e, s, a.Client, coordinator.ByAuthority, "")
	case coordinator.Equivocation:
		h.expelled(e, s, a.Client, coordinator.TwoResults, "")
	case coordinator.Accuse:
		h.tried(e, s, a)
	case coordinator.Vote:
		h.member(e.Actor, s).Voted++
	case coordinator.SetPaused:
		detail := "resume"
		if a.Paused {
			detail = "pause"
		}
		h.note(e, Event{Kind: eventAuthority, Detail: detail}, s)
	case coordinator.Authorize:
		detail := "authorize"
		if !a.Allowed {
			detail = "revoke"
		}
		h.note(e, Event{Kind: eventAuthority, Subject: name(a.Grantee), Detail: detail}, s)
	case coordinator.Admit:
		detail := "authorize"
		if !a.Allowed {
			detail = "revoke"
		}
		h.note(e, Event{Kind: eventAuthority, Subject: name(a.Client), Detail: detail}, s)
	case coordinator.UpdateConfig, coordinator.SetDelegates, coordinator.Close:
		h.note(e, Event{Kind: eventAuthority, Detail: e.Name}, s)
	default:
		h.note(e, Event{Kind: eventOther, Detail: e.Name}, s)
	}
}

// accused processes an accepted accusation and its effect.
func (h *History) accused(e Entry, s *coordinator.State, id coordinator.ClientID, step uint32) {
	m := h.member(id, s)
	m.Accused++
	was := m.Status
	client, ok := s.Member(id)
	if !ok {
		return
	}
	now := statusOf(client, false)
	kind, why := eventAccused, ""
	if now != was {
		switch now {
		case statusDropped:
			kind, why = eventDropped, whyWitnesses
		case statusSlow:
			kind, why = eventFoundSlow, whySlow
		case statusLate:
			kind, why = eventFoundLate, whyLate
		}
	}
	h.notice(e, s, client, false, why)
	h.note(e, Event{Kind: kind, Subject: m.ID, Step: step, Detail: why}, s)
}

// noticeOne is like notice, for the client with the given key.
func (h *History) noticeOne(e Entry, s *coordinator.State, id coordinator.ClientID, why string) {
	for i := range s.Pending {
		if s.Pending[i].ID == id {
			h.notice(e, s, &s.Pending[i], true, why)
			return
		}
	}
	if client, ok := s.Member(id); ok {
		h.notice(e, s, client, false, why)
	}
}

// gone records that a client is not in the run any more.
func (h *History) gone(s *coordinator.State, id coordinator.ClientID, e Entry, status, why string) {
	m := h.member(id, s)
	if m.Status == status {
		return
	}
	m.Status, m.Entry, m.Why, m.Until = status, e.Number, why, 0
	if status == statusEjected {
		m.Ejected++
	} else {
		m.Left++
	}
}
