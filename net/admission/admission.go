package admission

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limits for unknown clients.
const (
	MaxWaiting = 256                    // connections of a Limiter from NewLimiter
	Grace      = 500 * time.Millisecond // time during which a connection is not evicted for a newer one
	Silence    = 100 * time.Millisecond // the same time for a connection that has not sent any byte
	maxKeys    = 16 << 10               // keys whose recent actions are remembered
)

// Limiter limits the number of connections of unknown clients. It shares its slots between sites
// and, within a site, between networks. If all slots are taken, it evicts the oldest connection of
// the site and network with the most slots in favor of a site or network with fewer. Therefore one
// site cannot keep the other sites out.
type Limiter struct {
	slots int
	ages  bool // a connection may also be evicted because of its age

	mu      sync.Mutex
	waiting map[netip.Prefix][]*Slot // by network, oldest first
	sites   map[netip.Prefix]int     // number of slots
	total   int
}

// Slot is the slot of one connection in a Limiter.
type Slot struct {
	site  netip.Prefix
	from  netip.Prefix // network
	since time.Time
	evict func()
	spoke atomic.Bool
}

// Spoke records that the connection has sent something.
func (s *Slot) Spoke() { s.spoke.Store(true) }

// old reports whether the connection has had enough time to identify itself.
func (s *Slot) old(now time.Time) bool {
	if s.spoke.Load() {
		return now.Sub(s.since) >= Grace
	}
	return now.Sub(s.since) >= Silence
}

// NewLimiter returns a limiter for MaxWaiting connections that have not identified themselves yet.
// They need their slots only briefly: after Grace, or Silence, a connection can be evicted for any
// newer one.
func NewLimiter() *Limiter { return NewBriefLimiter(MaxWaiting) }

// NewBriefLimiter is NewLimiter with a given number of slots, at least one.
func NewBriefLimiter(slots int) *Limiter {
	l := NewLastingLimiter(slots)
	l.ages = true
	return l
}

// NewLastingLimiter returns a limiter for a number of connections, at least one, that have
// identified themselves. It does not evict connections because of their age.
func NewLastingLimiter(slots int) *Limiter {
	return &Limiter{slots: max(1, slots), waiting: make(map[netip.Prefix][]*Slot), sites: make(map[netip.Prefix]int)}
}

// Enter takes a slot, or returns nil if none is available. The limiter calls evict if it evicts the
// connection; evict must not block.
func (l *Limiter) Enter(remote net.Addr, evict func()) *Slot {
	p := newSlot(remote, evict)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.slots {
		victim := l.oldestOfLargest()
		old := l.ages && victim.old(p.since)
		if !l.smaller(p, victim) && !old {
			return nil
		}
		l.remove(victim)
		victim.evict()
	}
	l.add(p)
	return p
}

// Admit takes a slot even if none is free. It is for a connection that already had a slot in another
// Limiter.
func (l *Limiter) Admit(remote net.Addr, evict func()) *Slot {
	p := newSlot(remote, evict)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(p)
	return p
}

func newSlot(remote net.Addr, evict func()) *Slot {
	return &Slot{site: site(remote), from: Network(remote), since: time.Now(), evict: evict}
}

func (l *Limiter) add(p *Slot) {
	l.waiting[p.from] = append(l.waiting[p.from], p)
	l.sites[p.site]++
	l.total++
}

// smaller reports whether p may take the victim's slot: with one more slot, the site of p must still
// have fewer slots than the victim's site. If both are in one site, the same must hold for their
// networks. The caller must hold mu.
func (l *Limiter) smaller(p, victim *Slot) bool {
	if p.site != victim.site {
		return l.sites[p.site]+1 < l.sites[victim.site]
	}
	return len(l.waiting[p.from])+1 < len(l.waiting[victim.from])
}

// oldestOfLargest returns the oldest connection of the largest network of the largest site. The
// caller must hold mu, and at least one slot must be taken.
func (l *Limiter) oldestOfLargest() (victim *Slot) {
	for _, taken := range l.waiting {
		first := taken[0]
		if victim == nil || cmp.Or(
			cmp.Compare(l.sites[first.site], l.sites[victim.site]),
			cmp.Compare(len(taken), len(l.waiting[victim.from])),
			victim.since.Compare(first.since)) > 0 {
			victim = first
		}
	}
	return victim
}

// Leave releases the slot. It may be called more than once.
func (l *Limiter) Leave(p *Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(p)
}

func (l *Limiter) remove(p *Slot) {
	taken := l.waiting[p.from]
	for i, other := range taken {
		if other != p {
			continue
		}
		l.total--
		if l.sites[p.site]--; l.sites[p.site] == 0 {
			delete(l.sites, p.site)
		}
		if len(taken) == 1 {
			delete(l.waiting, p.from)
		} else {
			l.waiting[p.from] = append(append([]*Slot{}, taken[:i]...), taken[i+1:]...)
		}
		return
	}
}

// Network returns the network that counts as one address: an IPv4 address, or a /64 network of
// IPv6. The result is the zero Prefix if remote is not an IP address.
func Network(remote net.Addr) netip.Prefix { return network(remote, 64) }

// site returns the networks that one customer of an internet provider usually has: an IPv4 address,
// or a /48 network of IPv6.
func site(remote net.Addr) netip.Prefix { return network(remote, 48) }

func network(remote net.Addr, bits6 int) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := bits6
	if address.Is4() {
		bits = 32
	}
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// KeyLimits limits the rate of actions of each key, across all its connections. A key is a client's key, or the
// network of an address.
type KeyLimits[K comparable] struct {
	perSecond rate.Limit
	burst     int

	mu      sync.Mutex
	buckets map[K]*rate.Limiter
}

// NewKeyLimits returns limits of perSecond actions a second in the long term, and of bursts of
// burst actions.
func NewKeyLimits[K comparable](perSecond float64, burst int) *KeyLimits[K] {
	return &KeyLimits[K]{perSecond: rate.Limit(perSecond), burst: burst, buckets: make(map[K]*rate.Limiter)}
}

// Of returns the limiter of a key. It forgets keys without recent actions, because their limiters
// would be as full as new ones.
func (k *KeyLimits[K]) Of(id K) *rate.Limiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	bucket := k.buckets[id]
	if bucket != nil {
		return bucket
	}
	if len(k.buckets) >= maxKeys {
		for other, b := range k.buckets {
			if b.Tokens() >= float64(k.burst) {
				delete(k.buckets, other)
			}
		}
	}
	if len(k.buckets) >= maxKeys {
		clear(k.buckets)
	}
	bucket = rate.NewLimiter(k.perSecond, k.burst)
	k.buckets[id] = bucket
	return bucket
}
