package p2p

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// turnTime is how long an exchange waits for a slot. It is shorter than the time that a holder of a
// blob may be silent, so that clients do not mistake a busy server for a dead one.
const turnTime = 2 * time.Second

// queue assigns the slots of a protocol. A free slot goes to the member with the fewest slots. If
// all slots are taken, a new member gets a slot from the member with the most slots, if that member
// has at least two. Therefore a few members cannot keep others out by using all slots. Many members
// with one slot each cannot keep others out by reading slowly either: a member without a slot gets
// the slot of a slow reader.
type queue struct {
	perPeer, total int

	mu      sync.Mutex
	shares  map[identity.ID]*share // only members with streams
	serving []*queuedExchange      // oldest first
	waiting []*queuedExchange      // oldest first; empty while slots are free
	leaving int                    // evicted, but still being served
}

// share contains the numbers of one member's streams of a protocol.
type share struct {
	streams int // all streams
	waiting int // streams that wait for a slot
	serving int // streams with a slot
}

// queuedExchange is one exchange that is served or waits for a slot.
type queuedExchange struct {
	from    identity.ID
	end     func()      // ends the exchange soon, without blocking; queue.mu is held
	slow    func() bool // the member reads too slowly; queue.mu is held
	turn    chan struct{}
	evicted bool
}

func newQueue(perPeer, total int) *queue {
	return &queue{perPeer: perPeer, total: total, shares: make(map[identity.ID]*share)}
}

// enter counts a stream of a member, until leave. It reports false if the member has too many
// streams.
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

// take waits for a slot. It reports false if no slot becomes free in time. The member must have
// entered.
func (q *queue) take(ctx context.Context, p *queuedExchange) bool {
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
		return true // its turn came in the meantime
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.shares[p.from].waiting--
	return false
}

// release ends what take started. It reports whether the exchange was evicted.
func (q *queue) release(p *queuedExchange) (evicted bool) {
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

func (q *queue) seat(p *queuedExchange) {
	q.serving = append(q.serving, p)
	q.shares[p.from].serving++
}

func (q *queue) unseat(p *queuedExchange) {
	i := slices.Index(q.serving, p)
	q.serving = slices.Delete(q.serving, i, i+1)
	q.shares[p.from].serving--
}

// evictFor evicts an exchange in favor of the waiting exchange p. The victim belongs to the member
// with the most slots, if it has more than p's member would have, or, if p's member has none, to a
// member that reads slowly.
func (q *queue) evictFor(p *queuedExchange) {
	if q.leaving >= len(q.waiting) {
		return // enough exchanges were already evicted for all that wait
	}
	own := q.shares[p.from]
	expected := own.serving + own.waiting // including p
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

// oldestOfMost returns the oldest exchange of the member with the most slots, or nil if no member
// has more than minimum.
func (q *queue) oldestOfMost(minimum int) (oldest *queuedExchange) {
	for _, p := range q.serving {
		if has := q.shares[p.from].serving; has > minimum {
			oldest, minimum = p, has
		}
	}
	return oldest
}

// oldestSlow returns the oldest exchange with a member that reads too slowly.
func (q *queue) oldestSlow() *queuedExchange {
	i := slices.IndexFunc(q.serving, func(p *queuedExchange) bool { return p.slow() })
	if i < 0 {
		return nil
	}
	return q.serving[i]
}
