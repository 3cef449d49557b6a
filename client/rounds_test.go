package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

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
	if o := l.judge(); o.missing != 1 || !o.open {
		t.Fatalf("outcome %+v", o)
	}
	const mark = 99
	l.settled.outcome.missing = mark
	fresh := l.round
	fresh.Witnesses = slices.Clone(fresh.Witnesses) // of a newer state
	l.round = fresh
	if l.judge().missing != mark {
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
		l.judge()
		l.settled.outcome.missing = mark
		if change(); l.judge().missing == mark {
			t.Errorf("not decided anew when %s", name)
		}
	}
}

// TestOnlyWhatMayCountIsFetched looks at what is fetched of a running round, of one that is
// over, and of one whose outcome is known.
func TestOnlyWhatMayCountIsFetched(t *testing.T) {
	for name, test := range map[string]struct {
		change func(l *ledger)
		want   []commitment
	}{
		"running":     {func(l *ledger) { l.final = false }, []commitment{hash(1), hash(2), hash(3)}},
		"root agreed": {func(*ledger) {}, []commitment{hash(1), hash(2)}},
		"decided":     {func(l *ledger) { l.judge() }, []commitment{hash(1)}},
		"no root agreed": {func(l *ledger) {
			l.round.Witnesses[1].CommitmentsRoot, l.round.Witnesses[2].CommitmentsRoot = hash(8), hash(9)
		}, []commitment{hash(1)}},
		"no quorum": {func(l *ledger) { l.round.Witnesses = l.round.Witnesses[:1] }, nil},
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
			test.change(l)
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
	o := l.judge()
	if payloads, _, err := readPayloads(t.Context(), network, o.sources); err != nil || string(payloads[0]) != "xyz" {
		t.Fatalf("%q, %v", payloads, err)
	}
	network.Drop(c.commitment)
	_, lost, err := readPayloads(t.Context(), network, o.sources)
	if lost != c || !errors.Is(err, errNotHeld) {
		t.Fatalf("%+v, %v", lost, err)
	}
	n.unread(l, lost, err)
	if o := l.judge(); o.missing != 1 || l.unfetched != 1 || len(n.wanted()) != 1 {
		t.Errorf("outcome %+v, %d unfetched", o, l.unfetched)
	}
}
