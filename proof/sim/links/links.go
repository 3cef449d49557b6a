// Package links simulates the internet connections of machines. Each machine has an uplink and a
// downlink with rates that its transfers share. Time is virtual, and equal calls give equal
// results.
//
//	net := links.New(clock, machines)
//	transfer := net.Send(links.Message{From: 0, To: 1, Bytes: 1 << 20}, func() { … }) // calls back when all bytes arrived
//	received := transfer.Abort()
//
// A transfer sends its bytes over the sender's uplink and the receiver's downlink at the same time,
// and ends when both are done. Each link therefore does exactly its own work, and the slower link
// determines the duration.
package links

import "math"

// Clock is the timeline of a run.
type Clock interface {
	Now() int64 // nanoseconds
	// At schedules a call at a time that is not before Now.
	At(time int64, call func())
}

// Discipline selects how transfers share a link.
type Discipline uint8

// Disciplines.
const (
	// Fair divides the rate equally among the machines at the other end, and a machine's share
	// equally among its transfers, like fq_codel and cake.
	Fair Discipline = iota
	// FIFO serves bytes in the order in which they entered a buffer. A transfer enters the buffer
	// when there is room. Bytes in the buffer block later bytes, even if their transfer was
	// aborted.
	FIFO
)

// String returns the name of the discipline.
func (d Discipline) String() string {
	if d == FIFO {
		return "FIFO"
	}
	return "fair"
}

// Line is one direction of a machine's connection.
type Line struct {
	Rate       int64 // bytes per second, at least 1
	Discipline Discipline
	Buffer     int64 // FIFO: size of the buffer, in nanoseconds at the rate
}

// Access is a machine's connection.
type Access struct{ Up, Down Line }

// Message is a message to send.
type Message struct {
	From, To int // machines
	Bytes    int64
	// Bulk yields at the uplink: while other messages wait there, all bulk together gets one part
	// in bulkShare.
	Bulk bool
	Pace int64 // maximum bytes per second, independently of the links; 0: no limit
}

// bulkShare is the inverse share of an uplink that bulk gets while other messages wait.
const bulkShare = 4

// queue is one direction of a connection.
type queue interface {
	add(j *job)
	remove(j *job) // j is not complete
	setRate(bytesPerSecond int64)
}

// micro is the unit of jobs: a millionth of a byte.
const micro = 1_000_000

// job is the part of a transfer on one link.
type job struct {
	peer   int // machine at the other end
	bulk   bool
	left   int64 // millionths of a byte
	queued int64 // FIFO: bytes of left in the buffer
	done   func()
}

// Network is the connections of all machines.
type Network struct {
	clock    Clock
	up, down []queue
}

// New returns a network. Connections of equal machines behave equally.
func New(clock Clock, machines []Access) *Network {
	n := &Network{clock: clock, up: make([]queue, len(machines)), down: make([]queue, len(machines))}
	for i, m := range machines {
		n.up[i], n.down[i] = newQueue(clock, m.Up, uint64(2*i), len(machines)), newQueue(clock, m.Down, uint64(2*i+1), len(machines))
	}
	return n
}

func newQueue(clock Clock, line Line, number uint64, machines int) queue {
	if line.Discipline == FIFO {
		return newFIFO(clock, line, number)
	}
	return newFair(clock, line, machines)
}

// SetRates changes the rates of a machine's connection, in bytes per second. Transfers continue.
func (n *Network) SetRates(machine int, up, down int64) {
	n.up[machine].setRate(up)
	n.down[machine].setRate(down)
}

// Transfer is a message on its way.
type Transfer struct {
	network  *Network
	message  Message
	up, down *job
	begun    int64
	waits    int // incomplete parts
	ended    bool
	arrived  func()
}

// Outside is the number of a machine outside of the network, whose links have an unlimited rate.
const Outside = -1

// Send starts a transfer and calls arrived when all bytes have arrived, unless the transfer is
// aborted before.
func (n *Network) Send(m Message, arrived func()) *Transfer {
	t := &Transfer{network: n, message: m, begun: n.clock.Now(), waits: 1, arrived: arrived}
	bytes := max(m.Bytes, 1)
	if m.From != Outside {
		t.waits++
		t.up = &job{peer: m.To, bulk: m.Bulk, left: bytes * micro, done: t.part}
		n.up[m.From].add(t.up)
	}
	if m.To != Outside {
		t.waits++
		t.down = &job{peer: m.From, left: bytes * micro, done: t.part}
		n.down[m.To].add(t.down)
	}
	last := n.clock.Now()
	if m.Pace > 0 {
		last += nanoseconds(bytes*micro, 1, m.Pace)
	}
	if last == n.clock.Now() {
		t.part()
	} else {
		n.clock.At(last, t.part)
	}
	return t
}

// part is called when the uplink, the downlink or the pace is done.
func (t *Transfer) part() {
	t.waits--
	if t.waits == 0 && !t.ended {
		t.ended = true
		if t.arrived != nil {
			t.network.clock.At(t.network.clock.Now(), t.arrived)
		}
	}
}

// Abort stops the transfer and returns the number of bytes that have arrived. Its share of the
// links is free at once. Bytes in a FIFO buffer stay there. Abort does nothing after the transfer
// has ended.
func (t *Transfer) Abort() (received int64) {
	m, n := t.message, t.network
	if t.ended {
		return m.Bytes
	}
	t.ended = true
	left := int64(0)
	if t.up != nil {
		n.up[m.From].remove(t.up)
		left = t.up.left
	}
	if t.down != nil {
		n.down[m.To].remove(t.down)
		left = max(left, t.down.left)
	}
	received = m.Bytes - (left+micro-1)/micro
	if m.Pace > 0 {
		received = min(received, amount(n.clock.Now()-t.begun, 1, m.Pace)/micro)
	}
	return max(received, 0)
}

// none is the time of an event that does not happen.
const none = int64(math.MaxInt64)
