package p2pnet_test

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/p2pnet"
	"github.com/psyche-go/psyche/record/backend"
)

// TestFetchWithoutRoom fetches a blob that is larger than the store. It checks that the client does
// not blame the holders.
func TestFetchWithoutRoom(t *testing.T) {
	nodes := []*p2p.Node{p2ptest.Node(t, "giver"), p2ptest.Node(t, "receiver")}
	giver, receiver := p2pnet.New(nodes[0], blob.NewStore(1<<20), run), p2pnet.New(nodes[1], blob.NewStore(1<<10), run)
	peers := make([]backend.Peer, 2)
	for i, n := range nodes {
		peers[i] = backend.Peer{ID: n.ID(), Addrs: n.Addrs()}
	}
	giver.SetMembers(peers[1:])
	receiver.SetMembers(peers[:1])
	data := make([]byte, 64<<10)
	hash, err := giver.Put(data)
	if err != nil {
		t.Fatal(err)
	}
	holders := []identity.ID{nodes[0].ID()}
	if _, err := receiver.Fetch(t.Context(), hash, uint64(len(data)), holders); !errors.Is(err, env.ErrNoRoom) || !errors.Is(err, blob.ErrFull) {
		t.Errorf("error %v, want ErrNoRoom", err)
	}
}
