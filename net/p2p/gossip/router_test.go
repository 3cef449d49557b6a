package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

func testRouter(t *testing.T) (*router, peer.ID) {
	n := p2ptest.Node(t, "a")
	other := p2ptest.Key("b").ID()
	n.SetMembers([]p2p.Peer{{ID: other}})
	p, err := p2p.PeerID(other)
	if err != nil {
		t.Fatal(err)
	}
	r, err := routerOf(n)
	if err != nil {
		t.Fatal(err)
	}
	return r, p
}

func TestSubscriptionsOfAPeerAreBounded(t *testing.T) {
	r, p := testRouter(t)
	subscribe := func(topic string, on bool) int {
		accepted, err := r.FilterIncomingSubscriptions(p, []*pb.RPC_SubOpts{{Topicid: &topic, Subscribe: &on}})
		if err != nil {
			t.Fatal(err)
		}
		return len(accepted)
	}
	total := 0
	for i := range 10 * topicsPerPeer {
		total += subscribe(fmt.Sprint(i), true)
	}
	if total != topicsPerPeer {
		t.Errorf("%d topics accepted, want %d", total, topicsPerPeer)
	}
	if subscribe("0", true) != 1 || subscribe("0", false) != 1 || subscribe("new", true) != 1 || subscribe("newer", true) != 0 {
		t.Error("leaving a topic does not make room for exactly one")
	}
}

// packet returns a packet of 1000 messages that claim to be from an author.
func packet(author peer.ID) *pubsub.RPC {
	rpc := &pubsub.RPC{RPC: pb.RPC{Publish: make([]*pb.Message, 1000)}}
	for i := range rpc.Publish {
		rpc.Publish[i] = &pb.Message{From: []byte(author)}
	}
	return rpc
}

func TestPeerIsBlamedForItsOwnFlood(t *testing.T) {
	r, p := testRouter(t)
	refused := 0
	for range 100 {
		if r.inspect(p, packet(p)) != nil {
			refused++
		}
	}
	if refused < 80 {
		t.Errorf("%d of 100 packets refused", refused)
	}
	if score := r.node.Score(p2ptest.Key("b").ID()); score > -300 {
		t.Errorf("score %v", score)
	}
	nonMember, err := p2p.PeerID(p2ptest.Key("stranger").ID())
	if err != nil {
		t.Fatal(err)
	}
	if r.inspect(nonMember, &pubsub.RPC{}) == nil {
		t.Error("a non-member's packet was accepted")
	}
}

// TestRelayedFloodIsNotBlamed checks that a flood that a peer forwards is dropped, and that the
// peer is not blamed.
func TestRelayedFloodIsNotBlamed(t *testing.T) {
	r, p := testRouter(t)
	author, err := p2p.PeerID(p2ptest.Key("author").ID())
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for range 100 {
		rpc := packet(author)
		if err := r.inspect(p, rpc); err != nil {
			t.Fatal(err)
		}
		dropped += 1000 - len(rpc.GetPublish())
	}
	if dropped < 80_000 {
		t.Errorf("%d of 100000 messages dropped", dropped)
	}
	if got := r.dropped.Load(); got != uint64(dropped) {
		t.Errorf("%d messages counted as dropped, want %d", got, dropped)
	}
	if score := r.node.Score(p2ptest.Key("b").ID()); score != 0 {
		t.Errorf("score of the forwarder: %v", score)
	}
}

func seqno(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// TestHonestTrafficIsAdmitted sends the messages of all members of the largest run in an hour of
// short rounds, with every announcement repeated twice. They are admitted from each member and from
// one peer that forwards all of them, also if a link was blocked and then delivers the messages of
// half a minute at once.
func TestHonestTrafficIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members, round = 256, 4 * time.Second
		r := &router{peers: make(map[peer.ID]*budget)}
		number := uint64(time.Now().UnixNano())
		for i := range int(time.Hour / round) {
			times := 3
			var relayed []*pb.Message
			if i%100 == 99 {
				time.Sleep(30 * time.Second)
				times += 15
			}
			for m := range members {
				author := peer.ID(rune(m))
				for range times {
					number++
					if !r.admits(author, seqno(number)) {
						t.Fatalf("round %d: message of %d not admitted", i, m)
					}
				}
				if !r.speaks(author, times) {
					t.Fatalf("round %d: %d counts as a flood", i, m)
				}
				relayed = append(relayed, slices.Repeat([]*pb.Message{{From: []byte(author), Seqno: seqno(number)}}, times)...)
			}
			if kept := r.sift("relay", slices.Clone(relayed)); len(kept) != len(relayed) {
				t.Fatalf("round %d: %d of %d messages through one peer", i, len(kept), len(relayed))
			}
			time.Sleep(round)
		}
	})
}

// TestAuthorsAreBounded checks that an author is limited to its rate, however many peers forward
// its messages and whatever numbers they have. Other authors are not affected. Old messages that
// peers send again do not reduce the rate of new messages of their author.
func TestAuthorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds = 60
		r := &router{peers: make(map[peer.ID]*budget)}
		admitted, replayed, invented := 0, 0, 0
		for second := range uint64(seconds) {
			for i := range uint64(200) {
				if r.admits("loud", seqno(200*second+i+1)) {
					admitted++
				}
				if r.admits("inventive", seqno(1_000_000*(i%2)+200*second+i+1)) {
					invented++
				}
				if r.admits("honest", seqno(i+1)) { // peers send these messages again
					replayed++
				}
			}
			if !r.admits("honest", seqno(1_000_000+second)) {
				t.Errorf("second %d: an honest member's message was not admitted", second)
			}
			time.Sleep(time.Second)
		}
		if limit := authorBurst + seconds*authorPerSecond; admitted < authorBurst || admitted > limit {
			t.Errorf("%d of %d messages admitted, want at most %d", admitted, 200*seconds, limit)
		}
		if limit := 200 + lateBurst + seconds*latePerSecond; replayed > limit { // the first 200 are new
			t.Errorf("%d old messages admitted, want at most %d", replayed, limit)
		}
		// An author can invent old numbers, so these must add almost nothing to its rate.
		if limit := (authorBurst + seconds*authorPerSecond) * 5 / 4; invented > limit {
			t.Errorf("%d new and old messages admitted, want at most %d", invented, limit)
		}
		if third := 256 / 3 * (authorPerSecond + latePerSecond); third > messagesPerSecond {
			t.Errorf("a third of the largest run may send %d messages a second, a peer may forward %d", third, messagesPerSecond)
		}
		for range lateBurst { // invalid numbers count as old
			r.admits("odd", []byte{1})
		}
		if r.admits("odd", nil) || !r.admits("odd", seqno(1)) {
			t.Error("messages without a number reduce the rate of messages with a number")
		}
	})
}

// TestOvertakenMessagesAreNew checks that messages that overtook each other do not count as old,
// even in a full burst.
func TestOvertakenMessagesAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{peers: make(map[peer.ID]*budget)}
		number := uint64(time.Now().UnixNano())
		for i := range uint64(authorBurst) {
			swapped := number + i/overtaken*overtaken + (overtaken - 1 - i%overtaken)
			if !r.admits("a", seqno(swapped)) {
				t.Fatalf("message %d was not admitted", i)
			}
		}
	})
}

// TestKeptMessagesCostOne checks a peer that replays many kept messages of a member. A node that
// has just started misses at most one new message of the member. After the first new message it
// recognises the kept ones as old.
func TestKeptMessagesCostOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router{peers: make(map[peer.ID]*budget)}
		kept, number, missed := uint64(time.Now().UnixNano()), uint64(time.Now().UnixNano())+100_000, 0
		for range 100 {
			for range 1000 {
				kept++
				r.admits("honest", seqno(kept))
			}
			if number++; !r.admits("honest", seqno(number)) {
				missed++
			}
			time.Sleep(time.Second)
		}
		if missed > 1 {
			t.Errorf("%d of 100 messages missed", missed)
		}
	})
}

// TestLoudAuthorsLeaveRoom lets a third of the members of the largest run send twice their rate,
// all forwarded by one peer. The messages of the other members still arrive, in the same packets
// and after them.
func TestLoudAuthorsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members, loud = 256, 256 / 3
		r := &router{peers: make(map[peer.ID]*budget)}
		for m := range members {
			r.budget(peer.ID(rune(m)))
		}
		number := uint64(time.Now().UnixNano())
		message := func(m int) *pb.Message {
			number++
			return &pb.Message{From: []byte(string(rune(m))), Seqno: seqno(number)}
		}
		for tenth := range 600 {
			var packet []*pb.Message
			for m := range loud {
				for range 2 * authorPerSecond / 10 {
					packet = append(packet, message(m))
				}
			}
			quiet := make(map[*pb.Message]bool)
			for m := loud; m < members && tenth%20 == 0; m++ { // once in two seconds
				said := message(m)
				quiet[said] = true
				packet = append(packet, said)
			}
			for _, m := range r.sift("relay", packet) {
				delete(quiet, m)
				r.admits(peer.ID(m.GetFrom()), m.GetSeqno())
			}
			if len(quiet) > 0 {
				t.Fatalf("after %d tenths of a second: %d messages of quiet members dropped", tenth, len(quiet))
			}
			time.Sleep(time.Second / 10)
		}
	})
}

func TestRecentForgetsTheOldest(t *testing.T) {
	r := newRecent(2)
	author := identity.ID{1}
	for i, step := range []struct {
		data string
		want bool
	}{{"a", true}, {"b", true}, {"a", false}, {"c", true}, {"b", false}, {"a", true}, {"c", false}, {"b", true}} {
		if got := r.add(author, []byte(step.data)); got != step.want {
			t.Errorf("%d: %s is new: %v", i, step.data, got)
		}
	}
	if !r.add(identity.ID{2}, []byte("b")) {
		t.Error("a message of a different author counts as a repetition")
	}
}

// TestHiddenBytesAreRefused checks that bytes in fields that the handler does not see are refused.
func TestHiddenBytesAreRefused(t *testing.T) {
	r, from := testRouter(t)
	for name, m := range map[string]*pb.Message{
		"key":           {Key: make([]byte, 2*MaxMessage)},
		"topic":         {Topic: new(strings.Repeat("x", 2*MaxMessage))},
		"unknown field": {XXX_unrecognized: append([]byte{0xfa, 0x7f, 0x80, 0x08}, make([]byte, 1024)...)},
		"data":          {Data: make([]byte, MaxMessage+1)},
	} {
		m.From = []byte(from)
		rpc := &pubsub.RPC{RPC: pb.RPC{Publish: []*pb.Message{m}}}
		if err := r.inspect(from, rpc); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: got %v; want error ErrTooLarge", name, err)
		}
	}
	largest := &pb.Message{
		From: []byte(from), Data: make([]byte, MaxMessage), Seqno: make([]byte, 8), Topic: new(strings.Repeat("x", maxTopicName)),
		Signature: make([]byte, 64), Key: make([]byte, 36),
	}
	if err := r.inspect(from, &pubsub.RPC{RPC: pb.RPC{Publish: []*pb.Message{largest}}}); err != nil {
		t.Errorf("the largest message: %v", err)
	}
}
