package openai

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
)

// queue shares the answers that are written at once, and the places of requests that wait, between addresses. The next
// turn is of the address that has the fewest answers written, of such that which waits longest since its last turn, or
// since it came, and of its requests the oldest's. When all places are taken, the newest request that waits of the
// address with the most places gives way to an address with fewer.
type queue struct {
	running int // answers at once
	places  int // of requests that run and wait

	mu    sync.Mutex
	all   []*turn              // in the order that they came
	busy  int                  // of them those that run
	since map[netip.Prefix]int // of addresses with a place when they had their last turn, or came: see enter and start
	turns int                  // that there were
}

func newQueue(running, waiting int) *queue {
	return &queue{running: running, places: running + waiting, since: make(map[netip.Prefix]int)}
}

// turn is a request's place in a queue.
type turn struct {
	from  netip.Prefix
	evict func()
	begun chan struct{} // closed when the answer may be written

	ready, runs bool
}

// enter takes a place, or returns nil. evict is called if the place is lost; it must not wait.
func (q *queue) enter(from netip.Prefix, evict func()) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.all) >= q.places {
		last := q.newestOfLargest()
		if last < 0 || q.count(from)+1 >= q.count(q.all[last].from) {
			return nil
		}
		q.all[last].evict()
		q.remove(last)
	}
	if _, here := q.since[from]; !here {
		q.since[from] = 2 * q.turns // before the turn that began last, and behind all before it
	}
	t := &turn{from: from, evict: evict, begun: make(chan struct{})}
	q.all = append(q.all, t)
	return t
}

// await lets a request have its turn, which is when begun is closed.
func (q *queue) await(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.ready = true
	q.start()
}

// spare takes a place that runs at once for a further text of a request that runs, or returns nil: if all run that may,
// or if a request waits.
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

// leave gives a place back.
func (q *queue) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.all, t)
	if i < 0 {
		return // it gave way
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

// counts returns how many requests run and wait.
func (q *queue) counts() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busy, len(q.all) - q.busy
}

// start begins turns while there is room. q.mu is held.
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

// count returns how many places an address has. q.mu is held.
func (q *queue) count(from netip.Prefix) (n int) {
	for _, t := range q.all {
		if t.from == from {
			n++
		}
	}
	return n
}

// newestOfLargest returns where the request is that gives way, or −1 if none waits. q.mu is held.
func (q *queue) newestOfLargest() int {
	places := make(map[netip.Prefix]int)
	for _, t := range q.all {
		places[t.from]++
	}
	last := -1
	for i, t := range q.all {
		if !t.runs && (last < 0 || places[t.from] >= places[q.all[last].from]) {
			last = i
		}
	}
	return last
}
