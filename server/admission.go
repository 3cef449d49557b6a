package server

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/identity"
)

// Bounds of what strangers can hold.
const (
	maxHandshakes   = 256                    // connections that have not said yet who they are
	handshakeGrace  = 500 * time.Millisecond // in which a handshake is not given up for a newer one
	observersPerKey = 8
	maxKeyBuckets   = 16 << 10 // keys whose recent actions are remembered
)

// lobby has the connections that have not said yet who they are. It has few places, and
// shares them between addresses: when all are taken, the oldest connection of the address
// that has the most gives way to an address that has fewer. So half-open connections of
// some addresses do not keep the others out.
type lobby struct {
	mu      sync.Mutex
	waiting map[netip.Prefix][]*guest // oldest first
	total   int
}

// guest is one connection in the lobby.
type guest struct {
	from  netip.Prefix
	since time.Time
	evict func()
}

func newLobby() *lobby { return &lobby{waiting: make(map[netip.Prefix][]*guest)} }

// enter takes a place, or returns nil. evict is called if the connection has to give way.
func (l *lobby) enter(remote net.Addr, evict func()) *guest {
	g := &guest{from: network(remote), since: time.Now(), evict: evict}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxHandshakes {
		victim := l.oldestOfLargest()
		smaller := len(l.waiting[g.from])+1 < len(l.waiting[victim.from])
		if !smaller && g.since.Sub(victim.since) < handshakeGrace {
			return nil
		}
		l.remove(victim)
		victim.evict()
	}
	l.waiting[g.from] = append(l.waiting[g.from], g)
	l.total++
	return g
}

// oldestOfLargest returns who gives way. The caller holds mu, and somebody is there.
func (l *lobby) oldestOfLargest() *guest {
	var largest []*guest
	for _, guests := range l.waiting {
		if len(guests) > len(largest) || len(guests) == len(largest) && guests[0].since.Before(largest[0].since) {
			largest = guests
		}
	}
	return largest[0]
}

// leave gives the place back; it may be called more than once.
func (l *lobby) leave(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(g)
}

func (l *lobby) remove(g *guest) {
	guests := l.waiting[g.from]
	for i, other := range guests {
		if other != g {
			continue
		}
		l.total--
		if len(guests) == 1 {
			delete(l.waiting, g.from)
		} else {
			l.waiting[g.from] = append(append([]*guest{}, guests[:i]...), guests[i+1:]...)
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

// keyLimits slows down the actions of each key, also over its connections.
type keyLimits struct {
	perSecond rate.Limit
	burst     int

	mu      sync.Mutex
	buckets map[identity.ID]*rate.Limiter
}

func newKeyLimits(perSecond float64, burst int) *keyLimits {
	return &keyLimits{perSecond: rate.Limit(perSecond), burst: burst, buckets: make(map[identity.ID]*rate.Limiter)}
}

// of returns the limiter of a key. Keys that have been quiet are forgotten: a new limiter
// is as full as theirs.
func (k *keyLimits) of(id identity.ID) *rate.Limiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	bucket := k.buckets[id]
	if bucket != nil {
		return bucket
	}
	if len(k.buckets) >= maxKeyBuckets {
		for other, b := range k.buckets {
			if b.Tokens() >= float64(k.burst) {
				delete(k.buckets, other)
			}
		}
	}
	if len(k.buckets) >= maxKeyBuckets {
		clear(k.buckets)
	}
	bucket = rate.NewLimiter(k.perSecond, k.burst)
	k.buckets[id] = bucket
	return bucket
}

// places counts what each key holds of something, up to a bound.
type places struct {
	mu    sync.Mutex
	total int
	taken map[identity.ID]int
}

func (p *places) acquire(id identity.ID, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[id] >= most {
		return false
	}
	if p.taken == nil {
		p.taken = make(map[identity.ID]int)
	}
	p.taken[id]++
	p.total++
	return true
}

func (p *places) release(id identity.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.taken[id]--; p.taken[id] == 0 {
		delete(p.taken, id)
	}
}

func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
