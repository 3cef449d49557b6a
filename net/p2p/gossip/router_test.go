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

// packet is 1000 messages that claim to be of an author.
func packet(author peer.ID) *pubsub.RPC {
	rpc := &pubsub.RPC{RPC: pb.RPC{Publish: make([]*pb.Message, 1000)}}
	for i := range rpc.Publish {
		rpc.Publish[i] = &pb.Message{From: []byte(author)}
	}
	return rpc
}

func TestFloodOfItsOwnIsHeldAgainstAPeer(t *testing.T) {
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
	stranger, err := p2p.PeerID(p2ptest.Key("stranger").ID())
	if err != nil {
		t.Fatal(err)
	}
	if r.inspect(stranger, &pubsub.RPC{}) == nil {
		t.Error("a stranger's packet was accepted")
	}
}

// Who passes on what many others say sends a lot; it is dropped, and nobody is blamed.
func TestRelayedFloodIsNobodysFault(t *testing.T) {
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
		t.Errorf("%d messages counted as dropped, not %d", got, dropped)
	}
	if score := r.node.Score(p2ptest.Key("b").ID()); score != 0 {
		t.Errorf("score of the forwarder: %v", score)
	}
}

func seqno(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// What all members of the largest run say in an hour of short rounds, with every
// announcement repeated twice, is taken from each of them and from one who passes on
// everything, also when a line stood still and brings half a minute at once.
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

// An author is cut to its rate, however many pass it on and whatever numbers it gives its
// messages, at nobody else's cost. Old messages that somebody sends again take nothing from
// what their author says now.
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
				if r.admits("honest", seqno(i+1)) { // others send these again
					replayed++
				}
			}
			if !r.admits("honest", seqno(1_000_000+second)) {
				t.Errorf("second %d: an honest member's message was not admitted", second)
			}
			time.Sleep(time.Second)
		}
		if most := authorBurst + seconds*authorPerSecond; admitted < authorBurst || admitted > most {
			t.Errorf("%d of %d messages admitted, at most %d should be", admitted, 200*seconds, most)
		}
		if most := 200 + lateBurst + seconds*latePerSecond; replayed > most { // the first 200 are new
			t.Errorf("%d old messages admitted, at most %d should be", replayed, most)
		}
		// Old numbers are anybody's to invent, so they gain an author next to nothing.
		if most := (authorBurst + seconds*authorPerSecond) * 5 / 4; invented > most {
			t.Errorf("%d new and old messages admitted, at most %d should be", invented, most)
		}
		if third := 256 / 3 * (authorPerSecond + latePerSecond); third > messagesPerSecond {
			t.Errorf("a third of the largest run may say %d messages a second, a peer may pass on %d", third, messagesPerSecond)
		}
		for range lateBurst { // numbers that are none count as old
			r.admits("odd", []byte{1})
		}
		if r.admits("odd", nil) || !r.admits("odd", seqno(1)) {
			t.Error("messages without a number take from those with one")
		}
	})
}

// Messages that overtook each other are not taken for old ones, as many as come at once.
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

// Who has kept many messages of a member can make one that has just started miss one more of
// it: the first that it hears itself shows how old those are.
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

// A third of the members of the largest run say twice what they may, and one peer passes on
// all of it: what the others say still comes through, in the same packets and behind them.
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
		t.Error("another author's message counts as a repetition")
	}
}

// TestHiddenBytesAreRefused puts bytes where the handler does not see them.
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
			t.Errorf("%s: %v", name, err)
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
