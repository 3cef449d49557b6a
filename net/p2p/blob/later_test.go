package blob

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// TestFetchAsksAgainForLaterHolders checks a fetch whose only holder is slow or silent. The fetch
// asks the other members repeatedly whether they have the payload by now, because members receive a
// result at different times. No member is blamed for being slow.
func TestFetchAsksAgainForLaterHolders(t *testing.T) {
	for name, rate := range map[string]int{"is slow": 200 << 10, "is silent": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := p2ptest.New(t, "joiner", "slow", "b", "c")
			data, before := payload(12<<20), payload(200_000)
			made, ended := holding(data), make(chan struct{})
			t.Cleanup(func() { close(ended) })
			pause := func(ctx context.Context) error {
				select {
				case <-time.After(50 * time.Millisecond):
					return nil
				case <-ended:
					return io.ErrClosedPipe
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			serveWith(nodes[1], func(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
				return made.serve(stream, writerFunc(func(p []byte) (n int, err error) {
					for rate == 0 {
						if err := pause(ctx); err != nil {
							return 0, err
						}
					}
					for n < len(p) && err == nil {
						end := min(n+rate/20, len(p))
						if _, err = stream.Write(p[n:end]); err == nil {
							n, err = end, pause(ctx)
						}
					}
					return n, err
				}))
			})
			later := holding(before)
			Serve(nodes[2], later)
			Serve(nodes[3], holding())
			store := NewStore(1 << 30)
			if _, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(before)), uint64(len(before)), p2ptest.IDs(nodes[2])); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(4*time.Second, func() { later.Put(data) })
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			got, err := Fetch(ctx, nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), p2ptest.IDs(nodes[1:]...))
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			t.Logf("took %v", time.Since(begun))
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("took %v, but a second holder had it after 4 s", took)
			}
			for _, n := range nodes[1:] {
				if nodes[0].Score(n.ID()) != 0 {
					t.Errorf("%s is blamed", n.ID().Short())
				}
			}
		})
	}
}

// TestLaterOnlyOnce checks a holder that announces a payload and then does not have it. The fetch
// does not ask it again whether it has the payload, because two such holders could keep a fetch
// from ending.
func TestLaterOnlyOnce(t *testing.T) {
	h := &holderState{}
	d := &download{holders: []*holderState{h}}
	for _, want := range []bool{true, false} {
		d.lose(h, ErrNotHeld)
		if !h.out || h.lacks != want {
			t.Fatalf("out %v, asked again %v, want %v", h.out, h.lacks, want)
		}
		if h.lacks {
			h.looked(true)
		}
	}
}
