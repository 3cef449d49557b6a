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
	streamsPerHolder = 4   // by all fetches of a store together
	maxKnown         = 512 // number of remembered holders above which former members are forgotten
	// rateShare is the weight of a new measurement of a holder's rate.
	rateShare = 0.3
	// rateFloor is the minimum number of bytes for a measurement of the rate, because a small
	// payload shows little about it.
	rateFloor = 64 << 10 // bytes
	// rateMemory is how long a measured rate is valid. Afterwards a slow holder is tried again.
	rateMemory = 5 * time.Minute

	// A holder is silent if no byte of its answer arrives within timeoutFactor times the longest
	// recent wait, but at least leastTimeout. Each shorter wait reduces the longest recent wait by
	// waitShare of the difference.
	timeoutFactor = 4
	leastTimeout  = 500 * time.Millisecond
	waitShare     = 0.05
	// silentMemory is how long a holder that was silent is asked only after the other holders.
	silentMemory = 30 * time.Second
)

// book contains a store's records of the holders that it fetches from.
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
	bulk     time.Time // time when its streams were last found slow; zero: never
	silent   time.Time // time when an attempt was cancelled because of silence; zero: never, or it has delivered since then
}

// rank is the sort key of a holder.
type rank struct {
	avoided bool    // misbehaved, see p2p.Penalty
	silent  bool    // was silent recently
	relayed bool    // reached through another member
	wait    float64 // relative expected wait, (open streams + 1) / rate; 0: unknown
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
	silent bool // cancelled because nothing came
}

// release returns the stream to the book, with the measurements of the attempt.
func (b *book) release(n *p2p.Node, id identity.ID, d delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(id, n)
	a.load--
	switch {
	case d.silent:
		a.silent, a.rate = time.Now(), 0 // the holder may have left
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
	a.rate = cmp.Or(a.rate, rate)
	a.rate += rateShare * (rate - a.rate)
	a.measured = time.Now()
}

// answerTimeout returns how long a holder may take to send its first byte if another holder could be
// asked. Until a wait has been measured, it returns stallTime, because on a slow link that all
// holders use at the same time, all of them are slow.
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

// slow reports whether a holder's streams are slow, so that a range of this length would take at
// least slowTime. The finding is valid for rateMemory. During that time the holder is measured on
// bulk connections, so new measurements do not apply to its streams.
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
	case load > 0: // its rate is being measured; no other range needs to try it
		st.wait = float64(load+1) / max(best, 1)
	}
	return st
}

func (r rank) compare(o rank) int {
	return cmp.Or(compareBools(r.avoided, o.avoided), compareBools(r.silent, o.silent), compareBools(r.relayed, o.relayed), cmp.Compare(r.wait, o.wait))
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

// order sorts holders, the best first. Equal holders keep their given order.
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
