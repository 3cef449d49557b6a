package auditor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

const (
	// turnPlaces is the number of parts that are sent at the same time: the second one keeps the link busy
	// while the receiver of the first one confirms it.
	turnPlaces = 2
	// A transfer keeps its turn for a while only: so long as several usual transfers, between these times. A longer
	// transfer continues without its turn; its receiver must wait for the end of the transfer.
	shortestTurn = time.Second
	longestTurn  = time.Minute
	usualTurns   = 4
	// firstRate is the rate, in bytes per second, of a usual transfer while none is known: 0.25 Mbit/s.
	firstRate = 31 << 10
	// A member that waits for a turn asks again after a time between these.
	soonestLater = 50 * time.Millisecond
	longestLater = 10 * time.Second
	// waitingTime is how long a turn is kept for a member after the time at which it was to ask again.
	waitingTime = time.Second
	// A member may receive budgetParts parts, as much as four openings, in a round; in short rounds, in
	// budgetTime.
	budgetParts = 128
	budgetTime  = 30 * time.Second
)

// turns decides which member is sent the next part. Few parts are sent at the same time, so that the first
// receiver has its part early and can pass it on, and so that results wait for few bytes. Among the members that
// ask, jurors are first, then the member that has used the least time.
//
// The answer to a member without a turn is the time after which to ask again; turns never blocks. The zero value is ready for use. It is
// not safe for concurrent use.
type turns struct {
	active  []transfer // that have a turn
	slow    []transfer // that continue without a turn
	waiting []waiter
	used    map[identity.ID]usage
	mean    time.Duration // between turns while members wait
	granted time.Time     // when the newest turn began
	renewed time.Time     // when the budgets were renewed
}

// transfer is one part that is being sent. ctx ends when the part has arrived, or the receiver gave up.
type transfer struct {
	ctx   context.Context
	to    identity.ID
	began time.Time
}

func (s transfer) over() bool { return s.ctx.Err() != nil }

// waiter is a member that waits for a turn.
type waiter struct {
	id    identity.ID
	rank  rank
	since time.Time
	due   time.Time // when it asks again
}

// usage is the use of one member.
type usage struct {
	took  time.Duration // by its newest transfer; 0: none has arrived
	time  time.Duration // of its turns, and of turns that were kept for it while it did not ask
	parts int           // since the budgets were renewed
}

// take gives a turn to a member, or returns the time after which the member is to ask again. The turn ends with
// ctx. Size is that of a part, in bytes.
func (t *turns) take(ctx context.Context, id identity.ID, r rank, size int, now time.Time) (later time.Duration) {
	t.expire(size, now)
	isSlow := slices.ContainsFunc(t.slow, func(s transfer) bool { return s.to == id })
	switch {
	case t.used[id].parts >= budgetParts, isSlow:
		return longestLater
	}
	w := t.enter(id, r, now)
	if len(t.active) < turnPlaces && t.ahead(*w) < turnPlaces-len(t.active) {
		t.grant(ctx, *w, now)
		return 0
	}
	later = min(max(time.Duration(t.ahead(*w))*t.mean, soonestLater), longestLater)
	w.due = now.Add(later)
	return later
}

// renew renews the budgets when a round begins, and halves the time that members have used.
func (t *turns) renew(now time.Time) {
	if now.Sub(t.renewed) < budgetTime {
		return
	}
	t.renewed = now
	for id, u := range t.used {
		if u = (usage{time: u.time / 2, took: u.took}); u.time < time.Millisecond {
			delete(t.used, id)
			continue
		}
		t.used[id] = u
	}
}

// expire ends transfers that are over, turns that take too long, and the waits of members that did not ask again.
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
		if now.Sub(w.due) <= waitingTime {
			return false
		}
		t.charge(w.id, usage{time: waitingTime})
		return true
	})
}

// ends reports whether a transfer is over, and notes how long it took.
func (t *turns) ends(s transfer, now time.Time) bool {
	if !s.over() {
		return false
	}
	u := t.used[s.to]
	u.took = max(now.Sub(s.began), 1)
	t.used[s.to] = u
	return true
}

// turnTime returns how long a transfer keeps its turn. On a slow link all transfers take long, and more of them at the
// same time would only share the link. If most receivers are fast, a slow receiver gives up its turn soon. Since fewer
// than a third of the members collude, they cannot move the lower third of the times.
func (t *turns) turnTime(size int) time.Duration {
	var known []time.Duration
	for _, u := range t.used {
		if u.took > 0 {
			known = append(known, u.took)
		}
	}
	usual := time.Duration(size) * time.Second / firstRate
	if len(known) > 0 {
		slices.Sort(known)
		usual = known[len(known)/3]
	}
	return min(max(usualTurns*usual, shortestTurn), longestTurn)
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

// enter returns the entry of a member in the queue.
func (t *turns) enter(id identity.ID, r rank, now time.Time) *waiter {
	i := slices.IndexFunc(t.waiting, func(w waiter) bool { return w.id == id })
	if i < 0 {
		i = len(t.waiting)
		t.waiting = append(t.waiting, waiter{id: id, since: now, due: now})
	}
	t.waiting[i].rank = r
	return &t.waiting[i]
}

// ahead returns the number of waiting members that come before this one. Turns are kept for them, so a member that
// asks all the time has no advantage.
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

// grant begins the turn of a waiting member.
func (t *turns) grant(ctx context.Context, w waiter, now time.Time) {
	if len(t.waiting) > 1 && !t.granted.IsZero() {
		t.mean = (3*t.mean + min(now.Sub(t.granted), longestLater)) / 4
	}
	if late := now.Sub(w.due); late > 0 {
		t.charge(w.id, usage{time: late}) // the turn was kept for it
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(other waiter) bool { return other.id == w.id })
	t.active, t.granted = append(t.active, transfer{ctx, w.id, now}), now
	t.charge(w.id, usage{parts: 1})
}
