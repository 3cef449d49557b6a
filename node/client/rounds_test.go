package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/tally"
)

var errNoHolder = errors.New("no holder has it")

// blobNetwork is a network whose blobs are in a map. If holders are asked, it waits for missing
// blobs.
type blobNetwork struct {
	env.Network
	forgetful bool // discards fetched blobs

	mu      sync.Mutex
	blobs   map[[32]byte][]byte
	dropped [][32]byte
}

func (s *blobNetwork) Drop(hash [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = append(s.dropped, hash)
	delete(s.blobs, hash)
}

func (s *blobNetwork) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	s.mu.Lock()
	data, held := s.blobs[hash]
	s.mu.Unlock()
	if s.forgetful && len(holders) == 0 {
		return nil, errNoHolder
	}
	if held && uint64(len(data)) == size {
		return data, nil
	}
	if len(holders) == 0 {
		return nil, errNoHolder
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// roundNode returns a client with the tally of one finished round. All three witnesses hold the
// given result of the first batch and nothing else.
func roundNode(t *testing.T, holds tally.Commitment) (*Node, *roundState, *blobNetwork) {
	t.Helper()
	network := &blobNetwork{blobs: map[[32]byte][]byte{}}
	n, err := New(Options{
		Key: clienttest.Key(9), RunID: clienttest.RunID, Backend: &submissions{}, Network: network, Data: clienttest.Data{},
		NewTrainer: func(context.Context, checkpoint.Snapshot, env.Definition) (env.Trainer, error) { return nil, nil },
		Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) {
			return clienttest.Model(), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.tasks.Work = t.Context()
	n.engine.trainer = &clienttest.Trainer{}
	n.run.state = &coordinator.State{Config: clienttest.Config(3)}
	n.step(core.Seen{State: n.run.state})
	round := clienttest.Round()
	n.rounds.replica = &core.Replica{Step: round.Step - 1}
	rs := newRoundState(round, &n.run, n.Draws, time.Time{})
	n.rounds.of[round.Step] = rs
	list := make([]tally.Commitment, len(rs.Slots))
	list[0] = holds
	round.Witnesses = clienttest.Proofs(round.Seed, clienttest.Owners(round), list, list, list)
	rs.Renew(round, true)
	return n, rs, network
}

// say passes an announcement of the first batch's trainer to the client.
func say(n *Node, rs *roundState, c tally.Commitment, size int) {
	s := &rs.Slots[0]
	a := clienttest.Announcement(s.Batch, c, [32]byte{})
	a.Size = uint32(size)
	n.receive(announcement{author: identity.ID(s.Owner), result: a, raw: c[:]})
}

// proceed takes the result of one task.
func proceed(n *Node) { (<-n.tasks.Runtime.(*goroutines).posts)() }

// TestFetchOfADisplacedResultEnds checks that the fetch of a displaced result ends, and that its
// blob is dropped.
func TestFetchOfADisplacedResultEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, rs, network := roundNode(t, clienttest.Hash(1))
		s := &rs.Slots[0]
		rs.Final = false
		say(n, rs, clienttest.Hash(10), 1)
		say(n, rs, clienttest.Hash(11), 1)
		n.fetcher.Fetch(n.rounds.after(n.rounds.replica.Step), n.run.terms(n.engine.trainer))
		rs.Final, rs.Round.WitnessesElected = true, 0 // two slots
		away := s.Candidates[0]
		if say(n, rs, clienttest.Hash(1), 1); away.State != tally.Fetching || s.Contains(away) || len(s.Candidates) != 2 {
			t.Fatalf("state %d, in its place: %v", away.State, s.Contains(away))
		}
		proceed(n)
		if !slices.Contains(network.dropped, away.Commitment) || rs.Unfetched() != 1 {
			t.Errorf("dropped %x, %d unfetched", network.dropped, rs.Unfetched())
		}
		n.fetcher.StopRound(rs.Tally)
		proceed(n)
	})
}

// TestUnreadResultsAreFetchedAgain checks that unreadable results are fetched again after a pause,
// and stay in memory until they are applied.
func TestUnreadResultsAreFetchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, rs, network := roundNode(t, clienttest.Hash(1))
		payload := clienttest.Result(rs.Round.Step, rs.Slots[0].Batch, rs.Slots[0].Owner, [32]byte{})
		say(n, rs, clienttest.Hash(1), len(payload))
		c := rs.Slots[0].Candidates[0]
		rs.Hold(&rs.Slots[0], c, c.Size)
		_, lost, err := fetch.Read(n.tasks.Work, n.Network, rs.Judge(time.Now(), true).Sources)
		if len(lost) != 1 {
			t.Fatalf("%d results are lost: %v", len(lost), err)
		}
		n.fetcher.Unread(rs.Tally, lost, err)
		network.blobs[c.Commitment], network.forgetful = payload, true
		if n.fetcher.Fetch(n.rounds.after(n.rounds.replica.Step), n.run.terms(n.engine.trainer)); c.State != tally.Announced {
			t.Error("fetched again without a pause")
		}
		time.Sleep(fetch.Pause)
		n.fetcher.Fetch(n.rounds.after(n.rounds.replica.Step), n.run.terms(n.engine.trainer))
		proceed(n)
		if o := rs.Judge(time.Now(), true); o.Missing > 0 || !slices.Equal(c.Payload, payload) {
			t.Errorf("outcome %+v, %d bytes in memory", o, len(c.Payload))
		}
		n.apply(rs, rs.Judge(time.Now(), true))
		proceed(n)
		if n.rounds.replica.Step != rs.Round.Step || c.Payload != nil {
			t.Errorf("applied step %d, in memory: %v", n.rounds.replica.Step, c.Payload != nil)
		}
	})
}

// TestWaitingAnnouncementsAreHeardTogether checks that a flood of announcements is processed at
// once, up to a limit.
func TestWaitingAnnouncementsAreHeardTogether(t *testing.T) {
	n, rs, _ := roundNode(t, clienttest.Hash(1))
	rs.Final = false
	const more = 10
	n.gossip.received = make(chan announcement, maxReceivedAtOnce+more)
	for i := range cap(n.gossip.received) {
		c, s := clienttest.Numbered(1, i, 0), &rs.Slots[i%2]
		n.gossip.received <- announcement{author: identity.ID(s.Owner), result: clienttest.Announcement(s.Batch, c, [32]byte{}), raw: c[:]}
	}
	n.gossip.receiveWaiting(n.receive)
	if first, second := len(rs.Slots[0].Candidates), len(rs.Slots[1].Candidates); len(n.gossip.received) != more || first != tally.MaxCandidates || second != tally.MaxCandidates {
		t.Errorf("%d are left, %d and %d entered", len(n.gossip.received), first, second)
	}
	n.gossip.receiveWaiting(n.receive)
	n.gossip.receiveWaiting(n.receive) // waits for none
	if len(n.gossip.received) != 0 {
		t.Errorf("%d are left", len(n.gossip.received))
	}
}
