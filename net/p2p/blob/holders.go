package blob

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
)

const (
	streamsPerHolder = 4   // of all fetches of a store together
	maxKnown         = 512 // remembered holders that are no longer members
	// rateShare is the weight of a new measurement of a holder's rate.
	rateShare = 0.3
	// rateFloor is the minimum number of bytes for a measurement, because a small payload shows
	// little about a rate.
	rateFloor = 64 << 10 // bytes
	// rateMemory is how long a measured rate is valid. Afterwards a slow holder is tried again.
	rateMemory = 5 * time.Minute

	// A holder is silent if no byte of its answer arrives within timeoutFactor times the longest
	// recent wait, but at least leastTimeout. With each faster answer, the longest wait loses
	// waitShare of the difference.
	timeoutFactor = 4
	leastTimeout  = 500 * time.Millisecond
	waitShare     = 0.05
	// silentMemory is how long a holder that was silent is asked after the others.
	silentMemory = 30 * time.Second
)

// book contains a store's records about the holders that it fetches from.
type book struct {
	mu    sync.Mutex
	known map[identity.ID]*account
	wait  time.Duration // longest recent wait for a first byte; 0: not measured
	freed chan struct{} // closed when a stream becomes free; nil: no waiters
}

// account is the record of one holder.
type account struct {
	rate     float64 // bytes per second of one stream; 0: not measured
	measured time.Time
	load     int       // open streams to it
	bulk     time.Time // time since which its streams are known to be slow; zero: they are not
	silent   time.Time // time at which an attempt was ended because of silence; zero: it has delivered since
}

// rank is the sort key of a holder.
type rank struct {
	avoided bool    // misbehaved, see p2p.Penalty
	silent  bool    // did not answer the last request
	relayed bool    // reached through another member
	wait    float64 // expected wait for the next byte, relative; 0: unknown
}

func (b *book) account(id identity.ID, n *p2p.Node) *account {
	if b.known == nil {
		b.known = make(map[identity.ID]*account)
	}
	a := b.known[id]
	if a == nil {
		if len(b.known) >= maxKnown {
			for other, a := range b.known {
				if a.load == 0 && !n.IsMember(other) {
					delete(b.known, other)
				}
			}
		}
		a = &account{}
		b.known[id] = a
	}
	return a
}

// acquire takes one of the streams to a holder, if one is free.
func (b *book) acquire(n *p2p.Node, id identity.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(id, n)
	if a.load >= streamsPerHolder {
		return false
	}
	a.load++
	return true
}

// waitFreed returns a channel that is closed when some holder has a free stream again.
func (b *book) waitFreed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// delivery is the result of one attempt.
type delivery struct {
	bytes  uint64
	waited time.Duration // wait for the first byte; 0: none came
	took   time.Duration
	silent bool // ended because nothing came
}

// release returns the stream, with the measurements.
func (b *book) release(n *p2p.Node, id identity.ID, d delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(id, n)
	a.load--
	switch {
	case d.silent:
		a.silent, a.rate = time.Now(), 0 // it may have gone
	case d.bytes > 0:
		a.silent = time.Time{}
	}
	switch {
	case d.waited > b.wait:
		b.wait = d.waited
	case d.waited > 0:
		b.wait -= time.Duration(waitShare * float64(b.wait-d.waited))
	}
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
	if d.silent || d.took <= 0 || d.bytes < rateFloor && d.took < slowGrace {
		return
	}
	rate := max(float64(d.bytes)/d.took.Seconds(), 1)
	if a.rate == 0 {
		a.rate = rate
	}
	a.rate += rateShare * (rate - a.rate)
	a.measured = time.Now()
}

// answerTimeout returns how long a holder may take until the first byte if other holders could be
// asked. Until there is a measurement it is stallTime, because all holders are slow on a slow link
// that all use at the same time.
func (b *book) answerTimeout() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wait == 0 {
		return stallTime
	}
	return min(max(timeoutFactor*b.wait, leastTimeout), stallTime)
}

// rate returns the rate of a holder on one stream, in bytes per second; 0: unknown.
func (b *book) rate(id identity.ID) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fresh(id)
}

func (b *book) fresh(id identity.ID) float64 {
	if a := b.known[id]; a != nil && time.Since(a.measured) < rateMemory {
		return a.rate
	}
	return 0
}

// slow reports whether a holder's streams are slow: a range would take at least slowTime. They
// count as slow for rateMemory, because later measurements come from other connections.
func (b *book) slow(id identity.ID, length uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	rate := b.fresh(id)
	if rate == 0 {
		return false
	}
	a := b.known[id]
	if time.Since(a.bulk) >= rateMemory && float64(length) > rate*slowTime.Seconds() {
		a.bulk = time.Now()
	}
	return time.Since(a.bulk) < rateMemory
}

func (b *book) rank(n *p2p.Node, id identity.ID, best float64) rank {
	st := rank{avoided: n.Avoids(id), relayed: n.Relayed(id)}
	b.mu.Lock()
	defer b.mu.Unlock()
	load := 0
	if a := b.known[id]; a != nil {
		load, st.silent = a.load, time.Since(a.silent) < silentMemory
	}
	switch rate := b.fresh(id); {
	case rate > 0:
		st.wait = float64(load+1) / rate
	case load > 0: // is already being tried; others need not also try it
		st.wait = float64(load+1) / max(best, 1)
	}
	return st
}

func (s rank) compare(o rank) int {
	return cmp.Or(compareBools(s.avoided, o.avoided), compareBools(s.silent, o.silent), compareBools(s.relayed, o.relayed), cmp.Compare(s.wait, o.wait))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// eligible returns the holders that are members, without duplicates.
func eligible(n *p2p.Node, holders []identity.ID) []identity.ID {
	var ids []identity.ID
	for _, holder := range holders {
		if holder != n.ID() && n.IsMember(holder) && !slices.Contains(ids, holder) {
			ids = append(ids, holder)
		}
	}
	return ids
}

// order sorts holders: the best first, and equal ones in the given order.
func (b *book) order(n *p2p.Node, holders []identity.ID) []identity.ID {
	ranks := make(map[identity.ID]rank, len(holders))
	best := 0.0
	for _, id := range holders {
		best = max(best, b.rate(id))
	}
	for _, id := range holders {
		ranks[id] = b.rank(n, id, best)
	}
	ordered := slices.Clone(holders)
	slices.SortStableFunc(ordered, func(a, c identity.ID) int { return ranks[a].compare(ranks[c]) })
	return ordered
}
