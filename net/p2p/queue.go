package p2p

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// turnTime is how long an exchange waits for a place. It is less than a holder of a blob may
// be silent, so that a server with much to do is taken for busy and not for dead.
const turnTime = 2 * time.Second

// queue gives out the places of a protocol. Whoever has the fewest is next. A member that
// comes when all places are taken gets one of the member that has the most, if that has at
// least two more: members that are fewer than the places cannot keep out the others. Nor can
// those that have one each and keep it by being slow: a member that has none gets theirs.
type queue struct {
	perPeer, total int

	mu      sync.Mutex
	shares  map[identity.ID]*share // of members with streams, never without
	serving []*place               // oldest first
	waiting []*place               // oldest first; none while there is room
	leaving int                    // evicted, still being served
}

// share is what one member has of a protocol.
type share struct {
	streams int // of these,
	waiting int // wait for a place
	serving int // have one
}

// place is one exchange that is served, or waits for that.
type place struct {
	from    identity.ID
	end     func()      // ends the exchange soon, without waiting; queue.mu is held
	slow    func() bool // the member takes less than it should; queue.mu is held
	turn    chan struct{}
	evicted bool
}

func newQueue(perPeer, total int) *queue {
	return &queue{perPeer: perPeer, total: total, shares: make(map[identity.ID]*share)}
}

// enter counts a stream of a member, until leave.
func (q *queue) enter(from identity.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[from]
	if s == nil {
		s = &share{}
	}
	if s.streams >= q.perPeer {
		return false
	}
	s.streams++
	q.shares[from] = s
	return true
}

func (q *queue) leave(from identity.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[from]
	if s.streams--; s.streams == 0 {
		delete(q.shares, from)
	}
}

// take waits for a place; it reports false when there is none in time. The member has
// entered.
func (q *queue) take(ctx context.Context, p *place) bool {
	q.mu.Lock()
	if len(q.serving)+q.leaving < q.total {
		q.seat(p)
		q.mu.Unlock()
		return true
	}
	p.turn = make(chan struct{})
	q.waiting = append(q.waiting, p)
	q.shares[p.from].waiting++
	q.evictFor(p)
	q.mu.Unlock()

	timer := time.NewTimer(turnTime)
	defer timer.Stop()
	select {
	case <-p.turn:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, p)
	if i < 0 {
		return true // its turn came meanwhile
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.shares[p.from].waiting--
	return false
}

// release ends what take began. It reports whether the place had been taken away.
func (q *queue) release(p *place) (evicted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.evicted {
		q.leaving--
	} else {
		q.unseat(p)
	}
	if len(q.waiting) == 0 {
		return p.evicted
	}
	next := 0
	for i, w := range q.waiting {
		if q.shares[w.from].serving < q.shares[q.waiting[next].from].serving {
			next = i
		}
	}
	w := q.waiting[next]
	q.waiting = slices.Delete(q.waiting, next, next+1)
	q.shares[w.from].waiting--
	q.seat(w)
	close(w.turn)
	return p.evicted
}

func (q *queue) seat(p *place) {
	q.serving = append(q.serving, p)
	q.shares[p.from].serving++
}

func (q *queue) unseat(p *place) {
	i := slices.Index(q.serving, p)
	q.serving = slices.Delete(q.serving, i, i+1)
	q.shares[p.from].serving--
}

// evictFor ends an exchange for p, which waits, if its member has so few places that it
// should have that one.
func (q *queue) evictFor(p *place) {
	if q.leaving >= len(q.waiting) {
		return // those that wait will get the places of those that go
	}
	own := q.shares[p.from]
	expected := own.serving + own.waiting // p included
	victim := q.oldestOfMost(expected)
	if victim == nil && expected == 1 {
		victim = q.oldestSlow()
	}
	if victim == nil {
		return
	}
	q.unseat(victim)
	victim.evicted = true
	q.leaving++
	victim.end()
}

// oldestOfMost returns the oldest exchange of the member with the most places; nil when no
// member has more than least.
func (q *queue) oldestOfMost(least int) (oldest *place) {
	for _, p := range q.serving {
		if has := q.shares[p.from].serving; has > least {
			oldest, least = p, has
		}
	}
	return oldest
}

// oldestSlow returns the oldest exchange with a member that takes too little.
func (q *queue) oldestSlow() *place {
	i := slices.IndexFunc(q.serving, func(p *place) bool { return p.slow() })
	if i < 0 {
		return nil
	}
	return q.serving[i]
}
