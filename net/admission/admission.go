package admission

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/identity"
)

// Bounds of what strangers can hold.
const (
	MaxWaiting = 256                    // connections under NewLimiter
	Grace      = 500 * time.Millisecond // in which a connection is not given up for a newer one
	Silence    = 100 * time.Millisecond // the same of one that has not sent a byte
	MaxKeys    = 16 << 10               // keys whose recent actions are remembered
)

// Limiter bounds the connections of strangers. It has few places, and shares them between
// sites and, within a site, between networks: when all are taken, the oldest connection of the site
// and network with the most places is evicted in favor of a site or network with fewer. So one site
// cannot keep the other sites out.
type Limiter struct {
	places int
	ages   bool // a connection also gives way because of its age

	mu      sync.Mutex
	waiting map[netip.Prefix][]*Place // by network, oldest first
	sites   map[netip.Prefix]int      // number of places
	total   int
}

// Place is what one connection has of a Limiter.
type Place struct {
	site  netip.Prefix
	from  netip.Prefix // network
	since time.Time
	evict func()
	spoke atomic.Bool
}

// Spoke notes that the connection has sent something.
func (p *Place) Spoke() { p.spoke.Store(true) }

// old reports whether the connection had time enough by now to say who it is.
func (p *Place) old(now time.Time) bool {
	if p.spoke.Load() {
		return now.Sub(p.since) >= Grace
	}
	return now.Sub(p.since) >= Silence
}

// NewLimiter returns a limiter for MaxWaiting connections that have not said yet who they
// are. They need their places for a moment only: after Grace, or Silence, one gives way to any newer
// one.
func NewLimiter() *Limiter { return NewBriefLimiter(MaxWaiting) }

// NewBriefLimiter is NewLimiter with so many places, at least one.
func NewBriefLimiter(places int) *Limiter {
	l := NewLastingLimiter(places)
	l.ages = true
	return l
}

// NewLastingLimiter returns a limiter for so many connections, at least one, that have
// said who they are: none gives way because of its age.
func NewLastingLimiter(places int) *Limiter {
	return &Limiter{places: max(1, places), waiting: make(map[netip.Prefix][]*Place), sites: make(map[netip.Prefix]int)}
}

// Enter takes a place, or returns nil. evict is called if the connection has to give way; it
// must not wait.
func (l *Limiter) Enter(remote net.Addr, evict func()) *Place {
	p := newPlace(remote, evict)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.places {
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

// Admit takes a place even if there is none: for a connection that had a place elsewhere.
func (l *Limiter) Admit(remote net.Addr, evict func()) *Place {
	p := newPlace(remote, evict)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(p)
	return p
}

func newPlace(remote net.Addr, evict func()) *Place {
	return &Place{site: site(remote), from: Network(remote), since: time.Now(), evict: evict}
}

func (l *Limiter) add(p *Place) {
	l.waiting[p.from] = append(l.waiting[p.from], p)
	l.sites[p.site]++
	l.total++
}

// smaller reports whether p may have the victim's place: with one more place, the site of p still has fewer than the
// victim's site. In one site, the same holds for their networks. The caller holds mu.
func (l *Limiter) smaller(p, victim *Place) bool {
	if p.site != victim.site {
		return l.sites[p.site]+1 < l.sites[victim.site]
	}
	return len(l.waiting[p.from])+1 < len(l.waiting[victim.from])
}

// oldestOfLargest returns the oldest place of the largest network of the largest site. The caller holds mu, and a place
// is taken.
func (l *Limiter) oldestOfLargest() (victim *Place) {
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

// Leave gives the place back; it may be called more than once.
func (l *Limiter) Leave(p *Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(p)
}

func (l *Limiter) remove(p *Place) {
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
			l.waiting[p.from] = append(append([]*Place{}, taken[:i]...), taken[i+1:]...)
		}
		return
	}
}

// Network returns the network that counts as one address: an IPv4 address, or a /64 network of
// IPv6. The result is the zero Prefix if remote is not an IP address.
func Network(remote net.Addr) netip.Prefix { return network(remote, 64) }

// site returns the networks that one customer of a provider usually has: an IPv4 address, or a /48
// network of IPv6.
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

// KeyLimits slows down the actions of each key, also over its connections.
type KeyLimits struct {
	perSecond rate.Limit
	burst     int

	mu      sync.Mutex
	buckets map[identity.ID]*rate.Limiter
}

// NewKeyLimits returns limits of so many actions a second in the long term, and so many at
// once.
func NewKeyLimits(perSecond float64, burst int) *KeyLimits {
	return &KeyLimits{perSecond: rate.Limit(perSecond), burst: burst, buckets: make(map[identity.ID]*rate.Limiter)}
}

// Of returns the limiter of a key. Keys that have been quiet are forgotten: a new limiter
// is as full as theirs.
func (k *KeyLimits) Of(id identity.ID) *rate.Limiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	bucket := k.buckets[id]
	if bucket != nil {
		return bucket
	}
	if len(k.buckets) >= MaxKeys {
		for other, b := range k.buckets {
			if b.Tokens() >= float64(k.burst) {
				delete(k.buckets, other)
			}
		}
	}
	if len(k.buckets) >= MaxKeys {
		clear(k.buckets)
	}
	bucket = rate.NewLimiter(k.perSecond, k.burst)
	k.buckets[id] = bucket
	return bucket
}
