package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// shelfNetwork is a network whose blobs are a map.
type shelfNetwork struct {
	Network
	blobs   map[[32]byte][]byte
	dropped [][32]byte
}

func (s *shelfNetwork) Drop(hash [32]byte) {
	s.dropped = append(s.dropped, hash)
	delete(s.blobs, hash)
}

func (s *shelfNetwork) Fetch(_ context.Context, hash [32]byte, size uint64, _ []identity.ID) ([]byte, error) {
	if data, held := s.blobs[hash]; held && uint64(len(data)) == size {
		return data, nil
	}
	return nil, errNotHeld
}

// roundNode returns a client with the books of one round that is over, in which all three
// witnesses hold what is given for the first batch and nothing else.
func roundNode(holds commitment) (*Node, *ledger, *shelfNetwork) {
	round, config := testRound()
	l := &ledger{results: newResults(round, round.Assignments(config))}
	var owners []coordinator.ClientID
	for _, s := range l.slots {
		owners = append(owners, s.owner)
	}
	list := make([]commitment, len(l.slots))
	list[0] = holds
	l.round.WitnessesElected = 3
	l.round.Witnesses = proofs(round.Seed, owners, list, list, list)
	network := &shelfNetwork{blobs: map[[32]byte][]byte{}}
	n := &Node{
		Options: Options{Network: network}, log: slog.New(slog.DiscardHandler), shelf: newShelf(),
		rounds: map[uint32]*ledger{round.Step: l}, opened: []uint32{round.Step}, stalls: map[identity.ID]int{},
		replica: &replica{step: round.Step - 1}, state: &coordinator.State{Config: config},
	}
	n.Runtime = goroutines{n}
	return n, l, network
}

// say lets the client hear an announcement of the first batch's trainer.
func say(n *Node, l *ledger, c commitment) {
	s := &l.slots[0]
	n.hear(utterance{author: identity.ID(s.owner), announcement: announcement(s, c, [32]byte{}), raw: c[:]})
}

// TestDisplacedResultsAreLetGo has candidates in every state make room for others: what was
// begun for them ends.
func TestDisplacedResultsAreLetGo(t *testing.T) {
	n, l, network := roundNode(hash(1))
	s := &l.slots[0]
	const places = maxCandidates + 3
	for i := range places {
		s.candidates = append(s.candidates, &candidate{commitment: hash(byte(10 + i))})
	}
	stopped := false
	stop := func() { stopped = true }
	away, here, invalid := s.candidates[0], s.candidates[1], s.candidates[2]
	away.state, away.stop = fetching, stop
	here.state, network.blobs[here.commitment] = held, []byte("x")
	invalid.state = refused
	l.unfetched, n.fetches = places-3, 1
	l.final = true
	for k := range l.round.Witnesses { // each votes for one more
		c := hash(byte(50 + k))
		l.round.Witnesses[k].Commitments.Add(l.round.Seed, c[:])
	}
	for _, c := range []commitment{hash(1), hash(50), hash(51), hash(52)} {
		say(n, l, c)
	}
	if len(s.candidates) != places || len(l.displaced) > 0 || slices.ContainsFunc(s.candidates, func(c *candidate) bool { return c == away || c == here || c == invalid }) {
		t.Fatalf("%d candidates, %d displaced", len(s.candidates), len(l.displaced))
	}
	if !stopped || !slices.Contains(network.dropped, here.commitment) {
		t.Errorf("fetch stopped: %v, dropped %x", stopped, network.dropped)
	}
	announcedNow := 0
	for _, c := range s.candidates {
		if c.state == announced {
			announcedNow++
		}
	}
	if l.unfetched != announcedNow {
		t.Errorf("%d results are said to be unfetched, %d are", l.unfetched, announcedNow)
	}
	// The fetch ends, one way or the other.
	unfetched := l.unfetched
	n.fetched(l, s, away, nil, context.Canceled, nil)
	n.fetched(l, s, away, []byte("y"), nil, nil)
	if l.unfetched != unfetched || !slices.Contains(network.dropped, away.commitment) || away.state == held {
		t.Errorf("%d unfetched, want %d; dropped %x", l.unfetched, unfetched, network.dropped)
	}
}

// TestFinishedRoundIsDecidedOnce: newer states of the run say nothing new of a round that
// is over; what was heard and held, witnesses, and want of room do.
func TestFinishedRoundIsDecidedOnce(t *testing.T) {
	n, l, _ := roundNode(hash(1))
	l.final = true
	judge := func() outcome { return n.judge(l, true) }
	if o := judge(); o.missing != 1 || !o.open {
		t.Fatalf("outcome %+v", o)
	}
	const mark = 99
	l.settled.outcome.missing = mark
	fresh := l.round
	fresh.Witnesses = slices.Clone(fresh.Witnesses) // of a newer state
	l.round = fresh
	if judge().missing != mark {
		t.Error("decided anew though nothing has changed")
	}
	for name, change := range map[string]func(){
		"a result was heard":        func() { say(n, l, hash(1)) },
		"there was no room for it":  func() { n.fetched(l, &l.slots[0], l.slots[0].candidates[0], nil, ErrNoRoom, nil) },
		"another witness was heard": func() { l.round.Witnesses = append(l.round.Witnesses, coordinator.Witness{Member: 9}) },
		"the replica became known":  func() { l.begin([32]byte{}) },
	} {
		if len(l.slots[0].candidates) == 0 {
			say(n, l, hash(1))
		}
		if name == "a result was heard" {
			l.slots[0].candidates = nil
		}
		judge()
		l.settled.outcome.missing = mark
		if change(); judge().missing == mark {
			t.Errorf("not decided anew when %s", name)
		}
	}
}

// TestDecisionsPause: while results are missing and others to come, a finished round is not
// decided anew at each of them.
func TestDecisionsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l, _ := roundNode(hash(1))
		l.final = true
		say(n, l, hash(2))
		if o := n.judge(l, false); o.missing != 1 || !o.open {
			t.Fatalf("outcome %+v", o)
		}
		say(n, l, hash(1))
		if o := n.judge(l, false); !o.open {
			t.Error("decided again at once")
		}
		time.Sleep(judgePause)
		if o := n.judge(l, false); o.open || o.missing != 1 {
			t.Errorf("after the pause: outcome %+v", o)
		}
		one, other := l.slots[0].candidates[1], l.slots[0].candidates[0]
		n.fetched(l, &l.slots[0], one, []byte("x"), nil, nil)
		if o := n.judge(l, false); o.missing != 1 {
			t.Error("decided again although another result is still to come")
		}
		if o := n.judge(l, true); o.missing != 0 {
			t.Error("not decided although there is no time left")
		}
		l.settled.outcome.missing, other.state = 1, fetching
		n.fetched(l, &l.slots[0], other, []byte("y"), nil, nil)
		if o := n.judge(l, false); o.missing != 0 {
			t.Error("not decided although everything is held")
		}
	})
}

// TestWaitingAnnouncementsAreHeardTogether: a flood is entered at once, up to a bound.
func TestWaitingAnnouncementsAreHeardTogether(t *testing.T) {
	n, l, _ := roundNode(hash(1))
	const more = 10
	n.heard = make(chan utterance, maxHeardAtOnce+more)
	for i := range cap(n.heard) {
		c, s := numbered(1, i, 0), &l.slots[i%2]
		n.heard <- utterance{author: identity.ID(s.owner), announcement: announcement(s, c, [32]byte{}), raw: c[:]}
	}
	n.hearWaiting()
	if len(n.heard) != more || len(l.slots[0].candidates) != maxCandidates || len(l.slots[1].candidates) != maxCandidates {
		t.Errorf("%d are left, %d and %d entered", len(n.heard), len(l.slots[0].candidates), len(l.slots[1].candidates))
	}
	n.hearWaiting()
	n.hearWaiting() // waits for none
	if len(n.heard) != 0 {
		t.Errorf("%d are left", len(n.heard))
	}
}

// TestVotesAreCountedOnce for all states that say the same of the witnesses.
func TestVotesAreCountedOnce(t *testing.T) {
	_, l, _ := roundNode(hash(1))
	c := &candidate{commitment: hash(1)}
	l.slots[0].candidates = []*candidate{c}
	if got := l.votes(c); got != 3 {
		t.Fatalf("%d votes", got)
	}
	c.votes = 99
	fresh := l.round
	fresh.Witnesses = slices.Clone(fresh.Witnesses)
	l.renew(fresh, true)
	if l.votes(c) != 99 || !l.final {
		t.Error("counted again though nothing has changed")
	}
	fresh.Witnesses = fresh.Witnesses[:2]
	if l.renew(fresh, true); l.votes(c) != 2 {
		t.Errorf("%d votes of two witnesses", l.votes(c))
	}
}

// forgetful is a network that keeps nothing of what it fetches.
type forgetful struct {
	*shelfNetwork
	fetched int
}

func (f *forgetful) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	if len(holders) == 0 {
		return nil, errNotHeld
	}
	f.fetched++
	return f.shelfNetwork.Fetch(ctx, hash, size, holders)
}

// TestStoreThatKeepsNothing: the results that count are fetched twice at most, and then
// applied, although the disk of the blob store is full.
func TestStoreThatKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l, shelf := roundNode(hash(1))
		network := &forgetful{shelfNetwork: shelf}
		n.Network, n.trainer, n.Downloads = network, &fakeTrainer{}, 8
		n.work, n.posts = t.Context(), make(chan func())
		l.final = true
		s := &l.slots[0]
		payload := append(fakeHeader(l.round.Step, s.batch, s.owner), make([]byte, 32)...)
		shelf.blobs[hash(1)] = payload
		say(n, l, hash(1))
		c := s.candidates[0]
		c.size = uint32(len(payload))
		fetch := func() {
			n.fetchResults()
			if n.fetches != 1 {
				t.Fatal("the result is not fetched")
			}
			(<-n.posts)()
		}
		fetch()
		o := n.judge(l, true)
		if o.missing > 0 || c.payload != nil {
			t.Fatalf("outcome %+v, in memory too: %v", o, c.payload != nil)
		}
		_, lost, err := readPayloads(n.work, network, o.sources)
		if len(lost) != 1 {
			t.Fatalf("%d results are lost: %v", len(lost), err)
		}
		n.unread(l, lost, err)
		if n.fetchResults(); n.fetches > 0 {
			t.Error("fetched again without a pause")
		}
		time.Sleep(fetchPause)
		fetch()
		payloads, _, err := readPayloads(n.work, network, n.judge(l, true).sources)
		if err != nil || !slices.Equal(payloads[0], payload) || network.fetched != 2 {
			t.Errorf("%v; fetched %d times", err, network.fetched)
		}
		n.dropOthers(l, o)
		if c.payload != nil {
			t.Error("it stays in memory after it was applied")
		}
	})
}

// disagree makes the witnesses of a round sign different roots.
func disagree(l *ledger) {
	for k := range l.round.Witnesses {
		l.round.Witnesses[k].CommitmentsRoot = hash(byte(7 + k))
	}
}

// TestFailedAndUnneededTakeTurns: what is needed comes first until it fails.
func TestFailedAndUnneededTakeTurns(t *testing.T) {
	list := []want{
		{setbacks: 3, need: needed}, {setbacks: 0, need: supported}, {setbacks: 1, need: needed}, {setbacks: 0, need: needed},
		{setbacks: 1, need: telling}, {setbacks: 0, need: telling}, {setbacks: 2, need: needed},
	}
	order := func(failedFirst bool) (got string) {
		wants := slices.Clone(list)
		inOrder(wants, failedFirst)
		for _, w := range wants {
			got += fmt.Sprint(" ", w.need, w.setbacks)
		}
		return got
	}
	if got, want := order(false), " 0 0 1 0 0 1 2 0 0 2 1 1 0 3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := order(true), " 0 0 0 1 1 0 0 2 2 0 0 3 1 1"; got != want {
		t.Errorf("failed ones first: got %s, want %s", got, want)
	}
}

// TestOnlyWhatMayCountIsFetched looks at what is fetched of a running round, of one that is
// over, and of one whose outcome is known.
func TestOnlyWhatMayCountIsFetched(t *testing.T) {
	for name, test := range map[string]struct {
		change func(n *Node, l *ledger)
		want   []commitment
	}{
		"running":        {func(_ *Node, l *ledger) { l.final = false }, []commitment{hash(1), hash(2), hash(3)}},
		"root agreed":    {func(*Node, *ledger) {}, []commitment{hash(1), hash(2)}},
		"decided":        {func(n *Node, l *ledger) { n.judge(l, true) }, []commitment{hash(1)}},
		"no root agreed": {func(_ *Node, l *ledger) { disagree(l) }, []commitment{hash(1)}},
		"no root agreed, decided without it": {func(n *Node, l *ledger) {
			disagree(l)
			l.slots[0].candidates[0].state = held
			l.unfetched--
			n.judge(l, true)
		}, nil},
		"no root agreed, what counts is missing": {func(n *Node, l *ledger) {
			disagree(l)
			n.judge(l, true)
		}, []commitment{hash(1), hash(2)}},
		"no root agreed, what counts has failed": {func(n *Node, l *ledger) {
			disagree(l)
			l.slots[0].candidates[0].attempts = 1
			n.judge(l, true)
		}, []commitment{hash(2), hash(1)}},
		"no root agreed, one of another batch has no rival": {func(n *Node, l *ledger) {
			disagree(l)
			c := hash(4)
			l.round.Witnesses[0].Commitments.Add(l.round.Seed, c[:])
			l.slots[0].candidates, l.slots[1].candidates = []*candidate{{commitment: c}}, l.slots[0].candidates
			n.judge(l, true)
		}, []commitment{hash(1), hash(2), hash(4)}},
		"no quorum": {func(_ *Node, l *ledger) { l.round.Witnesses = l.round.Witnesses[:1] }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, l, _ := roundNode(hash(1))
			l.final = true
			one := hash(2)
			l.round.Witnesses[0].Commitments.Add(l.round.Seed, one[:])
			for i := range byte(3) {
				l.slots[0].candidates = append(l.slots[0].candidates, &candidate{commitment: hash(i + 1)})
			}
			l.unfetched = 3
			test.change(n, l)
			var got []commitment
			for _, w := range n.wanted() {
				got = append(got, w.candidate.commitment)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %x, want %x", got, test.want)
			}
		})
	}
}

// TestUselessBlobsAreDropped: an invalid result at once, others that did not count when the
// round was applied. What another trainer announced too, and is on its way, stays.
func TestUselessBlobsAreDropped(t *testing.T) {
	n, l, network := roundNode(hash(1))
	s, other := &l.slots[0], &l.slots[1]
	counted, second, invalid := &candidate{commitment: hash(1)}, &candidate{commitment: hash(2)}, &candidate{commitment: hash(3)}
	s.candidates = []*candidate{counted, second}
	other.candidates = []*candidate{invalid, {commitment: hash(1), state: fetching}}
	counted.state, second.state = fetching, fetching
	n.fetched(l, other, &candidate{commitment: hash(2)}, nil, nil, nil) // displaced, and on its way elsewhere
	if len(network.dropped) > 0 {
		t.Errorf("dropped %x, which is on its way", network.dropped)
	}
	for _, c := range []*candidate{counted, second} {
		n.fetched(l, s, c, []byte("xyz"), nil, nil)
	}
	n.fetched(l, other, invalid, []byte("xyz"), nil, errFake)
	if len(network.dropped) != 1 || network.dropped[0] != invalid.commitment || invalid.state != refused {
		t.Errorf("dropped %x", network.dropped)
	}
	if counted.state != held || counted.payload != nil || counted.size != 3 {
		t.Errorf("held %+v", counted)
	}
	n.fetched(l, other, other.candidates[1], []byte("xyz"), nil, errFake)
	if len(network.dropped) != 1 {
		t.Errorf("dropped %x, which is held", network.dropped)
	}
	n.dropOthers(l, outcome{sources: []*candidate{counted}})
	if len(network.dropped) != 2 || network.dropped[1] != second.commitment || counted.state != held {
		t.Errorf("dropped %x", network.dropped)
	}
}

// TestLostBlobIsFetchedAgain: a counted result that the blob store lost is missing again.
func TestLostBlobIsFetchedAgain(t *testing.T) {
	n, l, network := roundNode(hash(1))
	l.final = true
	say(n, l, hash(1))
	c := l.slots[0].candidates[0]
	network.blobs[c.commitment] = []byte("xyz")
	c.state, c.size, l.unfetched = held, 3, 0
	l.changes++
	o := n.judge(l, true)
	if payloads, _, err := readPayloads(t.Context(), network, o.sources); err != nil || string(payloads[0]) != "xyz" {
		t.Fatalf("%q, %v", payloads, err)
	}
	network.Drop(c.commitment)
	_, lost, err := readPayloads(t.Context(), network, o.sources)
	if !slices.Equal(lost, []*candidate{c}) || !errors.Is(err, errNotHeld) {
		t.Fatalf("%+v, %v", lost, err)
	}
	n.unread(l, lost, err)
	if o := n.judge(l, true); o.missing != 1 || l.unfetched != 1 || c.attempts != 1 || len(n.wanted()) != 0 {
		t.Errorf("outcome %+v, %d unfetched, wanted without a pause: %v", o, l.unfetched, len(n.wanted()) > 0)
	}
	if c.retryAt = (time.Time{}); len(n.wanted()) != 1 {
		t.Error("not fetched again")
	}
}
