package tcp_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/follow"
)

// TestForgedStatesAreNotShown checks a host that sends a valid state that does not follow from its
// log, with a forged checkpoint and member. The host sends the state alone, as the base of an epoch
// without a certificate, and with a certificate by the host's keys. A participating client returns
// none of these states.
func TestForgedStatesAreNotShown(t *testing.T) {
	genesis, err := follow.OpenGenesis(fakeGenesis(backendtest.RunID, 200))
	if err != nil {
		t.Fatal(err)
	}
	state, err := genesis.First()
	if err != nil {
		t.Fatal(err)
	}
	own := backendtest.Key(66)
	state.Pending = append(state.Pending, coordinator.Client{ID: coordinator.ClientID(own.ID()), HoldsModel: true})
	state.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointDummy, Digest: [32]byte{6, 6, 6}}
	forged := state.AppendTo(nil)
	if _, err := coordinator.Decode(forged); err != nil {
		t.Fatalf("the forged state is invalid: %v", err)
	}
	epoch := follow.Epoch{Number: 1, Index: 3, State: state.Hash()}
	epoch.Members = append(epoch.Members, own.ID())
	certificate := follow.Certificate{Epoch: epoch}
	certificate.Signatures = append(certificate.Signatures, follow.Signature{ID: own.ID(), Signature: certificate.Sign(own, genesis.Run())})
	for name, frames := range map[string][]byte{
		"a state":                   frame.Append(nil, frame.TypeState, forged),
		"a base":                    frame.Append(nil, frame.TypeBase, forged),
		"a base that it certifies":  frame.Append(frame.Append(nil, frame.TypeCertificate, certificate.AppendTo(nil)), frame.TypeBase, forged),
		"a state that records name": frame.Append(nil, frame.TypeRecords, forged),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := make(chan struct{})
			tell := sync.OnceFunc(func() { close(sent) })
			address := fakeServer(t, func(s net.Conn, r *frame.Reader) {
				welcome(s, r)
				_, _ = s.Write(frames)
				tell()
				_, _, _ = r.Next(frame.MaxToHost)
			})
			c, err := tcp.Dial(t.Context(), fast(address))
			if err != nil {
				t.Fatal(err)
			}
			<-sent
			select {
			case u := <-c.Updates():
				t.Errorf("update %+v", u)
			case <-time.After(500 * time.Millisecond):
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
