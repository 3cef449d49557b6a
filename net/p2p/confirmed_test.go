package p2p_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// TestHandlersKnowWhenAResponseArrived checks that the context of a handler ends when the receiver
// has the response, and not earlier.
func TestHandlersKnowWhenAResponseArrived(t *testing.T) {
	nodes := p2ptest.New(t, "server", "client")
	server, client := nodes[0], nodes[1]
	ended := make(chan struct{})
	const size = 1 << 20
	server.Handle("/test/large/1", 8, func(ctx context.Context, _ identity.ID, _ []byte) ([]byte, error) {
		context.AfterFunc(ctx, func() { close(ended) })
		return make([]byte, size), nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := client.OpenStream(ctx, server.ID(), "/test/large/1")
	if err != nil {
		t.Fatal(err)
	}
	request := []byte{0, 0, 0, 1, 7}
	if _, err := s.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, 1+4+size)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Fatal("the transfer ended before the receiver confirmed it")
	case <-time.After(200 * time.Millisecond):
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal("the transfer continues after the receiver confirmed it")
	}
}
