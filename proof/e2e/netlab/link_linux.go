package netlab

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueue is the default size of a queue, in bytes. If the bandwidth-delay product of a link is
// larger, its queue has the size of this product.
const maxQueue = 256 << 10

// queue returns the size of the queue at a rate, in bytes.
func (l Link) queue(rate int64) int64 {
	if l.Buffer > 0 {
		return max(int64(l.Buffer.Seconds()*float64(rate))/8, 4*mtu)
	}
	return max(maxQueue, int64(2*l.Delay.Seconds()*float64(rate))/8)
}

// Link is the connection of a host. The zero value is a perfect link.
type Link struct {
	Delay        time.Duration // of every packet, one way
	LossPerMille int           // lost packets per thousand, outgoing
	Rate         int64         // outgoing, in bit/s; 0: unlimited
	Down         int64         // incoming, in bit/s; 0: unlimited
	Queue        Queue         // in both directions
	Buffer       time.Duration // time that a full queue takes to leave; 0: 256 KiB, or the bandwidth-delay product if larger
}

// Traffic counts the packets that a host sent.
type Traffic struct {
	Bytes, Packets int64 // sent by the host, including IP headers
	Lost           int64 // packets lost on the link, at a cut or at a firewall
}

// packet is a packet in transit.
type packet struct {
	at   time.Time // time of its arrival
	data []byte
}

// uplink carries packets in one direction of a host's connection.
type uplink struct {
	link   Link
	rate   int64
	random *rand.Rand // guarded by mu

	mu      sync.Mutex
	free    time.Time  // FIFO: when the last accepted packet has left
	fair    *fairQueue // nil: FIFO
	wake    chan struct{}
	waiting chan packet

	cut                  atomic.Bool
	bytes, packets, lost atomic.Int64
}

// newUplink returns the outgoing direction of a host.
func newUplink(link Link, seed, host uint64) *uplink { return newLine(link, link.Rate, seed, host) }

// newDownlink returns the incoming direction.
func newDownlink(link Link) *uplink {
	link.Delay, link.LossPerMille = 0, 0
	return newLine(link, link.Down, 0, 0)
}

func newLine(link Link, rate int64, seed, host uint64) *uplink {
	u := &uplink{
		link: link, rate: rate, random: rand.New(rand.NewPCG(seed, host)), wake: make(chan struct{}, 1), waiting: make(chan packet, 4096),
	}
	if link.Queue == Fair && rate > 0 {
		u.fair = newFairQueue(rate, link.queue(rate))
	}
	return u
}

// take accepts a packet at a time, or drops it.
func (u *uplink) take(now time.Time, data []byte) {
	u.bytes.Add(int64(len(data)))
	u.packets.Add(1)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cut.Load() || u.random.IntN(1000) < u.link.LossPerMille {
		u.lost.Add(1)
		return
	}
	if u.fair != nil {
		u.lost.Add(u.fair.put(now, data))
		select {
		case u.wake <- struct{}{}:
		default:
		}
		return
	}
	if u.free.Before(now) {
		u.free = now
	}
	if u.rate > 0 {
		queued := int64(u.free.Sub(now)) * u.rate / 8 / int64(time.Second)
		if queued > u.link.queue(u.rate) {
			u.lost.Add(1)
			return
		}
		u.free = u.free.Add(onLink(len(data), u.rate))
	}
	u.hand(packet{at: u.free.Add(u.link.Delay), data: data})
}

// hand queues a packet until its arrival.
func (u *uplink) hand(p packet) {
	select {
	case u.waiting <- p:
	default:
		u.lost.Add(1)
	}
}

// schedule decides which packet leaves next, for a fair link, until done.
func (u *uplink) schedule(done <-chan struct{}) {
	if u.fair == nil {
		return
	}
	for {
		u.mu.Lock()
		p, at, lost, ok := u.fair.next(time.Now())
		u.mu.Unlock()
		u.lost.Add(lost)
		if !ok {
			select {
			case <-u.wake:
				continue
			case <-done:
				return
			}
		}
		select {
		case <-time.After(time.Until(at)):
		case <-done:
			return
		}
		u.hand(packet{at: at.Add(u.link.Delay), data: p.data})
	}
}

// deliver delivers packets at their arrival times, until done. It counts rejected packets as lost.
func (u *uplink) deliver(done <-chan struct{}, accept func(data []byte) bool) {
	for {
		select {
		case p := <-u.waiting:
			time.Sleep(time.Until(p.at))
			if !accept(p.data) {
				u.lost.Add(1)
			}
		case <-done:
			return
		}
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

// firewall records the destinations of a guarded host.
type firewall struct {
	mu    sync.Mutex
	known map[flow]bool
}

func (f *firewall) sent(w flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known[w] = true
}

// admits reports whether a packet answers an outgoing one.
func (f *firewall) admits(w flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[flow{protocol: w.protocol, from: w.to, to: w.from}]
}

// parse reads the flow of an IPv4 packet. ok is false for other packets. Packets without ports have
// port 0.
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
