package history

import (
	"cmp"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Member is the history of a participant.
type Member struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`    // display name in its newest Join; not proof of identity
	Renamed   uint64 `json:"renamed,omitempty"` // number of name changes
	Status    string `json:"standing"`          // status: one of the constants Status…
	Why       string `json:"why,omitempty"`
	Entry     uint64 `json:"entry"` // entry of the log that led to the status
	FirstSeen uint64 `json:"first"`
	LastSeen  uint64 `json:"last"` // its newest accepted action
	Epochs    uint32 `json:"epochs"`

	Assigned  uint64 `json:"assigned"`  // rounds in which it had a batch; the sum of the next three
	Counted   uint64 `json:"counted"`   // of Assigned: its result counted, as in a receipt
	Probation uint64 `json:"probation"` // of Assigned: its result was attested but could not count yet
	Lost      uint64 `json:"lost"`      // of Assigned: no quorum attested its result
	Tokens    uint64 `json:"tokens"`    // of its results that counted
	Elected   uint64 `json:"elected"`
	Witnessed uint64 `json:"witnessed"`
	Accused   uint64 `json:"accused"` // accepted accusations against it
	Accuses   uint64 `json:"accuses"` // accepted accusations by it
	Late      uint64 `json:"late"`    // times that it was found late
	Slow      uint64 `json:"slow"`    // times that it was found slow
	Dropped   uint64 `json:"dropped"` // by witnesses, or because it was silent for an epoch
	Ejected   uint64 `json:"ejected"`
	Left      uint64 `json:"left"`      // withdrew, or was withdrawn after it disconnected
	Reports   uint64 `json:"reports"`   // of the model at an epoch's end
	Disagreed uint64 `json:"disagreed"` // of Reports: not the recorded model
	Uploads   uint64 `json:"uploads"`

	ClaimedStep  uint32 `json:"claimed_step,omitempty"`  // step of the newest round in which it claimed a loss as a witness
	ClaimedLoss  uint16 `json:"claimed_loss,omitempty"`  // loss in that claim, in units of coordinator.Claim
	ClaimedSpeed uint32 `json:"claimed_speed,omitempty"` // speed in that claim, tokens per second
	Claims       uint64 `json:"claims,omitempty"`        // rounds in which it claimed a loss
	Far          uint64 `json:"far,omitempty"`           // of Claims: far from the median

	Tried uint64 `json:"tried,omitempty"` // trials against it
	Voted uint64 `json:"voted,omitempty"` // votes in trials of other members
	Until uint32 `json:"until,omitempty"` // while it is ejected: first epoch in which it may join again
}

// Statuses of a member.
const (
	statusWaits   = "waits"
	statusMember  = "member"
	statusLate    = "late"
	statusSlow    = "slow"
	statusLeft    = "left"
	statusDropped = "dropped"
	statusEjected = "ejected"
)

// call records the display name of a member's Join.
func (m *Member) call(name string) {
	if m.Name != "" && m.Name != name {
		m.Renamed++
	}
	m.Name = name
}

// stains counts the incidents of a member.
func (m *Member) stains() uint64 { return m.Accused + m.Tried + m.Dropped + m.Ejected + m.Disagreed }

// member returns the entry of a key, and makes room for a new one if necessary.
func (h *History) member(id coordinator.ClientID, s *coordinator.State) *Member {
	key := name(id)
	if m, known := h.Members[key]; known {
		return m
	}
	if len(h.Members) >= maxMembers {
		h.forget(s)
	}
	m := &Member{ID: key, FirstSeen: h.Now, LastSeen: h.Now}
	h.Members[key] = m
	return m
}

// forget drops an eighth of the members. It drops only former members: first members without incidents,
// and among these the oldest.
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
	for _, m := range gone[:min(len(gone), maxMembers/8)] {
		delete(h.Members, m.ID)
	}
}

// result is the outcome of a member's batches in one round.
type result struct {
	held   bool   // attested by a quorum of witnesses
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

// statusOf returns the status of a client in the state.
func statusOf(c *coordinator.Client, waits bool) string {
	switch {
	case c.State == coordinator.Dropped:
		return statusDropped
	case c.State == coordinator.Ejected:
		return statusEjected
	case c.State == coordinator.Withdrawn:
		return statusLeft
	case waits:
		return statusWaits
	case c.Lateness == coordinator.Slow:
		return statusSlow
	case c.Lateness != coordinator.OnTime:
		return statusLate
	default:
		return statusMember
	}
}

// noticeAll updates the statuses of all members.
func (h *History) noticeAll(e Entry, s *coordinator.State) {
	waits := make(map[coordinator.ClientID]bool, len(s.Pending))
	for i := range s.Pending {
		waits[s.Pending[i].ID] = true
		h.notice(e, s, &s.Pending[i], true, "")
	}
	for _, list := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range list {
			if !waits[list[i].ID] { // otherwise it left, and is pending for the next epoch
				h.notice(e, s, &list[i], false, "")
			}
		}
	}
}

// notice updates a client's status, and records the reason of a change.
func (h *History) notice(e Entry, s *coordinator.State, c *coordinator.Client, waits bool, why string) {
	m, now := h.member(c.ID, s), statusOf(c, waits)
	was := m.Status
	if was == now {
		return
	}
	m.Status, m.Entry, m.Why = now, e.Number, why
	if now != statusEjected {
		m.Until = 0
	}
	switch now {
	case statusMember:
		if was == statusWaits || was == "" {
			m.Epochs++
		}
	case statusDropped:
		m.Dropped++
		if why == "" {
			m.Why = whySilent
			h.note(e, Event{Kind: eventDropped, Subject: m.ID, Detail: whySilent}, s)
		}
	case statusLeft:
		m.Left++
		if why == "" {
			m.Why = whyNotAdmitted
		}
	case statusEjected:
		m.Ejected++
	case statusLate:
		m.Late++
	case statusSlow:
		m.Slow++
	}
}
