package auditor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"pgregory.net/rapid"
)

// TestOpeningsAreServed checks that openings are served part by part to members and jurors, also by
// a later process, and not to other clients.
func TestOpeningsAreServed(t *testing.T) {
	me, dir := identity.ID{7}, t.TempDir()
	clock := func() time.Time { return time.Unix(1, 0) }
	mine, others := resultID{coordinator.ClientID(me), 5}, resultID{coordinator.ClientID{8}, 5}
	ask := func(o *openings, key resultID, wanted uint64, from identity.ID) (string, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // the answer has arrived
		answer, err := o.answer(ctx, from, partRequest{key, wanted}.encode())
		if err != nil {
			return "", err
		}
		parts, err := decodeAnswer(answer)
		return string(bytes.Join(parts, []byte(" "))), err
	}
	served := audience{{1}: rankMember, {2}: rankJuror}
	o := newOpenings(me, dir, clock)
	o.admit(served, 6)
	if err := o.keep(mine, [][]byte{[]byte("first"), []byte("second")}); err != nil {
		t.Fatal(err)
	}
	o.Add(others, 3, 1, []byte("middle"))
	if got, err := ask(o, mine, 3, identity.ID{1}); err != nil || got != "first second" {
		t.Errorf("two parts on a fast link: %q, %v", got, err)
	}
	if got, err := ask(o, mine, 2, identity.ID{2}); err != nil || got != "second" {
		t.Errorf("the wanted part: %q, %v", got, err)
	}
	if got, err := ask(o, others, 7, identity.ID{2}); err != nil || got != "middle" {
		t.Errorf("a part of a different member: %q, %v", got, err)
	}
	if _, err := ask(o, mine, 1, identity.ID{3}); !errors.Is(err, errNotServed) {
		t.Errorf("a client that is not a member: %v", err)
	}
	if _, err := ask(o, others, 5, identity.ID{2}); !errors.Is(err, errNotKept) {
		t.Errorf("parts that are missing: %v", err)
	}
	o.drop(others)
	if _, err := ask(o, others, 7, identity.ID{2}); !errors.Is(err, errNotKept) {
		t.Errorf("dropped: %v", err)
	}
	if _, err := ask(o, mine, 0, identity.ID{1}); !errors.Is(err, errMalformed) {
		t.Errorf("a request for nothing: %v", err)
	}
	again := newOpenings(me, dir, clock)
	again.admit(served, 6)
	if got, err := ask(again, mine, 2, identity.ID{1}); err != nil || got != "second" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	o.prune(5+openRounds+1, noTrial)
	if got, err := ask(o, mine, 2, identity.ID{1}); err != nil || got != "second" || o.of[mine].parts != nil {
		t.Errorf("from the disk: %q, %v", got, err)
	}
	if err := os.Truncate(again.file(5), 33); err != nil {
		t.Fatal(err)
	}
	if got := newOpenings(me, dir, clock).parts(mine); got != nil {
		t.Errorf("a truncated file: %q", got)
	}
}

// TestFilesOfParts checks that decoding inverts encoding, and that a file with a changed bit is
// refused.
func TestFilesOfParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 9), 1, 64).Draw(t, "parts")
		file := encodeParts(parts)
		got, err := decodeParts(file)
		if err != nil || len(got) != len(parts) {
			t.Fatalf("%d parts, %v", len(got), err)
		}
		for i := range parts {
			if at := got[i]; string(file[at.offset:at.offset+at.size]) != string(parts[i]) {
				t.Fatalf("part %d is at %v, want %x", i, at, parts[i])
			}
		}
		file[rapid.IntRange(0, len(file)-1).Draw(t, "at")] ^= 1
		if _, err := decodeParts(file); !errors.Is(err, errMalformed) {
			t.Fatalf("a changed file: %v", err)
		}
	})
}

// uplink simulates members that request parts from one server over its link. Each member obeys the
// time in the answer, but a hog sends requests all the time.
type uplink struct {
	turns turns
	now   time.Time
	peers []*peer
}

type peer struct {
	id     identity.ID
	rank   rank
	takes  time.Duration // transfer time of one part
	trip   time.Duration // time from an answer to the next request
	hog    bool
	gone   bool // sends one request, and none after it
	ends   func()
	until  time.Time
	again  time.Time
	parts  int
	waited time.Duration // the longest time without a part
	last   time.Time
}

// run advances the time.
func (l *uplink) run(d time.Duration) {
	const step = 10 * time.Millisecond
	for end := l.now.Add(d); l.now.Before(end); l.now = l.now.Add(step) {
		for _, p := range l.peers {
			switch {
			case p.ends != nil && !l.now.Before(p.until):
				p.ends()
				p.ends, p.again = nil, l.now.Add(p.trip)
				p.parts++
				p.waited, p.last = max(p.waited, l.now.Sub(p.last)), l.now
			case p.ends == nil && (p.hog || !l.now.Before(p.again)) && (!p.gone || p.again.IsZero()):
				ctx, cancel := context.WithCancel(context.Background())
				_, later := l.turns.take(ctx, p.id, p.rank, 33<<10, l.now)
				if later == 0 {
					l.turns.sends(1)
				} else {
					cancel()
					p.again = l.now.Add(later + p.trip)
					continue
				}
				p.ends, p.until = cancel, l.now.Add(p.takes)
			}
		}
	}
	for _, p := range l.peers {
		p.waited = max(p.waited, l.now.Sub(p.last))
	}
}

func (l *uplink) add(p peer) *peer {
	p.id, p.last = identity.ID{byte(len(l.peers))}, l.now
	l.peers = append(l.peers, &p)
	return &p
}

// TestTurnsAreFair checks that members that send requests all the time, that receive slowly, or
// that do not come back, get at most their share of the time. Jurors are first.
func TestTurnsAreFair(t *testing.T) {
	l := &uplink{now: time.Unix(1000, 0)}
	var honest, hogs []*peer
	for range 10 {
		honest = append(honest, l.add(peer{rank: rankMember, takes: time.Second}))
	}
	for range 2 {
		hogs = append(hogs, l.add(peer{rank: rankMember, takes: time.Second, hog: true}))
		hogs = append(hogs, l.add(peer{rank: rankMember, takes: time.Hour, hog: true}))
		l.add(peer{rank: rankMember, gone: true, takes: time.Second})
	}
	l.run(2 * time.Minute)
	total := 0
	for _, p := range honest {
		total += p.parts
		if p.waited > 40*time.Second {
			t.Errorf("member %d waited %v for a part, got %d", p.id[0], p.waited, p.parts)
		}
	}
	for _, p := range hogs {
		if p.parts > 2*total/len(honest)+1 {
			t.Errorf("a hog got %d parts, members %d", p.parts, total/len(honest))
		}
	}
	if total < 100 { // of 240 without hogs
		t.Errorf("members got %d parts", total)
	}
	juror := l.add(peer{rank: rankJuror, takes: time.Second})
	l.run(20 * time.Second)
	if juror.parts < 5 {
		t.Errorf("a juror got %d parts", juror.parts)
	}
}

// TestTurnsHaveABudget checks that a member that sends requests without end receives exactly four
// openings in a round.
func TestTurnsHaveABudget(t *testing.T) {
	l := &uplink{now: time.Unix(1000, 0)}
	l.turns.renew(l.now)
	hog := l.add(peer{rank: rankMember, takes: 20 * time.Millisecond, hog: true})
	l.run(25 * time.Second)
	if l.turns.renew(l.now); hog.parts != budgetParts {
		t.Errorf("%d parts, want %d", hog.parts, budgetParts)
	}
	l.run(25 * time.Second)
	if hog.parts != 2*budgetParts {
		t.Errorf("in the next round: %d parts, want %d", hog.parts, 2*budgetParts)
	}
}

// TestTurnsCostNothing checks that a member does not wait if no other member waits.
func TestTurnsCostNothing(t *testing.T) {
	l := &uplink{now: time.Unix(1000, 0)}
	only := l.add(peer{rank: rankMember, takes: 100 * time.Millisecond})
	if l.run(10 * time.Second); only.parts < 85 {
		t.Errorf("%d parts in 10 s of 100 ms each", only.parts)
	}
}

// TestTurnsWaitForRoundTrips checks a link with a queue of seconds, on which every request arrives
// late. Members get their turns, and a hog gets at most the same share.
func TestTurnsWaitForRoundTrips(t *testing.T) {
	l := &uplink{now: time.Unix(1000, 0)}
	var all []*peer
	for i := range 12 {
		all = append(all, l.add(peer{rank: rankMember, takes: 3 * time.Second, trip: 5 * time.Second, hog: i == 0}))
	}
	l.run(4 * time.Minute)
	for i, p := range all[1:] {
		if p.parts < 3 || all[0].parts > 3*p.parts {
			t.Errorf("member %d got %d parts, the hog %d", i+1, p.parts, all[0].parts)
		}
	}
}
