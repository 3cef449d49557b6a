package links

import (
	"testing"

	"github.com/psyche-go/psyche/proof/sim/timeline"
)

const (
	second = int64(1_000_000_000)
	mbit   = int64(125_000) // bytes per second
)

// timed is a clock with a timeline.
type timed struct {
	now    int64
	events timeline.Queue
}

func (c *timed) Now() int64                 { return c.now }
func (c *timed) At(time int64, call func()) { c.events.Put(time, call) }
func (c *timed) after(d int64, call func()) { c.At(c.now+d, call) }
func (c *timed) run(until int64) (events int) {
	for c.events.Len() > 0 {
		at, call := c.events.Take()
		if at > until {
			c.events.Put(at, call)
			break
		}
		c.now = at
		call()
		events++
	}
	c.now = until
	return events
}

// rig has machines whose transfers record their arrival times.
type rig struct {
	*timed
	*Network
	arrived map[string]float64 // seconds
}

func newRig(machines ...Access) *rig {
	c := &timed{}
	return &rig{c, New(c, machines), make(map[string]float64)}
}

func (r *rig) send(name string, m Message) *Transfer {
	return r.Send(m, func() { r.arrived[name] = float64(r.now) / float64(second) })
}

func (r *rig) wants(t *testing.T, name string, seconds float64) {
	t.Helper()
	got, arrived := r.arrived[name]
	if !arrived || got < seconds-0.01 || got > seconds+0.01 {
		t.Errorf("%s arrived: %t, after %.3f s, want %.3f s", name, arrived, got, seconds)
	}
}

func access(up, down int64, d Discipline) Access {
	return Access{Up: Line{up, d, second}, Down: Line{down, d, second}}
}

func TestSlowerLinkDecides(t *testing.T) {
	for _, d := range []Discipline{Fair, FIFO} {
		r := newRig(access(mbit, 10*mbit, d), access(mbit, 2*mbit, d))
		r.send("up", Message{From: 0, To: 1, Bytes: mbit})
		r.run(10 * second)
		r.wants(t, "up", 1)
		r = newRig(access(mbit, 2*mbit, d), access(10*mbit, mbit, d))
		r.send("down", Message{From: 1, To: 0, Bytes: 4 * mbit})
		r.send("from outside", Message{From: Outside, To: 1, Bytes: 2 * mbit})
		r.run(10 * second)
		r.wants(t, "down", 2)
		r.wants(t, "from outside", 2)
	}
}

func TestFairSharesAmongMachines(t *testing.T) {
	fast := access(1000*mbit, 1000*mbit, Fair)
	r := newRig(access(mbit, mbit, Fair), fast, fast)
	r.send("alone", Message{From: 0, To: 1, Bytes: mbit})
	for _, name := range []string{"one", "two", "three"} {
		r.send(name, Message{From: 0, To: 2, Bytes: mbit})
	}
	r.run(10 * second)
	r.wants(t, "alone", 2) // machine 2 gets half of the bandwidth, although it has more transfers
	for _, name := range []string{"one", "two", "three"} {
		r.wants(t, name, 4)
	}
}

func TestBulkYields(t *testing.T) {
	fast := access(1000*mbit, 1000*mbit, Fair)
	r := newRig(access(mbit, mbit, Fair), fast, fast)
	r.send("bulk", Message{From: 0, To: 1, Bytes: mbit, Bulk: true})
	r.send("result", Message{From: 0, To: 2, Bytes: mbit * 3 / 4})
	r.run(10 * second)
	r.wants(t, "result", 1)
	r.wants(t, "bulk", 1.75)
}

func TestFIFOBlocksWhatComesBehind(t *testing.T) {
	fast := access(1000*mbit, 1000*mbit, Fair)
	slow := access(mbit, mbit, FIFO)
	r := newRig(slow, fast, fast)
	large := r.send("large", Message{From: 0, To: 1, Bytes: 10 * mbit})
	r.after(2*second, func() { r.send("small", Message{From: 0, To: 2, Bytes: 100}) })
	r.after(5*second, func() {
		if received := large.Abort(); received < 4*mbit || received > 5*mbit {
			t.Errorf("%d bytes arrived in 5 s", received)
		}
		r.send("behind the aborted", Message{From: 0, To: 2, Bytes: 100})
	})
	r.run(20 * second)
	if at := r.arrived["small"]; at < 2.9 || at > 3.3 {
		t.Errorf("arrived after %.3f s, want 2 s and one second for the buffer", at)
	}
	if at := r.arrived["behind the aborted"]; at < 5.9 || at > 6.1 {
		t.Errorf("arrived after %.3f s, want the buffer to empty first", at)
	}
	if _, arrived := r.arrived["large"]; arrived {
		t.Error("an aborted transfer arrived")
	}
}

func TestAbortFreesFairLink(t *testing.T) {
	fast := access(1000*mbit, 1000*mbit, Fair)
	r := newRig(access(mbit, mbit, Fair), fast, fast)
	first := r.send("first", Message{From: 0, To: 1, Bytes: 4 * mbit})
	r.send("second", Message{From: 0, To: 2, Bytes: 2 * mbit})
	r.after(2*second, func() {
		if received := first.Abort(); received < mbit-10 || received > mbit {
			t.Errorf("%d bytes arrived, want %d", received, mbit)
		}
		if first.Abort() != 4*mbit {
			t.Error("an ended transfer was aborted again")
		}
	})
	r.run(10 * second)
	r.wants(t, "second", 3)
}

func TestRatesChange(t *testing.T) {
	for _, d := range []Discipline{Fair, FIFO} {
		r := newRig(access(4*mbit, 4*mbit, d), access(100*mbit, 100*mbit, d))
		r.send("transfer", Message{From: 0, To: 1, Bytes: 4 * mbit})
		for _, at := range []int64{500, 700} {
			r.after(at*second/1000, func() { r.SetRates(0, mbit, mbit) })
		}
		r.run(20 * second)
		r.wants(t, "transfer", 2.5)
	}
}

func TestSlowReaderSetsThePace(t *testing.T) {
	r := newRig(access(100*mbit, mbit, Fair), access(100*mbit, mbit, Fair))
	slow := r.send("slow reader", Message{From: 0, To: 1, Bytes: 1000, Pace: 1})
	r.run(100 * second)
	if received := slow.Abort(); received != 100 {
		t.Errorf("%d bytes arrived in 100 s at one byte per second", received)
	}
}

// TestLinksDoTheirWork sends many transfers between some machines. It checks that every link is
// busy for exactly the time that its bytes need, and that a second run has the same times.
func TestLinksDoTheirWork(t *testing.T) {
	for _, d := range []Discipline{Fair, FIFO} {
		var before map[string]float64
		for range 2 {
			slow, fast := access(2*mbit, 3*mbit, d), access(1000*mbit, 1000*mbit, d)
			r := newRig(slow, fast, fast, fast)
			total := int64(0)
			for i := range 40 {
				size := int64(1000 + 7919*i)
				total += size
				r.send(string(rune('A'+i)), Message{From: 0, To: 1 + i%3, Bytes: size, Bulk: i%4 == 0})
			}
			events := r.run(1000 * second)
			last := 0.0
			for _, at := range r.arrived {
				last = max(last, at)
			}
			if want := float64(total) / float64(2*mbit); last < want-0.01 || last > want+0.01 || len(r.arrived) != 40 {
				t.Errorf("%v: %d arrived, the last after %.3f s, want %.3f s", d, len(r.arrived), last, want)
			}
			if events > 1000 {
				t.Errorf("%v: %d events for 40 transfers", d, events)
			}
			for name, at := range r.arrived {
				if before != nil && before[name] != at {
					t.Errorf("%v: %s arrived after %v s, and %v s", d, name, at, before[name])
				}
			}
			before = r.arrived
		}
	}
}
