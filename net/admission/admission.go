package admission

import (
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
	MaxWaiting = 256                    // connections in a Lobby
	Grace      = 500 * time.Millisecond // in which a connection is not given up for a newer one
	Silence    = 100 * time.Millisecond // the same of one that has not sent a byte
	MaxKeys    = 16 << 10               // keys whose recent actions are remembered
)

// Lobby has the connections of strangers. It has few places, and shares them between
// addresses: when all are taken, the oldest connection of the address that has the most
// gives way to an address that has fewer. So the connections of some addresses do not keep
// the others out.
type Lobby struct {
	places int
	ages   bool // a connection also gives way because of its age

	mu      sync.Mutex
	waiting map[netip.Prefix][]*Guest // oldest first
	total   int
}

// Guest is one connection in a Lobby.
type Guest struct {
	from  netip.Prefix
	since time.Time
	evict func()
	spoke atomic.Bool
}

// Spoke notes that the connection has sent something.
func (g *Guest) Spoke() { g.spoke.Store(true) }

// old reports whether the connection had time enough by now to say who it is.
func (g *Guest) old(now time.Time) bool {
	if g.spoke.Load() {
		return now.Sub(g.since) >= Grace
	}
	return now.Sub(g.since) >= Silence
}

// NewLobby returns an empty lobby for MaxWaiting connections that have not said yet who they
// are. They need their places for a moment only: after Grace, or Silence, one gives way to any newer
// one.
func NewLobby() *Lobby { return NewBriefLobby(MaxWaiting) }

// NewBriefLobby is NewLobby with so many places, at least one.
func NewBriefLobby(places int) *Lobby {
	return &Lobby{places: max(1, places), ages: true, waiting: make(map[netip.Prefix][]*Guest)}
}

// NewLastingLobby returns an empty lobby for so many connections, at least one, that have
// said who they are: none gives way because of its age.
func NewLastingLobby(places int) *Lobby {
	return &Lobby{places: max(1, places), waiting: make(map[netip.Prefix][]*Guest)}
}

// Enter takes a place, or returns nil. evict is called if the connection has to give way; it
// must not wait.
func (l *Lobby) Enter(remote net.Addr, evict func()) *Guest {
	g := newGuest(remote, evict)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.places {
		victim := l.oldestOfLargest()
		smaller := len(l.waiting[g.from])+1 < len(l.waiting[victim.from])
		old := l.ages && victim.old(g.since)
		if !smaller && !old {
			return nil
		}
		l.remove(victim)
		victim.evict()
	}
	l.add(g)
	return g
}

// Admit takes a place even if there is none: for a connection that had a place elsewhere.
func (l *Lobby) Admit(remote net.Addr, evict func()) *Guest {
	g := newGuest(remote, evict)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(g)
	return g
}

func newGuest(remote net.Addr, evict func()) *Guest {
	return &Guest{from: network(remote), since: time.Now(), evict: evict}
}

func (l *Lobby) add(g *Guest) {
	l.waiting[g.from] = append(l.waiting[g.from], g)
	l.total++
}

// oldestOfLargest returns the guest that gives way. The caller holds mu, and somebody is there.
func (l *Lobby) oldestOfLargest() *Guest {
	var largest []*Guest
	for _, guests := range l.waiting {
		if len(guests) > len(largest) || len(guests) == len(largest) && guests[0].since.Before(largest[0].since) {
			largest = guests
		}
	}
	return largest[0]
}

// Leave gives the place back; it may be called more than once.
func (l *Lobby) Leave(g *Guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(g)
}

func (l *Lobby) remove(g *Guest) {
	guests := l.waiting[g.from]
	for i, other := range guests {
		if other != g {
			continue
		}
		l.total--
		if len(guests) == 1 {
			delete(l.waiting, g.from)
		} else {
			l.waiting[g.from] = append(append([]*Guest{}, guests[:i]...), guests[i+1:]...)
		}
		return
	}
}

// network returns what counts as one address: an IPv4 address, or the IPv6 network of one
// site. It is the zero Prefix for what is no IP address.
func network(remote net.Addr) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := 64
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
