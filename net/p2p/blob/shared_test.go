package blob

import (
	"bytes"
	"context"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// TestHolderOnASharedLink fetches from a holder whose link is shared by many members, so that one
// group of 16 KiB takes longer than the permitted silence. The holder sends a few bytes all the
// time. The payload therefore arrives with one request, and the holder is not blamed.
func TestHolderOnASharedLink(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "joiner", "holder")
	data := payload(groupSize)
	store := NewStore(1 << 20)
	store.lone = time.Second
	requests := make(chan struct{}, 100)
	honest := holding(data)
	serveWith(nodes[1], func(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
		requests <- struct{}{}
		return honest.serve(stream, slowly(ctx, stream, 512)) // a group takes 3 s
	})
	got, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), p2ptest.IDs(nodes[1]))
	if err != nil || !bytes.Equal(got, data) || len(requests) != 1 {
		t.Errorf("%d of %d bytes arrived with %d requests: %v", len(got), len(data), len(requests), err)
	}
	if score := nodes[0].Score(nodes[1].ID()); score != 0 {
		t.Errorf("the holder is blamed: %v", score)
	}
}

// TestRangesHaveTimeOnSlowLinks checks that a range may take its share of a link of 0.25 Mbit/s
// that also carries results.
func TestRangesHaveTimeOnSlowLinks(t *testing.T) {
	const share = 250_000 / 8 / 6 // bytes per second
	for _, length := range []uint64{groupSize, 1 << 20, maxRange} {
		if needs := time.Duration(length) * time.Second / share; allowance(length) < needs {
			t.Errorf("%d bytes may take %v, want at least %v", length, allowance(length), needs)
		}
	}
}
