package solana

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/chain/layout"
)

// maxChain limits the sightings that are kept per endpoint.
const maxChain = 64

// claim is a point in the run's history: its head hashes all events up to it.
type claim struct {
	sequence uint64
	head     [32]byte
}

// sighting is an endpoint's view of the run in one slot.
type sighting struct {
	claim
	slot    uint64
	armed   uint64
	looked  bool            // armed is known; events do not contain it
	account *layout.Account // nil if only the head of the account is known
	body    [32]byte        // hash of the state; zero without account
}

// fault is the kind of an endpoint's disagreement.
type fault string

// The kinds of faults.
const (
	noFault  fault = ""
	silent   fault = "no state"
	outdated fault = "an outdated state"
	invented fault = "a state that differs from the other endpoints"
)

// witness is one endpoint with its consistent history: slots and sequences ascend.
type witness struct {
	chain []sighting
	heard time.Time // time of the newest sighting
	since time.Time // start of its disagreement with the accepted state
	found fault     // kind of that disagreement
	begun time.Time
	fault fault // newest reported fault
}

// agreement decides which state of the run counts. It has no clock: callers pass the time in.
type agreement struct {
	quorum    int
	grace     time.Duration // until an endpoint that disagrees with the accepted state is at fault
	witnesses []witness
	accepted  sighting
	slot      uint64    // newest slot in which a quorum has shown the accepted state
	retired   []retired // previously accepted states, oldest first
}

// retired is an accepted state that a newer one replaced.
type retired struct {
	state sighting // without its account
	at    time.Time
}

func newAgreement(endpoints int, grace time.Duration, now time.Time) *agreement {
	a := &agreement{quorum: endpoints/2 + 1, grace: grace, witnesses: make([]witness, endpoints)}
	for i := range a.witnesses {
		a.witnesses[i].since, a.witnesses[i].heard = now, now
	}
	return a
}

// observe processes an endpoint's sighting. A sighting older than the endpoint's newest slot only
// completes its history. A newer one replaces everything that it contradicts, as after a rollback.
func (a *agreement) observe(endpoint int, s sighting, now time.Time) {
	a.witnesses[endpoint].heard = now
	chain := &a.witnesses[endpoint].chain
	at, same := slices.BinarySearchFunc(*chain, s, func(have, new sighting) int {
		switch {
		case have.sequence < new.sequence:
			return -1
		case have.sequence > new.sequence:
			return 1
		}
		return 0
	})
	last := len(*chain) - 1
	switch {
	case same && (*chain)[at].claim == s.claim:
		(*chain)[at] = merge((*chain)[at], s)
		if at < last && s.slot > (*chain)[last].slot {
			*chain = (*chain)[:at+1] // the endpoint rolled back
		}
	case last < 0 || s.slot > (*chain)[last].slot || s.slot == (*chain)[last].slot && at > last:
		*chain = append((*chain)[:at], s)
	case !same && at <= last && s.slot <= (*chain)[at].slot:
		*chain = slices.Insert(*chain, at, s)
	}
	if len(*chain) > maxChain {
		*chain = slices.Delete(*chain, 0, len(*chain)-maxChain)
	}
	for i := range len(*chain) - 4 { // accounts are large
		(*chain)[i].account = nil
	}
}

// merge combines two sightings of the same claim.
func merge(old, new sighting) sighting {
	if new.account == nil {
		new.account, new.body = old.account, old.body
	}
	if !new.looked || old.looked && old.slot > new.slot {
		new.armed, new.looked = old.armed, old.looked
	}
	new.slot = max(new.slot, old.slot)
	return new
}

// newest returns the last sighting of an endpoint's history.
func (w *witness) newest() (sighting, bool) {
	if len(w.chain) == 0 {
		return sighting{}, false
	}
	return w.chain[len(w.chain)-1], true
}

// has reports whether an endpoint's history contains a claim.
func (w *witness) has(c claim) bool {
	_, found := w.find(c)
	return found
}

// agrees reports whether an endpoint's history contains a state, or at least its head. An endpoint
// that was at fault has to show the whole state.
func (w *witness) agrees(s *sighting) bool {
	own, found := w.find(s.claim)
	return found && (own.body == s.body || own.body == [32]byte{} && w.fault == noFault)
}

// find returns an endpoint's sighting of a claim.
func (w *witness) find(c claim) (sighting, bool) {
	i := slices.IndexFunc(w.chain, func(s sighting) bool { return s.claim == c })
	if i < 0 {
		return sighting{}, false
	}
	return w.chain[i], true
}

// decide accepts the newest state that a quorum shows, and reports whether it changed.
func (a *agreement) decide(now time.Time) (changed bool) {
	best, slot := a.accepted, a.slot
	for i := range a.witnesses {
		for _, s := range a.witnesses[i].chain {
			if s.account == nil || s.sequence <= best.sequence && !a.isRollback(s.claim) {
				continue
			}
			if slots := a.shown(s); len(slots) >= a.quorum {
				best, slot = s, slots[a.quorum-1]
			}
		}
	}
	if best.claim == a.accepted.claim {
		return false
	}
	best.slot = slot
	a.take(best, now)
	return true
}

// take accepts a state.
func (a *agreement) take(s sighting, now time.Time) {
	if a.accepted.account != nil {
		before := a.accepted
		before.account = nil
		if a.retired = append(a.retired, retired{before, now}); len(a.retired) > maxChain {
			a.retired = slices.Delete(a.retired, 0, 1)
		}
	}
	a.accepted, a.slot = s, s.slot
	for i := range a.witnesses {
		if w := &a.witnesses[i]; w.agrees(&s) {
			w.since = now
		}
	}
}

// shown returns the slots in which endpoints showed this state, newest first.
func (a *agreement) shown(s sighting) []uint64 {
	var slots []uint64
	for i := range a.witnesses {
		if other, ok := a.witnesses[i].find(s.claim); ok && other.body == s.body {
			slots = append(slots, other.slot)
		}
	}
	slices.SortFunc(slots, func(x, y uint64) int {
		if x > y {
			return -1
		}
		return 1
	})
	return slots
}

// isRollback reports whether a quorum has gone back to c, in slots after the slots of the accepted
// state.
func (a *agreement) isRollback(c claim) bool {
	if c == a.accepted.claim {
		return false
	}
	count := 0
	for i := range a.witnesses {
		newest, ok := a.witnesses[i].newest()
		if ok && newest.claim == c && newest.slot > a.slot && !a.witnesses[i].has(a.accepted.claim) {
			count++
		}
	}
	return count >= a.quorum
}

// confirm updates the slots in which the accepted state was shown again. It returns the slot since
// which a tick waits, if any.
func (a *agreement) confirm() (armed uint64) {
	if slots := a.shown(a.accepted); len(slots) >= a.quorum {
		a.slot = max(a.slot, slots[a.quorum-1])
	}
	var newest uint64
	for i := range a.witnesses {
		if s, ok := a.witnesses[i].find(a.accepted.claim); ok && s.looked && s.slot >= newest {
			newest, armed = s.slot, s.armed
		}
	}
	return armed
}

// wants reports whether an endpoint shows a different state in a newer slot, so that whole states
// should be fetched. It returns the endpoints, the one with the newest state first.
func (a *agreement) wants() (endpoints []int, wanted bool) {
	type rated struct {
		endpoint int
		newest   sighting
	}
	var all []rated
	for i := range a.witnesses {
		newest, ok := a.witnesses[i].newest()
		all = append(all, rated{i, newest})
		if ok && newest.claim != a.accepted.claim && (newest.sequence > a.accepted.sequence || newest.slot > a.slot) {
			wanted = wanted || a.witnesses[i].fault == noFault || a.accepted.account == nil
		}
	}
	wanted = wanted || a.accepted.account == nil
	suspect := func(r rated) int {
		if a.witnesses[r.endpoint].fault != noFault {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(x, y rated) int {
		switch {
		case suspect(x) != suspect(y):
			return suspect(x) - suspect(y)
		case x.newest.sequence > y.newest.sequence:
			return -1
		case x.newest.sequence < y.newest.sequence:
			return 1
		}
		return 0
	})
	for _, r := range all {
		endpoints = append(endpoints, r.endpoint)
	}
	return endpoints, wanted
}

// judge finds endpoints that disagree with the accepted state. It returns the endpoints whose fault
// changed, with noFault for a reported fault that has ended.
func (a *agreement) judge(now time.Time) map[int]fault {
	changes := make(map[int]fault)
	for i := range a.witnesses {
		w := &a.witnesses[i]
		found := a.faultOf(w, now)
		if found != w.found {
			w.found, w.begun = found, now
		}
		since := w.since
		switch {
		case found == noFault:
			w.since = now
		case w.fault != noFault: // a different fault has to last for the grace period as well
			since = w.begun
		}
		if found != w.fault && (found == noFault || now.Sub(since) >= a.grace) {
			w.fault = found
			changes[i] = found
		}
	}
	return changes
}

// faultOf compares an endpoint's newest state with the accepted state, and with states that were
// accepted until recently.
func (a *agreement) faultOf(w *witness, now time.Time) fault {
	newest, ok := w.newest()
	switch {
	case !ok || now.Sub(w.heard) >= a.grace:
		return silent
	case a.accepted.account == nil || newest.claim == a.accepted.claim && w.agrees(&a.accepted):
		return noFault
	case newest.sequence < a.accepted.sequence:
		for i := range a.retired {
			if r := &a.retired[i]; r.state.claim == newest.claim && now.Sub(r.at) < a.grace {
				if !w.agrees(&r.state) {
					return invented
				}
				return noFault
			}
		}
		return outdated
	}
	return invented
}

// knows reports whether a claim is accepted, or was until recently.
func (a *agreement) knows(c claim) bool {
	return c == a.accepted.claim || slices.ContainsFunc(a.retired, func(r retired) bool { return r.state.claim == c })
}

// forget drops the history of an endpoint that does not answer any more.
func (a *agreement) forget(endpoint int) { a.witnesses[endpoint].chain = nil }
