package p2p_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// TestTrafficOfPeers sends to one of two peers and checks that the bytes are attributed to that
// peer.
func TestTrafficOfPeers(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c")
	p2ptest.Connect(t, nodes...)
	a, b, c := nodes[0], nodes[1], nodes[2]
	const size = 1 << 20
	b.Handle("/test/take/1", size, func(context.Context, identity.ID, []byte) ([]byte, error) { return make([]byte, 3*size), nil })
	if _, err := a.Request(t.Context(), b.ID(), "/test/take/1", bytes.Repeat([]byte{1}, size), 4*size); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, traffic := range a.Traffic() {
		seen++
		switch many := traffic.Sent >= size && traffic.Received >= 3*size; {
		case traffic.ID == b.ID() && (!many || traffic.Relayed):
			t.Errorf("to the requested peer: %+v", traffic)
		case traffic.ID == c.ID() && (traffic.Sent >= size || traffic.Received >= size):
			t.Errorf("to the other peer: %+v", traffic)
		}
	}
	if seen != 2 {
		t.Errorf("%d peers", seen)
	}
}
