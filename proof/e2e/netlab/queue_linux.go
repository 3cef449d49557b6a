package netlab

import "time"

// Queue is the queue discipline of a link.
type Queue int

// Queues.
const (
	// FIFO sends packets in order of arrival. A full queue drops new packets.
	FIFO Queue = iota
	// Fair serves the flows in turn, like fq_codel: a new flow first, and each flow with the same
	// number of bytes. A flow whose packets wait too long loses one from time to time.
	Fair
)

const (
	quantum  = mtu + 94               // bytes that a flow may send when it is its turn
	patience = 20 * time.Millisecond  // packets of a flow may wait this long, or four packets
	interval = 100 * time.Millisecond // between two packets that a flow loses
)

// fairQueue shares a rate among flows. It is not safe for concurrent use.
type fairQueue struct {
	rate  int64 // bit/s
	limit int64 // bytes in the queue
	flows map[flow]*flowQueue
	fresh []*flowQueue // flows without a turn since their arrival
	turns []*flowQueue // flows waiting for their next turn
	bytes int64
	free  time.Time // when the last accepted packet has left
}

// flowQueue is the packets of one flow.
type flowQueue struct {
	of      flow
	packets []packet // at: time of arrival
	bytes   int64
	credit  int64
	dropped time.Time // time of its last loss
}

func newFairQueue(rate, limit int64) *fairQueue {
	return &fairQueue{rate: rate, limit: limit, flows: make(map[flow]*flowQueue)}
}

// put adds a packet. If the queue is full, the longest flow loses packets. It returns the number of
// lost packets.
func (q *fairQueue) put(now time.Time, data []byte) (lost int64) {
	of, _ := parse(data)
	f := q.flows[of]
	if f == nil {
		f = &flowQueue{of: of, credit: quantum}
		q.flows[of] = f
		q.fresh = append(q.fresh, f)
	}
	if q.bytes == 0 && q.free.Before(now) {
		q.free = now
	}
	f.packets = append(f.packets, packet{at: now, data: data})
	f.bytes += int64(len(data))
	q.bytes += int64(len(data))
	for q.bytes > q.limit {
		q.lose(q.longest())
		lost++
	}
	return lost
}

func (q *fairQueue) longest() *flowQueue {
	var longest *flowQueue
	for _, list := range [][]*flowQueue{q.fresh, q.turns} {
		for _, f := range list {
			if longest == nil || f.bytes > longest.bytes {
				longest = f
			}
		}
	}
	return longest
}

// lose drops the first packet of a flow.
func (q *fairQueue) lose(f *flowQueue) {
	size := int64(len(f.packets[0].data))
	f.packets[0] = packet{}
	f.packets = f.packets[1:]
	f.bytes -= size
	q.bytes -= size
}

// next removes the packet that leaves next. at is the time when it has left.
func (q *fairQueue) next(now time.Time) (p packet, at time.Time, lost int64, ok bool) {
	for q.bytes > 0 {
		list := &q.turns
		if len(q.fresh) > 0 {
			list = &q.fresh
		}
		f := (*list)[0]
		if len(f.packets) == 0 || f.credit <= 0 {
			*list = (*list)[1:]
			if len(f.packets) == 0 {
				delete(q.flows, f.of)
			} else {
				f.credit += quantum
				q.turns = append(q.turns, f)
			}
			continue
		}
		if len(f.packets) > 4 && now.Sub(f.packets[0].at) > patience && now.Sub(f.dropped) > interval {
			f.dropped = now
			q.lose(f)
			lost++
			continue
		}
		p = f.packets[0]
		q.lose(f)
		f.credit -= int64(len(p.data))
		if late := now.Add(-patience); q.free.Before(late) { // this process was not woken in time
			q.free = late
		}
		q.free = q.free.Add(onLink(len(p.data), q.rate))
		return p, q.free, lost, true
	}
	clear(q.flows)
	q.fresh, q.turns = nil, nil
	return packet{}, time.Time{}, lost, false
}

// onLink returns the time that a packet takes to leave.
func onLink(bytes int, rate int64) time.Duration {
	return time.Duration(int64(bytes) * 8 * int64(time.Second) / rate)
}
