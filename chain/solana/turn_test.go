package solana

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

func listed(n byte, state coordinator.ClientState) coordinator.Client {
	return coordinator.Client{ID: coordinator.ClientID{n}, State: state}
}

func TestRanks(t *testing.T) {
	s := &coordinator.State{Pending: []coordinator.Client{listed(7, 0), listed(8, 0)}}
	s.Epoch.Clients = []coordinator.Client{listed(1, 0), listed(2, coordinator.Dropped), listed(3, 0), listed(4, 0)}
	for sequence := range uint64(12) {
		seen := make(map[int]bool)
		for _, n := range []byte{1, 3, 4, 7, 8} {
			r, ok := rank(s, coordinator.ClientID{n}, sequence)
			if !ok || seen[r] || (r >= 3) != (n >= 7) {
				t.Errorf("sequence %d: client %d has rank %d, %v", sequence, n, r, ok)
			}
			seen[r] = true
		}
	}
	for _, n := range []byte{2, 9} {
		if _, ok := rank(s, coordinator.ClientID{n}, 0); ok {
			t.Errorf("client %d takes part", n)
		}
	}
	first, _ := rank(s, coordinator.ClientID{1}, 0)
	next, _ := rank(s, coordinator.ClientID{1}, 1)
	if first != 0 || next != 1 {
		t.Errorf("the first member has ranks %d, %d", first, next)
	}
}

func TestWaitOfRank(t *testing.T) {
	for rank, want := range map[int]time.Duration{0: 0, 1: 1200, 8: 9600, 9: 30_000, 10: 31_200} {
		if got := waitOfRank(rank, 1200*time.Millisecond, 30*time.Second); got != want*time.Millisecond {
			t.Errorf("rank %d waits %v", rank, got)
		}
	}
}

// TestTickPlan checks the planned ticks in each phase of a run of one client.
func TestTickPlan(t *testing.T) {
	s, err := backendtest.Genesis("r", 1)(coordinator.ClientID{})
	if err != nil {
		t.Fatal(err)
	}
	now, id := uint64(1_000_000), coordinator.ClientID{1}
	plan := func(subject string, armed, slot uint64, want int) {
		t.Helper()
		before := string(s.AppendTo(nil))
		if got := tickPlan(&s, now, armed, slot); got != want {
			t.Errorf("%s: %d ticks, want %d", subject, got, want)
		}
		if string(s.AppendTo(nil)) != before {
			t.Errorf("%s: the state has changed", subject)
		}
	}
	apply := func(nonce uint64, a coordinator.Action) {
		t.Helper()
		if err := s.Apply(id, nonce, a); err != nil {
			t.Fatal(err)
		}
	}
	plan("the run has no clients", 0, 100, 0)
	apply(1, coordinator.Join{})
	plan("a client waits: it arms", 0, 100, 1)
	plan("armed just now", 100, 101, 0)
	plan("armed: it can land in the slot that is drawn from", 100, 102, 0)
	plan("armed: it lands behind the slot that is drawn from", 100, 103, 1)
	plan("armed long ago: it arms again", 100, 501, 1)
	s.Tick(now, [32]byte{1})
	plan("waiting for more", 0, 100, 0)
	now += 1000
	plan("the wait is over", 0, 100, 1)
	s.Tick(now, [32]byte{1})
	apply(2, coordinator.Ready{})
	plan("warm: it arms", 0, 100, 1)
	s.Tick(now, [32]byte{1})
	if s.RunState != coordinator.RoundTrain {
		t.Fatalf("state %v", s.RunState)
	}
	plan("training", 0, 100, 0)
	now += 60_000
	plan("nobody proved the round: the tick needs no draw, and the next phase lasts", 0, 100, 1)
}

// TestNextTick checks that the turns of the ranks follow each other from the time when the tick is
// due, however late a client looks at the account.
func TestNextTick(t *testing.T) {
	begin := time.Unix(5000, 0)
	c := newClock(1)
	c.observe(0, sample{at: begin, slot: 100, unix: 1_000_000})
	s, err := backendtest.Genesis("r", 1)(coordinator.ClientID{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(coordinator.ClientID{1}, 1, coordinator.Join{}); err != nil {
		t.Fatal(err)
	}
	s.Tick(1_000_500, [32]byte{0}) // due at 1,001,500; the chain shows 1,002 s
	pace := Pace{Turn: 1200 * time.Millisecond, Late: 30 * time.Second}
	v := &view{state: &s, since: begin, chain: 1_000_000}
	for _, test := range []struct {
		subject string
		armed   uint64
		rank    int
		looked  time.Duration
		want    time.Duration
	}{
		{"in turn", 0, 0, 0, 2000},
		{"the next", 0, 1, 0, 3200},
		{"seen later", 0, 1, 2500 * time.Millisecond, 3200},
		{"seen much later", 0, 1, 20 * time.Second, 3200},
		{"the last", 0, 10, 0, 2000 + 30_000 + 1200},
		{"armed in this slot: three slots of 400 ms are before the clock", 100, 0, 0, 2000},
		{"armed in a later slot", 110, 0, 0, 13 * 400},
		{"armed in a later slot, the next", 110, 1, 0, 13*400 + 1200},
	} {
		v.armed = test.armed
		at, ok := nextTick(v, c, test.rank, begin.Add(test.looked), pace, 0)
		if got := at.Sub(begin); !ok || got != test.want*time.Millisecond {
			t.Errorf("%s: after %v, want %d ms", test.subject, got, int(test.want))
		}
	}
	v.armed, v.since = 0, begin.Add(10*time.Second) // such as after an action that made it due
	if at, ok := nextTick(v, c, 2, begin.Add(11*time.Second), pace, 0); !ok || at.Sub(begin) != 12_400*time.Millisecond {
		t.Errorf("after %v", at.Sub(begin))
	}
	s.RunState = coordinator.Finished
	if _, ok := nextTick(v, c, 0, begin, pace, 0); ok {
		t.Error("a finished run wants ticks")
	}
}

// TestLookout checks that turns start over for clients that were all cut off: the first rank
// continues at once, and the others wait for it.
func TestLookout(t *testing.T) {
	begin := time.Unix(5000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	v := view{claim: claim{sequence: 7}, since: begin}
	for rank := range 2 {
		var l lookout
		if l.since(&v) != begin || l.at(&v, at(3)) != at(3) {
			t.Errorf("rank %d: before any look", rank)
		}
		if !l.note(&v, rank, true, at(3), time.Second) || l.at(&v, at(3)) != at(4) || l.at(&v, at(9)) != at(9) {
			t.Errorf("rank %d: after a look", rank)
		}
		if l.note(&v, rank, false, at(4), time.Second) || l.at(&v, at(9)) != at(5) {
			t.Errorf("rank %d: it must look again soon because it is cut off", rank)
		}
		if got := l.note(&v, rank, true, at(6), time.Second); got != (rank == 0) || l.since(&v) != at(6) || l.at(&v, at(9)) != at(9) {
			t.Errorf("rank %d: back: its turn %v, since %v", rank, got, l.since(&v))
		}
		if !l.note(&v, rank, true, at(9), time.Second) {
			t.Errorf("rank %d: its turn after it is back", rank)
		}
		l.note(&v, rank, false, at(10), time.Second)
		next := view{claim: claim{sequence: 8}, since: at(11)}
		if l.since(&next) != at(11) || l.at(&next, at(12)) != at(12) || !l.note(&next, rank, true, at(12), time.Second) {
			t.Errorf("rank %d: a new state does not end the absence", rank)
		}
	}
}

func TestClock(t *testing.T) {
	begin := time.Unix(5000, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	c := newClock(3)
	if c.now(begin) != 0 || c.slot(begin) != 0 {
		t.Error("the clock reports a time without a sample")
	}
	// The chain's time is 1,000.6 s at the start, which it shows in whole seconds.
	for ms := 0; ms < 3000; ms += 300 {
		c.observe(0, sample{at: at(ms), slot: 100 + uint64(ms)/200, unix: uint64(1_000_600+ms) / 1000 * 1000})
	}
	if got := c.now(at(5000)); got > 1_005_600 || got < 1_005_400 {
		t.Errorf("after 5 s: %d", got)
	}
	if c.pace < 150*time.Millisecond || c.pace > 280*time.Millisecond {
		t.Errorf("a slot takes %v, want about 200 ms", c.pace)
	}
	if got := c.untilSlot(150, at(2700)).Sub(begin); got < 9*time.Second || got > 12*time.Second {
		t.Errorf("slot 150 after %v", got)
	}
	c.observe(1, sample{at: begin, slot: 101, unix: 1_001_000})
	c.observe(2, sample{at: begin, slot: 1 << 60, unix: 1 << 50}) // a single endpoint
	if got := c.now(at(5000)); got > 1_006_000 {
		t.Errorf("one endpoint set the clock to %d", got)
	}
	if got := c.slot(at(5000)); got > 1000 {
		t.Errorf("one endpoint set the slot to %d", got)
	}
	_ = c.until(math.MaxUint64, begin) // no overflow
	_ = c.untilSlot(math.MaxUint64, begin)
	c.observe(2, sample{at: at(1), slot: 101, unix: 900_000})
	if got := c.now(at(5000)); got > 1_006_000 || got < 1_005_000 {
		t.Errorf("after one went back: %d", got)
	}
}

func TestReadClock(t *testing.T) {
	raw := make([]byte, clockSize)
	binary.LittleEndian.PutUint64(raw, 7)
	binary.LittleEndian.PutUint64(raw[32:], 5)
	if slot, unix, err := readClock(raw); slot != 7 || unix != 5000 || err != nil {
		t.Errorf("slot %d, time %d, %v", slot, unix, err)
	}
	binary.LittleEndian.PutUint64(raw[32:], 1<<63)
	if _, _, err := readClock(raw); err == nil {
		t.Error("a time before 1970 is accepted")
	}
	if _, _, err := readClock(raw[1:]); err == nil {
		t.Error("a short account is accepted")
	}
}
