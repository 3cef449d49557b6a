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
	maxKnown         = 512 // holders remembered, of those that are members no more
	// rateShare is the weight of a new measurement of a holder's rate.
	rateShare = 0.3
	// rateFloor is the least that is measured: a small payload says little of a rate.
	rateFloor = 64 << 10 // bytes
	// rateMemory is how long a measured rate counts: a holder that was slow is tried again.
	rateMemory = 5 * time.Minute

	// A holder of whose answer nothing has come after timeoutFactor times the longest wait of late is silent, but not
	// before leastTimeout. With each answer that is sooner the longest wait loses waitShare of what it is above it.
	timeoutFactor = 4
	leastTimeout  = 500 * time.Millisecond
	waitShare     = 0.05
	// silentMemory is how long one that was silent is asked after the others.
	silentMemory = 30 * time.Second
)

// book is what a store knows of those it fetches from.
type book struct {
	mu    sync.Mutex
	known map[identity.ID]*account
	wait  time.Duration // the longest for a first byte of late; 0: none was measured
	freed chan struct{} // closed when a stream was given back; nil: nobody waits
}

// account is one holder's.
type account struct {
	rate     float64 // bytes per second of one stream; 0: not measured
	measured time.Time
	load     int       // streams that are open to it
	bulk     time.Time // since when its streams are known to be slow; zero: they are not
	silent   time.Time // when an attempt was ended since nothing came; zero: it has delivered since
}

// rank is how a holder compares with others.
type rank struct {
	avoided bool    // misbehaved, see p2p.Penalty
	silent  bool    // did not answer when it was asked last
	relayed bool    // reached through another member
	wait    float64 // for the next byte, relative; 0: not known yet
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

// acquire takes one of the streams that may be open to a holder.
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

// waitFreed returns a channel that is closed when some holder has a stream free again.
func (b *book) waitFreed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// delivery is what one attempt brought.
type delivery struct {
	bytes  uint64
	waited time.Duration // for the first of them; 0: none came
	took   time.Duration
	silent bool // it was ended since nothing came
}

// release gives it back with what was measured.
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

// answerTimeout is how long a holder may take until the first byte where others could be asked. Until something was
// measured it is stallTime: on a slow line that everybody uses at once all take long.
func (b *book) answerTimeout() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wait == 0 {
		return stallTime
	}
	return min(max(timeoutFactor*b.wait, leastTimeout), stallTime)
}

// rate returns what a holder delivers on one stream, in bytes per second; 0: not known.
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

// slow reports whether a holder's streams are: a range would take one slowTime. They stay so for rateMemory, as what is measured
// meanwhile is of other connections.
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
	case load > 0: // is being tried; that need not be done by everything at once
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

// eligible returns the holders that can be asked: members, each once.
func eligible(n *p2p.Node, holders []identity.ID) []identity.ID {
	var ids []identity.ID
	for _, holder := range holders {
		if holder != n.ID() && n.IsMember(holder) && !slices.Contains(ids, holder) {
			ids = append(ids, holder)
		}
	}
	return ids
}

// order sorts holders: the best first, among equals as they were given.
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
