package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// dripping has a node send what a store holds so many bytes at a time, with pauses between.
func dripping(t *testing.T, n *p2p.Node, s *Store, bytes int, pause time.Duration) {
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	serveWith(n, func(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
		return s.serve(stream, writerFunc(func(p []byte) (n int, err error) {
			if len(p) < groupSize { // of what leads to the bytes
				return stream.Write(p)
			}
			for n < len(p) && err == nil {
				end := min(n+bytes, len(p))
				if _, err = stream.Write(p[n:end]); err != nil {
					return n, err
				}
				n = end
				select {
				case <-time.After(pause):
				case <-ended:
					err = io.ErrClosedPipe
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
			return n, err
		}))
	})
}

// TestDripAfterSilence: an honest holder does not answer once, for a moment. The other one, which then has all ranges, does not
// keep them by sending little: the first is asked again, though it was slow.
func TestDripAfterSilence(t *testing.T) {
	for _, size := range []int{600_000, 12 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			nodes := p2ptest.New(t, "joiner", "honest", "dripping")
			data, before, little := payload(size), payload(200_000), payload(30_000)
			honest := holding(data, before)
			var hangs atomic.Bool
			serveWith(nodes[1], func(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
				for hangs.Load() && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				return honest.serve(stream, stream)
			})
			dripping(t, nodes[2], holding(data, little), 20_000, time.Second)
			store := NewStore(1 << 30)
			for i, data := range [][]byte{before, little} {
				if _, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), p2ptest.IDs(nodes[1+i])); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			hangs.Store(true)
			time.AfterFunc(time.Second, func() { hangs.Store(false) })
			begun := time.Now()
			got, err := Fetch(ctx, nodes[0], store, Hash(blake3.Sum256(data)), uint64(size), p2ptest.IDs(nodes[1:]...))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			t.Log(time.Since(begun))
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestSilentHolderWasFast: a holder that was fast has gone without a word. Who is many times slower does not lose its ranges
// to it.
func TestSilentHolderWasFast(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "joiner", "gone", "slow")
	before := payload(2 << 20)
	blobs := [][]byte{payload(600_000), payload(600_001), payload(600_002)}
	Serve(nodes[1], holding(before))
	dripping(t, nodes[2], holding(blobs...), 40_000, 200*time.Millisecond)
	store := NewStore(1 << 30)
	if _, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(before)), uint64(len(before)), p2ptest.IDs(nodes[1])); err != nil {
		t.Fatal(err)
	}
	serveWith(nodes[1], func(ctx context.Context, _ identity.ID, _ p2p.Stream) error {
		<-ctx.Done()
		return ctx.Err()
	})
	for _, data := range blobs {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		begun := time.Now()
		got, err := Fetch(ctx, nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), p2ptest.IDs(nodes[1:]...))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		t.Log(time.Since(begun))
		if took := time.Since(begun); took > 8*time.Second { // by itself the slow one takes 3 s
			t.Errorf("took %v", took)
		}
	}
	if score := nodes[0].Score(nodes[2].ID()); score != 0 {
		t.Errorf("the slow one is blamed: %v", score)
	}
}

// TestGoneHoldersAreNotWaitedFor: members that cannot be reached any more cost as little as those that do not answer.
func TestGoneHoldersAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	joiner, honest := p2ptest.Node(t, "joiner"), p2ptest.Node(t, "honest")
	members := p2ptest.Peers(joiner, honest)
	var holders []identity.ID
	for i := range 4 {
		silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = silent.Close() })
		gone := p2ptest.Key(fmt.Sprint("gone ", i)).ID()
		holders = append(holders, gone)
		members = append(members, p2p.Peer{ID: gone, Addrs: []string{fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", silent.LocalAddr().(*net.UDPAddr).Port)}})
	}
	p2ptest.Connect(t, joiner, honest)
	joiner.SetMembers(members)
	before, data := payload(200_000), payload(100_000)
	Serve(honest, holding(before, data))
	store := NewStore(1 << 30)
	if _, err := Fetch(testContext(t), joiner, store, Hash(blake3.Sum256(before)), uint64(len(before)), p2ptest.IDs(honest)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	got, err := Fetch(testContext(t), joiner, store, Hash(blake3.Sum256(data)), uint64(len(data)), append(holders, honest.ID()))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	t.Log(time.Since(begun))
	if took := time.Since(begun); took > 6*time.Second {
		t.Errorf("took %v", took)
	}
}
