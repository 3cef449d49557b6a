package tcp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend"
)

// TestAddressesOutliveTheServer simulates a restarted server that knows only one of three
// addresses. An address that the server listed since then and no longer lists is removed.
func TestAddressesOutliveTheServer(t *testing.T) {
	state := &coordinator.State{
		Epoch: coordinator.Epoch{Clients: []coordinator.Client{
			{ID: coordinator.ClientID{1}}, {ID: coordinator.ClientID{2}, State: coordinator.Withdrawn},
		}},
		Pending: []coordinator.Client{{ID: coordinator.ClientID{3}}},
	}
	peer := func(n byte, addr string) backend.Peer { return backend.Peer{ID: identity.ID{n}, Addrs: []string{addr}} }
	var book addressBook
	book.restart()
	book.merge(state, []backend.Peer{peer(1, "/1"), peer(2, "/2"), peer(3, "/3")})
	book.restart()
	for _, test := range []struct {
		state *coordinator.State
		named []backend.Peer
		want  []backend.Peer
	}{
		{state, nil, []backend.Peer{peer(1, "/1"), peer(3, "/3")}},
		{state, []backend.Peer{peer(3, "/new")}, []backend.Peer{peer(1, "/1"), peer(3, "/new")}},
		{state, nil, []backend.Peer{peer(1, "/1")}},
		{&coordinator.State{}, nil, []backend.Peer{}},
		{state, nil, []backend.Peer{}},
	} {
		if diff := cmp.Diff(test.want, book.merge(test.state, test.named)); diff != "" {
			t.Errorf("the server names %v: %s", test.named, diff)
		}
	}
}

// TestPausesAreBounded checks the longest pause between attempts, on which a restarting host
// relies.
func TestPausesAreBounded(t *testing.T) {
	o := Options{Addr: "localhost:1", RunID: "run"}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	policy, longest := o.pauses(), time.Duration(0)
	for range 1000 {
		longest = max(longest, policy.NextBackOff())
	}
	if longest > frame.LongestPause || longest < frame.LongestPause*9/10 {
		t.Errorf("the longest pause was %v, want slightly less than %v", longest, frame.LongestPause)
	}
}

// TestNonceRisesAboveTheState checks a client whose clock is behind the clock of its previous
// process.
func TestNonceRisesAboveTheState(t *testing.T) {
	key := identity.FromSeed([identity.SeedSize]byte{1})
	c := &Client{options: Options{Key: key}, nonce: 5}
	for _, clients := range [][]coordinator.Client{
		{{ID: coordinator.ClientID{9}, Nonce: 100}},
		{{ID: coordinator.ClientID(key.ID()), Nonce: 50}},
		{{ID: coordinator.ClientID(key.ID()), Nonce: 20}},
	} {
		c.raiseNonce(&coordinator.State{Departed: clients})
	}
	if c.nonce != 50 {
		t.Fatalf("nonce %d, want 50", c.nonce)
	}
	id := coordinator.ClientID(key.ID())
	c.raiseNonce(&coordinator.State{Authority: coordinator.Authority{Main: id, MainNonce: 60, JoinNonce: 100}})
	c.raiseNonce(&coordinator.State{Authority: coordinator.Authority{Authorizations: []coordinator.Authorization{{Grantee: id, Nonce: 70}}}})
	if c.nonce != 70 {
		t.Fatalf("nonce %d, want 70", c.nonce)
	}
}
