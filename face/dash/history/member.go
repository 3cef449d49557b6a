package history

import (
	"cmp"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Member is what became of a participant.
type Member struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`    // that it gave itself in its newest Join; nothing proves it
	Renamed   uint64 `json:"renamed,omitempty"` // times that it gave itself another one
	Standing  string `json:"standing"`          // one of the constants Standing…
	Why       string `json:"why,omitempty"`
	Entry     uint64 `json:"entry"` // of the log, that led to the standing
	FirstSeen uint64 `json:"first"`
	LastSeen  uint64 `json:"last"` // its newest action that was accepted
	Epochs    uint32 `json:"epochs"`

	Assigned  uint64 `json:"assigned"`  // rounds in which it had a batch; the sum of the next three
	Counted   uint64 `json:"counted"`   // of them: its result counted, as in a receipt
	Probation uint64 `json:"probation"` // of them: witnesses held its result, which could not count yet
	Lost      uint64 `json:"lost"`      // of them: no quorum held its result
	Tokens    uint64 `json:"tokens"`    // of its results that counted
	Elected   uint64 `json:"elected"`
	Witnessed uint64 `json:"witnessed"`
	Accused   uint64 `json:"accused"` // times that an accepted accusation named it
	Accuses   uint64 `json:"accuses"` // accusations of its own that were accepted
	Late      uint64 `json:"late"`    // times that it was found late
	Slow      uint64 `json:"slow"`    // times that it was found slow
	Dropped   uint64 `json:"dropped"` // by witnesses, or because it was silent for an epoch
	Ejected   uint64 `json:"ejected"`
	Left      uint64 `json:"left"`      // withdrew, or was withdrawn when its connection was gone
	Reports   uint64 `json:"reports"`   // of the model at an epoch's end
	Disagreed uint64 `json:"disagreed"` // of them: not the one that was recorded
	Uploads   uint64 `json:"uploads"`

	ClaimedStep  uint32 `json:"claimed_step,omitempty"`  // of the newest round of which it claimed a loss as a witness
	ClaimedLoss  uint16 `json:"claimed_loss,omitempty"`  // that it claimed then, in units of coordinator.Claim
	ClaimedSpeed uint32 `json:"claimed_speed,omitempty"` // tokens per second, likewise
	Claims       uint64 `json:"claims,omitempty"`        // rounds of which it claimed a loss
	Far          uint64 `json:"far,omitempty"`           // of them: far from the median

	Tried uint64 `json:"tried,omitempty"` // trials against it
	Voted uint64 `json:"voted,omitempty"` // in trials of others
	Until uint32 `json:"until,omitempty"` // while it is ejected: epoch from which on it may join again
}

// Standings of a member.
const (
	StandingWaits   = "waits"
	StandingMember  = "member"
	StandingLate    = "late"
	StandingSlow    = "slow"
	StandingLeft    = "left"
	StandingDropped = "dropped"
	StandingEjected = "ejected"
)

// call notes the name that a member gives itself in a Join.
func (m *Member) call(name string) {
	if m.Name != "" && m.Name != name {
		m.Renamed++
	}
	m.Name = name
}

// stains counts what was held against a member.
func (m *Member) stains() uint64 { return m.Accused + m.Tried + m.Dropped + m.Ejected + m.Disagreed }

// member returns what is known of a key, and makes room for one that is new.
func (h *History) member(id coordinator.ClientID, s *coordinator.State) *Member {
	key := name(id)
	if m, known := h.Members[key]; known {
		return m
	}
	if len(h.Members) >= MaxMembers {
		h.forget(s)
	}
	m := &Member{ID: key, FirstSeen: h.Now, LastSeen: h.Now}
	h.Members[key] = m
	return m
}

// forget drops an eighth of the members: of those that are gone the ones without stains, oldest
// first, then the others.
func (h *History) forget(s *coordinator.State) {
	var gone []*Member
	present := make(map[string]bool)
	for _, list := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending} {
		for i := range list {
			present[name(list[i].ID)] = true
		}
	}
	for id, m := range h.Members {
		if !present[id] {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(gone, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(min(a.stains(), 1), min(b.stains(), 1)), cmp.Compare(a.LastSeen, b.LastSeen), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range gone[:min(len(gone), MaxMembers/8)] {
		delete(h.Members, m.ID)
	}
}

// result is the outcome of a member's batches in one round.
type result struct {
	held   bool   // by a quorum of witnesses
	counts bool   // held, and the member is neither on probation nor warming up its optimizer
	tokens uint64 // that count
}

// trained adds the result of a member in the round that ended.
func (h *History) trained(id coordinator.ClientID, r result) {
	m, known := h.Members[name(id)]
	if !known {
		return
	}
	m.Assigned++
	m.Tokens += r.tokens
	switch {
	case r.counts:
		m.Counted++
	case r.held:
		m.Probation++
	default:
		m.Lost++
	}
}

// standingOf returns what a client of the state is.
func standingOf(c *coordinator.Client, waits bool) string {
	switch {
	case c.State == coordinator.Dropped:
		return StandingDropped
	case c.State == coordinator.Ejected:
		return StandingEjected
	case c.State == coordinator.Withdrawn:
		return StandingLeft
	case waits:
		return StandingWaits
	case c.Lateness == coordinator.Slow:
		return StandingSlow
	case c.Lateness != coordinator.OnTime:
		return StandingLate
	default:
		return StandingMember
	}
}

// noticeAll compares everybody's standing with what it was.
func (h *History) noticeAll(e Entry, s *coordinator.State) {
	waits := make(map[coordinator.ClientID]bool, len(s.Pending))
	for i := range s.Pending {
		waits[s.Pending[i].ID] = true
		h.notice(e, s, &s.Pending[i], true, "")
	}
	for _, list := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range list {
			if !waits[list[i].ID] { // else it left, and came back for the next epoch
				h.notice(e, s, &list[i], false, "")
			}
		}
	}
}

// notice compares a client's standing with what it was, and says why it changed.
func (h *History) notice(e Entry, s *coordinator.State, c *coordinator.Client, waits bool, why string) {
	m, now := h.member(c.ID, s), standingOf(c, waits)
	was := m.Standing
	if was == now {
		return
	}
	m.Standing, m.Entry, m.Why = now, e.Number, why
	if now != StandingEjected {
		m.Until = 0
	}
	switch now {
	case StandingMember:
		if was == StandingWaits || was == "" {
			m.Epochs++
		}
	case StandingDropped:
		m.Dropped++
		if why == "" {
			m.Why = WhySilent
			h.note(e, Event{Kind: EventDropped, Subject: m.ID, Detail: WhySilent}, s)
		}
	case StandingLeft:
		m.Left++
		if why == "" {
			m.Why = WhyNotAdmitted
		}
	case StandingEjected:
		m.Ejected++
	case StandingLate:
		m.Late++
	case StandingSlow:
		m.Slow++
	}
}
