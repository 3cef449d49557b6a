package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
)

// TestDisplacedResultsAreLetGo checks that candidates in every state can be displaced, and that
// their fetches end.
func TestDisplacedResultsAreLetGo(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	const places = tally.MaxCandidates + 3
	for i := range places {
		r.enter(t, r.slot, clienttest.Hash(byte(10+i)))
	}
	stopped := false
	away, here, invalid := r.slot.Candidates[0], r.slot.Candidates[1], r.slot.Candidates[2]
	r.tally.Fetch(away)
	r.take(away, func() { stopped = true }, r.clock.now)
	r.tally.Hold(r.slot, here, 1)
	r.store.blobs[here.Commitment] = []byte("x")
	r.tally.Refuse(invalid)
	for k := range r.tally.Round.Witnesses { // each votes for one candidate more
		c := clienttest.Hash(byte(50 + k))
		r.tally.Round.Witnesses[k].Commitments.Add(r.tally.Round.Seed, c[:])
	}
	for _, c := range []tally.Commitment{clienttest.Hash(1), clienttest.Hash(50), clienttest.Hash(51), clienttest.Hash(52)} {
		if err := r.tally.Receive(identity.ID(r.slot.Owner), clienttest.Announcement(r.slot.Batch, c, [32]byte{}), c[:]); err != nil {
			t.Error(err)
		}
		for _, displaced := range r.tally.Displaced() { // as the caller of Receive does
			r.Stop(displaced)
			r.owner.Drop(displaced.Commitment)
		}
	}
	if known := r.slot.Candidates; len(known) != places || len(r.tally.Displaced()) > 0 || has(known, away) || has(known, here) || has(known, invalid) {
		t.Fatalf("%d candidates", len(known))
	}
	if !stopped || !slices.Contains(r.store.dropped, here.Commitment) {
		t.Errorf("fetch stopped: %v, dropped %x", stopped, r.store.dropped)
	}
	announced := 0
	for _, c := range r.slot.Candidates {
		if c.State == tally.Announced {
			announced++
		}
	}
	if r.tally.Unfetched() != announced {
		t.Errorf("%d results are reported as unfetched, want %d", r.tally.Unfetched(), announced)
	}
	// The cancelled fetch may end with an error, or with the data.
	r.arrives(r.slot, away, nil, context.Canceled, nil)
	r.arrives(r.slot, away, []byte("y"), nil, nil)
	if r.tally.Unfetched() != announced || !slices.Contains(r.store.dropped, away.Commitment) || away.State == tally.Held || r.flying != 0 {
		t.Errorf("%d unfetched, want %d; dropped %x; %d on their way", r.tally.Unfetched(), announced, r.store.dropped, r.flying)
	}
}

// TestUselessBlobsAreDropped checks that an invalid result is dropped at once, and results that did
// not count when the round is applied. A blob that a second trainer announced and that is being
// fetched stays.
func TestUselessBlobsAreDropped(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	s, other := r.slot, &r.tally.Slots[1]
	counted, second, invalid := &tally.Candidate{Commitment: clienttest.Hash(1)}, &tally.Candidate{Commitment: clienttest.Hash(2)}, &tally.Candidate{Commitment: clienttest.Hash(3)}
	s.Candidates = []*tally.Candidate{counted, second}
	other.Candidates = []*tally.Candidate{invalid, {Commitment: clienttest.Hash(1), State: tally.Fetching}}
	counted.State, second.State = tally.Fetching, tally.Fetching
	r.arrives(other, &tally.Candidate{Commitment: clienttest.Hash(2)}, nil, nil, nil) // displaced, but a second trainer's fetch is running
	if len(r.store.dropped) > 0 {
		t.Errorf("dropped %x, which is on its way", r.store.dropped)
	}
	for _, c := range []*tally.Candidate{counted, second} {
		r.arrives(s, c, []byte("xyz"), nil, nil)
	}
	r.arrives(other, invalid, []byte("xyz"), nil, clienttest.ErrFake)
	if !slices.Equal(r.store.dropped, []tally.Commitment{invalid.Commitment}) || invalid.State != tally.Refused {
		t.Errorf("dropped %x", r.store.dropped)
	}
	if counted.State != tally.Held || counted.Payload != nil || counted.Size != 3 {
		t.Errorf("held %+v", counted)
	}
	r.arrives(other, other.Candidates[1], []byte("xyz"), nil, clienttest.ErrFake)
	if len(r.store.dropped) != 1 {
		t.Errorf("dropped %x, which is held", r.store.dropped)
	}
	r.owner.Drop(r.tally.Release(tally.Outcome{Sources: []*tally.Candidate{counted}})...)
	if len(r.store.dropped) != 2 || r.store.dropped[1] != second.Commitment || counted.State != tally.Held {
		t.Errorf("dropped %x", r.store.dropped)
	}
	if !slices.Equal(r.owner.held, []tally.Commitment{counted.Commitment, second.Commitment}) || len(r.owner.rejected) != 2 {
		t.Errorf("notified of %x, and that %q", r.owner.held, r.owner.rejected)
	}
}

// lose marks results as missing again, like a client that cannot read them.
func (r *rig) lose(lost []*tally.Candidate) {
	r.Unread(r.tally, lost, errGone)
}

// TestLostBlobIsFetchedAgain checks that a counted result that the blob store lost is missing
// again.
func TestLostBlobIsFetchedAgain(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	c := r.enter(t, r.slot, clienttest.Hash(1))
	r.store.blobs[c.Commitment] = []byte("xyz")
	r.tally.Hold(r.slot, c, 3)
	o := r.tally.Judge(r.clock.now, true)
	if payloads, _, err := Read(t.Context(), r.store, o.Sources); err != nil || string(payloads[0]) != "xyz" {
		t.Fatalf("got %q, %v; want nil error and string(payloads[0]) == \"xyz\"", payloads, err)
	}
	r.store.Drop(c.Commitment)
	_, lost, err := Read(t.Context(), r.store, o.Sources)
	if !slices.Equal(lost, []*tally.Candidate{c}) || !errors.Is(err, errGone) {
		t.Fatalf("got %+v, %v; want []*tally.Candidate{c} and error errGone", lost, err)
	}
	r.lose(lost)
	if o := r.tally.Judge(r.clock.now, true); o.Missing != 1 || r.tally.Unfetched() != 1 || c.Attempts != 1 || len(r.wants()) != 0 {
		t.Errorf("outcome %+v, %d unfetched, wanted without a pause: %v", o, r.tally.Unfetched(), len(r.wants()) > 0)
	}
	if r.clock.now = r.clock.now.Add(Pause); len(r.wants()) != 1 {
		t.Error("not fetched again")
	}
}

// TestStoreThatLosesResults checks a blob store with a full disk. Results that count are fetched at
// most twice, and are then applied.
func TestStoreThatLosesResults(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	r.store.forgetful = true
	c := r.enter(t, r.slot, clienttest.Hash(1))
	payload := r.result(r.slot, c)
	fetch := func() {
		t.Helper()
		if r.begin(); r.flying != 1 {
			t.Fatal("the result is not fetched")
		}
		r.clock.finish()
	}
	fetch()
	o := r.tally.Judge(r.clock.now, true)
	if o.Missing > 0 || c.Payload != nil {
		t.Fatalf("outcome %+v, in memory too: %v", o, c.Payload != nil)
	}
	_, lost, err := Read(t.Context(), r.store, o.Sources)
	if len(lost) != 1 {
		t.Fatalf("%d results are lost: %v", len(lost), err)
	}
	r.lose(lost)
	if r.begin(); r.flying > 0 {
		t.Error("fetched again without a pause")
	}
	r.clock.now = r.clock.now.Add(Pause)
	fetch()
	payloads, _, err := Read(t.Context(), r.store, r.tally.Judge(r.clock.now, true).Sources)
	if err != nil || !slices.Equal(payloads[0], payload) || len(r.store.asked) != 2 {
		t.Errorf("%v; fetched %d times", err, len(r.store.asked))
	}
	r.tally.Release(o)
	if c.Payload != nil {
		t.Error("the payload is in memory after it was applied")
	}
}

// TestResultsAfterAFetch checks that a result is held, refused or fetched again, and that the
// owner of the tallies is notified.
func TestResultsAfterAFetch(t *testing.T) {
	type notified struct{ held, rejected, noRoom, dropped, fetches, stalls int }
	var again = Pause * 2 // after the first attempt
	for name, test := range map[string]struct {
		change   func(r *rig, c *tally.Candidate)
		state    tally.State
		retry    time.Duration // 0: at once, or never
		notified notified
	}{
		"it is valid":                            {func(*rig, *tally.Candidate) {}, tally.Held, 0, notified{held: 1, fetches: 1}},
		"its size is disputed":                   {func(_ *rig, c *tally.Candidate) { c.Disputed, c.Size = true, 1<<20 }, tally.Held, 0, notified{held: 1, fetches: 1}},
		"it is not a result":                     {func(r *rig, c *tally.Candidate) { r.store.blobs[c.Commitment] = make([]byte, c.Size) }, tally.Refused, 0, notified{rejected: 1, dropped: 1, fetches: 1}},
		"it is larger than any result":           {func(_ *rig, c *tally.Candidate) { c.Size = 1 << 20 }, tally.Refused, 0, notified{rejected: 1}},
		"it comes too late":                      {func(r *rig, _ *tally.Candidate) { r.owner.late = true }, tally.Refused, 0, notified{dropped: 1, fetches: 1}},
		"no holder has it":                       {func(r *rig, c *tally.Candidate) { delete(r.store.blobs, c.Commitment) }, tally.Announced, Pause, notified{fetches: 1}},
		"no holder has it at the second attempt": {func(r *rig, c *tally.Candidate) { delete(r.store.blobs, c.Commitment); c.Attempts = 1 }, tally.Announced, again, notified{fetches: 1}},
		"there is no room":                       {func(r *rig, _ *tally.Candidate) { r.store.err = env.ErrNoRoom }, tally.Announced, Pause, notified{noRoom: 1, fetches: 1}},
		"the holders let time pass":              {func(r *rig, _ *tally.Candidate) { r.store.err = context.DeadlineExceeded }, tally.Announced, Pause, notified{fetches: 1, stalls: 1}},
		"it is stopped on its way":               {func(r *rig, c *tally.Candidate) { r.begin(); r.Stop(c) }, tally.Announced, Pause, notified{fetches: 1}},
		"it is not time to fetch it":             {func(r *rig, c *tally.Candidate) { c.RetryAt = r.clock.now.Add(1) }, tally.Announced, 1, notified{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, clienttest.Hash(1))
			c := r.enter(t, r.slot, clienttest.Hash(1))
			payload := r.result(r.slot, c)
			test.change(r, c)
			r.begin()
			r.clock.finish()
			got := notified{len(r.owner.held), len(r.owner.rejected), r.owner.noRoom, len(r.store.dropped), len(r.store.asked), r.stalls[identity.ID(r.slot.Owner)]}
			if c.State != test.state || got != test.notified || r.flying != 0 {
				t.Errorf("state %d, notified %+v, want state %d and %+v; %d on their way", c.State, got, test.state, test.notified, r.flying)
			}
			if retry := max(c.RetryAt.Sub(r.clock.now), 0); retry != test.retry {
				t.Errorf("again after %v, want %v", retry, test.retry)
			}
			if test.state == tally.Held && (int(c.Size) != len(payload) || r.Received != uint64(len(payload))) {
				t.Errorf("%d bytes are held, %d came", c.Size, r.Received)
			}
			if len(r.store.asked) > 0 && r.store.asked[0].upTo != c.Disputed {
				t.Errorf("asked %+v", r.store.asked[0])
			}
		})
	}
}

// TestOverdueFetchesAreStopped checks that overdue fetches end only if other fetches wait, and that
// every fetch ends at its timeout.
func TestOverdueFetchesAreStopped(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	r.limit = 1
	r.tally.Final = false
	var all []*tally.Candidate
	for i := range r.tally.Slots {
		c := r.enter(t, &r.tally.Slots[i], clienttest.Hash(byte(i+1)))
		r.result(&r.tally.Slots[i], c)
		all = append(all, c)
	}
	flying := func() (found string) {
		for i, c := range all {
			if c.State == tally.Fetching {
				found += fmt.Sprint(i)
			}
		}
		return found
	}
	timeout := r.timeout(uint64(all[0].Size), 0, completion)
	r.begin()
	r.clock.now = r.clock.now.Add(timeout)
	if r.begin(); flying() != "0" || r.flights[all[0]].stopped {
		t.Fatalf("%q are being fetched too early", flying())
	}
	r.clock.now = r.clock.now.Add(1)
	if r.begin(); !r.flights[all[0]].stopped || r.stalls[identity.ID(r.tally.Slots[0].Owner)] != 1 {
		t.Fatal("an overdue fetch continues")
	}
	r.clock.finish()
	for _, want := range []string{"1", "2"} {
		if r.begin(); flying() != want {
			t.Fatalf("%q on their way, want %s", flying(), want)
		}
		r.clock.finish()
	}
	r.clock.now = r.clock.now.Add(Pause)
	r.begin()
	r.clock.now = r.clock.now.Add(completion + time.Second)
	if r.begin(); flying() != "0" || r.flights[all[0]].stopped {
		t.Error("a fetch was evicted although no other fetch waits")
	}
	r.StopRound(r.tally)
	if !r.flights[all[0]].stopped {
		t.Error("a fetch continues after the round was abandoned")
	}
	r.clock.finish()
}

// TestDisputedFetchKeepsItsPlace checks that a fetch with a wrong size ends. No member is blamed
// for it, and it keeps its slot.
func TestDisputedFetchKeepsItsPlace(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	c := r.enter(t, r.slot, clienttest.Hash(1))
	r.result(r.slot, c)
	c.Size--
	r.begin()
	other := clienttest.Announcement(r.slot.Batch, c.Commitment, [32]byte{})
	other.Size = c.Size + 1
	if err := r.tally.Receive(identity.ID(r.slot.Owner), other, nil); !errors.Is(err, tally.ErrOtherSize) {
		t.Fatal(err)
	}
	flying := r.tally.Dispute(r.slot.Batch, c.Commitment)
	r.Interrupt(flying)
	if flying != c || r.flights[c].stopped {
		t.Error("the fetch was stopped for good, or is not known as running")
	}
	r.clock.finish()
	r.clock.now = r.clock.now.Add(Pause)
	r.begin()
	r.clock.finish()
	if c.State != tally.Held || len(r.stalls) > 0 || len(r.store.asked) != 2 || !r.store.asked[1].upTo {
		t.Errorf("state %d, stalls %v, asked %+v", c.State, r.stalls, r.store.asked)
	}
	if last := r.store.asked[1].holders; last[len(last)-1] != identity.ID(r.slot.Owner) {
		t.Error("a dishonest holder is asked first")
	}
}

// TestPushEndsAFetch checks that a pushed result is verified at once, and that a running fetch of
// it ends. The push does not change the measured rate of peers.
func TestPushEndsAFetch(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	c := r.enter(t, r.slot, clienttest.Hash(1))
	payload := r.result(r.slot, c)
	r.begin()
	a := clienttest.Announcement(r.slot.Batch, c.Commitment, [32]byte{})
	r.Take(r.tally, a, payload, Terms{Trainer: &clienttest.Trainer{}, Completion: completion, Round: completion})
	if flight := r.flights[c]; flight == nil || !flight.stopped {
		t.Fatal("the fetch continues")
	}
	r.clock.finish() // the fetch
	r.clock.finish() // the verification
	if c.State != tally.Held || len(r.owner.held) != 1 || len(r.flights) != 0 || r.pace != 0 {
		t.Errorf("state %v, held %d, %d flights, pace %v", c.State, len(r.owner.held), len(r.flights), r.pace)
	}
}

// TestPushesWithoutRoom checks that a pushed result for which there is no memory is not held, and is fetched later.
func TestPushesWithoutRoom(t *testing.T) {
	r := newRig(t, clienttest.Hash(1))
	c := r.enter(t, r.slot, clienttest.Hash(1))
	payload := r.result(r.slot, c)
	r.store.err = env.ErrNoRoom
	a := clienttest.Announcement(r.slot.Batch, c.Commitment, [32]byte{})
	r.Take(r.tally, a, payload, Terms{Trainer: &clienttest.Trainer{}, Completion: completion, Round: completion})
	r.clock.finish()
	if c.State != tally.Announced || len(r.owner.held) != 0 || r.owner.noRoom != 1 || len(r.flights) != 0 {
		t.Errorf("state %v, held %d, without room %d, %d flights", c.State, len(r.owner.held), r.owner.noRoom, len(r.flights))
	}
}
