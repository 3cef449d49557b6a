package openai

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
)

// queue shares the running answers, and the slots of waiting requests, fairly between addresses.
// The next turn goes to the address with the fewest running answers. Ties go to the address that
// has waited longest since its last turn or its arrival. Within an address, the oldest request goes
// first. At the limit, the address with the most slots loses its newest waiting request to an
// address with fewer.
type queue struct {
	running int // limit of running answers
	slots   int // limit of running and waiting requests

	mu    sync.Mutex
	all   []*turn              // in order of arrival
	busy  int                  // number of running requests in all
	since map[netip.Prefix]int // last turn, or arrival, of each address with a slot: see enter and start
	turns int                  // number of turns so far
}

func newQueue(running, waiting int) *queue {
	return &queue{running: running, slots: running + waiting, since: make(map[netip.Prefix]int)}
}

// turn is a request's slot in a queue.
type turn struct {
	from  netip.Prefix
	evict func()
	begun chan struct{} // closed when the answer may run

	ready, runs bool
}

// enter takes a slot, or returns nil. If the request is evicted, the queue calls evict, which must
// not block.
func (q *queue) enter(from netip.Prefix, evict func()) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.all) >= q.slots {
		last := q.newestOfLargest()
		if last < 0 || q.count(from)+1 >= q.count(q.all[last].from) {
			return nil
		}
		q.all[last].evict()
		q.remove(last)
	}
	if _, here := q.since[from]; !here {
		// The new address is behind every address whose last turn was earlier, but before the address that had
		// the newest turn.
		q.since[from] = 2 * q.turns
	}
	t := &turn{from: from, evict: evict, begun: make(chan struct{})}
	q.all = append(q.all, t)
	return t
}

// await makes a request eligible for its turn. The turn starts when begun is closed.
func (q *queue) await(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.ready = true
	q.start()
}

// spare takes a running slot for another choice of a running request. It returns nil if there is no
// free running slot, or if a request waits.
func (q *queue) spare(from netip.Prefix) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy >= q.running || len(q.all) > q.busy {
		return nil
	}
	t := &turn{from: from, ready: true, runs: true}
	q.all = append(q.all, t)
	q.busy++
	return t
}

// leave releases a slot.
func (q *queue) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.all, t)
	if i < 0 {
		return // it was evicted
	}
	q.remove(i)
	if t.runs {
		q.busy--
	}
	q.start()
}

func (q *queue) remove(i int) {
	from := q.all[i].from
	if q.all = slices.Delete(q.all, i, i+1); q.count(from) == 0 {
		delete(q.since, from)
	}
}

// counts returns the numbers of running and waiting requests.
func (q *queue) counts() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busy, len(q.all) - q.busy
}

// start starts turns while there is room. The caller holds q.mu.
func (q *queue) start() {
	for q.busy < q.running {
		written := make(map[netip.Prefix]int)
		for _, t := range q.all {
			if t.runs {
				written[t.from]++
			}
		}
		var next *turn
		for _, t := range q.all {
			if t.ready && !t.runs && (next == nil || cmp.Or(written[t.from]-written[next.from], q.since[t.from]-q.since[next.from]) < 0) {
				next = t
			}
		}
		if next == nil {
			return
		}
		next.runs = true
		q.busy++
		q.turns++
		q.since[next.from] = 2*q.turns + 1
		close(next.begun)
	}
}

// count returns the number of slots of an address. The caller holds q.mu.
func (q *queue) count(from netip.Prefix) (n int) {
	for _, t := range q.all {
		if t.from == from {
			n++
		}
	}
	return n
}

// newestOfLargest returns the index of the request to evict, or −1 if none waits. The caller holds
// q.mu.
func (q *queue) newestOfLargest() int {
	slots := make(map[netip.Prefix]int)
	for _, t := range q.all {
		slots[t.from]++
	}
	last := -1
	for i, t := range q.all {
		if !t.runs && (last < 0 || slots[t.from] >= slots[q.all[last].from]) {
			last = i
		}
	}
	return last
}
