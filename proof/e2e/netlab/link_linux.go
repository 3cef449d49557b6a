package netlab

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueue is how many bytes wait for a link, as in a router's buffer: more is lost. A link that carries more
// than that there and back has room for as much as it carries.
const maxQueue = 256 << 10

func (l Link) queue() int64 { return max(maxQueue, int64(2*l.Delay.Seconds()*float64(l.Rate))/8) }

// Link is what a host's packets go through on their way out. The zero value is a
// perfect link.
type Link struct {
	Delay        time.Duration // of every packet, one way
	LossPerMille int           // packets lost of a thousand
	Rate         int64         // bits a second; 0: no limit
}

// Traffic counts what a host sent.
type Traffic struct {
	Bytes, Packets int64 // taken from the host, IP headers included
	Lost           int64 // packets lost on the link, at a cut or at a firewall
}

// packet is on its way.
type packet struct {
	at   time.Time // when it arrives
	data []byte
}

// uplink carries what one host sends, in order.
type uplink struct {
	link   Link
	random *rand.Rand // of the goroutine that reads the host's device

	free    time.Time // when the last packet taken has left
	waiting chan packet

	cut                  atomic.Bool
	bytes, packets, lost atomic.Int64
}

func newUplink(link Link, seed, host uint64) *uplink {
	return &uplink{link: link, random: rand.New(rand.NewPCG(seed, host)), waiting: make(chan packet, 4096)}
}

// take accepts a packet from the host at a time, or loses it.
func (u *uplink) take(now time.Time, data []byte) {
	u.bytes.Add(int64(len(data)))
	u.packets.Add(1)
	if u.cut.Load() || u.random.IntN(1000) < u.link.LossPerMille {
		u.lost.Add(1)
		return
	}
	if u.free.Before(now) {
		u.free = now
	}
	if u.link.Rate > 0 {
		queued := int64(u.free.Sub(now)) * u.link.Rate / 8 / int64(time.Second)
		if queued > u.link.queue() {
			u.lost.Add(1)
			return
		}
		u.free = u.free.Add(time.Duration(int64(len(data)) * 8 * int64(time.Second) / u.link.Rate))
	}
	select {
	case u.waiting <- packet{at: u.free.Add(u.link.Delay), data: data}:
	default:
		u.lost.Add(1)
	}
}

func (u *uplink) traffic() Traffic {
	return Traffic{Bytes: u.bytes.Load(), Packets: u.packets.Load(), Lost: u.lost.Load()}
}

// flow is one direction of a conversation between two ports.
type flow struct {
	protocol byte
	from, to netip.AddrPort
}

// firewall remembers whom a guarded host has written to.
type firewall struct {
	mu    sync.Mutex
	known map[flow]bool
}

func (f *firewall) sent(w flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known[w] = true
}

// admits says whether a packet answers one that went out.
func (f *firewall) admits(w flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[flow{protocol: w.protocol, from: w.to, to: w.from}]
}

// parse reads an IPv4 packet's flow; ok is false for anything else. Packets without
// ports have port 0.
func parse(data []byte) (w flow, ok bool) {
	if len(data) < 20 || data[0]>>4 != 4 {
		return flow{}, false
	}
	header := int(data[0]&0xf) * 4
	source, target := netip.AddrFrom4([4]byte(data[12:16])), netip.AddrFrom4([4]byte(data[16:20]))
	var sourcePort, targetPort uint16
	const tcp, udp = 6, 17
	if p := data[9]; (p == tcp || p == udp) && len(data) >= header+4 {
		sourcePort = uint16(data[header])<<8 | uint16(data[header+1])
		targetPort = uint16(data[header+2])<<8 | uint16(data[header+3])
	}
	return flow{data[9], netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(target, targetPort)}, true
}
