package gossip

import (
	"fmt"
	"testing"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/p2p"
	"github.com/psyche-go/psyche/p2p/p2ptest"
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

func TestFloodIsRefused(t *testing.T) {
	r, p := testRouter(t)
	rpc := &pubsub.RPC{RPC: pb.RPC{Publish: make([]*pb.Message, 1000)}}
	for i := range rpc.Publish {
		rpc.Publish[i] = &pb.Message{}
	}
	refused := 0
	for range 100 {
		if r.inspect(p, rpc) != nil {
			refused++
		}
	}
	if refused < 80 {
		t.Errorf("%d of 100 packets refused", refused)
	}
	stranger, err := p2p.PeerID(p2ptest.Key("stranger").ID())
	if err != nil {
		t.Fatal(err)
	}
	if r.inspect(stranger, &pubsub.RPC{}) == nil {
		t.Error("a stranger's packet was accepted")
	}
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
		t.Error("another author's message is taken for a repetition")
	}
}
