package auditor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

const (
	// turnSlots is the number of answers that are sent at the same time. The second answer keeps the
	// link busy while the receiver of the first one confirms it.
	turnSlots = 2
	// A transfer keeps its turn for a limited time: several times the usual transfer time, between
	// these limits. A longer transfer continues without its turn; its receiver must wait for the
	// end of the transfer.
	shortestTurn = time.Second
	longestTurn  = time.Minute
	usualTurns   = 4
	// quickly is the time in which the parts of one answer usually arrive.
	quickly = time.Second
	// firstRate is the assumed rate of a transfer before any was measured: 0.25 Mbit/s, in bytes per
	// second.
	firstRate = 31 << 10
	// A member without a turn should ask again after a time between these limits.
	soonestLater = 50 * time.Millisecond
	longestLater = 10 * time.Second
	// waitingTime is how long a turn is kept for a member after the time at which it should have
	// asked again.
	waitingTime = time.Second
	// longestLag is the maximum round-trip time that is taken into account.
	longestLag = 15 * time.Second
	// A member may receive budgetParts parts, as many as four openings, in a round.
	budgetParts = 128
	// recentTime is the interval after which the used time of each member is halved.
	recentTime = 30 * time.Second
)

// turns decides which member is sent the next parts. Only few answers are sent at the same time. The
// first receiver thus has its part early and can forward it, and results on the same link wait only
// for few bytes. Jurors have precedence over other members. Among equals, the member that has used
// the least time is next.
//
// The answer to a member without a turn is the time after which to ask again; turns never blocks.
// The zero value is ready to use. It is not safe for concurrent use.
type turns struct {
	active  []transfer // transfers with a turn
	slow    []transfer // transfers that continue without a turn
	waiting []waiter
	used    map[identity.ID]usage
	usual   time.Duration // usual time of a part when used was last halved; 0: unknown
	renewed time.Time     // when used was last halved
}

// transfer is an answer that is being sent. ctx ends when the answer has arrived, or the receiver gave up.
type transfer struct {
	ctx   context.Context
	to    identity.ID
	began time.Time
	parts int
}

func (s transfer) over() bool { return s.ctx.Err() != nil }

// waiter is a member that is waiting for a turn.
type waiter struct {
	id       identity.ID
	rank     rank
	since    time.Time
	due      time.Time // expected time of its next request
	requests int
}

// usage is the use of one member.
type usage struct {
	took    time.Duration // time of its quickest part since used was last halved; 0: none has arrived
	retryAt time.Time     // when it should ask again
	lag     time.Duration // delay of its requests after that time: the round-trip time of its link
	time    time.Duration // duration of its turns, and time for which turns were kept for it
	parts   int           // number of parts since the budgets were renewed
}

// take gives a turn to a member and returns the maximum number of parts for it, or returns the time
// after which the member should ask again. The turn ends with ctx. size is the size of a part in
// bytes.
func (t *turns) take(ctx context.Context, id identity.ID, r rank, size int, now time.Time) (count int, later time.Duration) {
	t.expire(size, now)
	isSlow := slices.ContainsFunc(t.slow, func(s transfer) bool { return s.to == id })
	switch {
	case t.used[id].parts >= budgetParts, isSlow:
		return 0, longestLater
	}
	w := t.enter(id, r, now)
	if len(t.active) < turnSlots && t.ahead(*w) < turnSlots-len(t.active) {
		t.grant(ctx, *w, now)
		return min(t.partsAtOnce(size), budgetParts-t.used[id].parts), 0
	}
	turn := time.Duration(t.partsAtOnce(size)) * t.usualTime(size) / turnSlots
	later = min(max(time.Duration(t.ahead(*w))*turn, soonestLater<<min(w.requests, 5)), longestLater)
	t.charge(id, usage{})
	u := t.used[id]
	u.retryAt, w.due = now.Add(later), now.Add(later+u.lag)
	t.used[id] = u
	w.requests++
	return 0, later
}

// sends records the number of parts of the newest turn.
func (t *turns) sends(parts int) {
	s := &t.active[len(t.active)-1]
	s.parts = parts
	t.charge(s.to, usage{parts: parts})
}

// renew renews the budgets when a round starts. If recentTime has passed since the last time, it also
// halves the used time of all members.
func (t *turns) renew(now time.Time) {
	if now.Sub(t.renewed) < recentTime {
		for id, u := range t.used {
			u.parts = 0
			t.used[id] = u
		}
		return
	}
	t.renewed, t.usual = now, t.usualTime(0)
	for id, u := range t.used {
		if u = (usage{time: u.time / 2, retryAt: u.retryAt, lag: u.lag}); u.time < time.Millisecond {
			delete(t.used, id)
			continue
		}
		t.used[id] = u
	}
}

// expire ends transfers that are over, turns that take too long, and the waits of members that did
// not ask again.
func (t *turns) expire(size int, now time.Time) {
	t.slow = slices.DeleteFunc(t.slow, func(s transfer) bool { return t.ends(s, now) })
	longest := t.turnTime(size)
	t.active = slices.DeleteFunc(t.active, func(s transfer) bool {
		took := now.Sub(s.began)
		if t.ends(s, now) {
			t.charge(s.to, usage{time: min(took, longest)})
			return true
		}
		if took <= longest {
			return false
		}
		t.charge(s.to, usage{time: longest})
		t.slow = append(t.slow, s)
		return true
	})
	t.waiting = slices.DeleteFunc(t.waiting, func(w waiter) bool {
		lag := t.used[w.id].lag
		if now.Sub(w.due) <= waitingTime+lag/2 {
			return false
		}
		t.charge(w.id, usage{time: waitingTime + lag})
		return true
	})
}

// ends reports whether a transfer is over, and records how long it took.
func (t *turns) ends(s transfer, now time.Time) bool {
	if !s.over() {
		return false
	}
	u := t.used[s.to]
	if took := max(now.Sub(s.began)/time.Duration(max(s.parts, 1)), 1); u.took == 0 || took < u.took {
		u.took = took
	}
	t.used[s.to] = u
	return true
}

// partsAtOnce returns the number of parts in an answer, more if they arrive quickly.
func (t *turns) partsAtOnce(size int) int {
	return max(int(quickly/max(t.usualTime(size), quickly/mostParts)), 1)
}

// turnTime returns how long a transfer keeps its turn. On a slow link all transfers take long, and
// more transfers at the same time would only share the link. If most receivers are fast, a slow
// receiver soon loses its turn.
func (t *turns) turnTime(size int) time.Duration {
	return min(max(usualTurns*t.usualTime(size), shortestTurn), longestTurn)
}

// usualTime returns the time that a part usually takes: the lower third of the measured times. Fewer
// than a third of the members collude, so they can neither raise nor lower this value arbitrarily.
func (t *turns) usualTime(size int) time.Duration {
	var known []time.Duration
	for _, u := range t.used {
		if u.took > 0 {
			known = append(known, u.took)
		}
	}
	switch {
	case len(known) > 0:
		slices.Sort(known)
		return known[len(known)/3]
	case t.usual > 0:
		return t.usual
	}
	return time.Duration(size) * time.Second / firstRate
}

// charge adds to the use of a member.
func (t *turns) charge(id identity.ID, u usage) {
	if t.used == nil {
		t.used = make(map[identity.ID]usage)
	}
	sum := t.used[id]
	sum.time += u.time
	sum.parts += u.parts
	t.used[id] = sum
}

// enter returns the entry of a member in the queue, and measures how late the member's request is.
func (t *turns) enter(id identity.ID, r rank, now time.Time) *waiter {
	if u, known := t.used[id]; known && now.After(u.retryAt) && now.Sub(u.retryAt) <= longestLag {
		late := now.Sub(u.retryAt)
		u.lag = max(late, (u.lag+late)/2)
		t.used[id] = u
	}
	i := slices.IndexFunc(t.waiting, func(w waiter) bool { return w.id == id })
	if i < 0 {
		i = len(t.waiting)
		t.waiting = append(t.waiting, waiter{id: id, since: now, due: now})
	}
	t.waiting[i].rank = r
	return &t.waiting[i]
}

// ahead returns the number of waiting members before a given one. Turns are kept for them until they
// ask again, so a member that asks all the time has no advantage.
func (t *turns) ahead(w waiter) (count int) {
	for _, other := range t.waiting {
		if t.compare(other, w) < 0 {
			count++
		}
	}
	return count
}

// compare orders waiting members by their turn.
func (t *turns) compare(a, b waiter) int {
	return cmp.Or(
		cmp.Compare(a.rank, b.rank), cmp.Compare(t.used[a.id].time, t.used[b.id].time), a.since.Compare(b.since), slices.Compare(a.id[:], b.id[:]),
	)
}

// grant starts the turn of a waiting member.
func (t *turns) grant(ctx context.Context, w waiter, now time.Time) {
	if late := now.Sub(t.used[w.id].retryAt); w.requests > 0 && late > 0 {
		t.charge(w.id, usage{time: min(late, longestLag)}) // the turn was kept for this member
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(other waiter) bool { return other.id == w.id })
	t.active = append(t.active, transfer{ctx: ctx, to: w.id, began: now})
	t.charge(w.id, usage{})
}
