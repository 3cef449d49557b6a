package blob

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// slowly returns a writer that writes pieces of the given size, one every 0.1 s.
func slowly(ctx context.Context, to io.Writer, piece int) io.Writer {
	return writerFunc(func(p []byte) (n int, err error) {
		for n < len(p) && err == nil {
			end := min(n+piece, len(p))
			if _, err = to.Write(p[n:end]); err != nil {
				return n, err
			}
			n = end
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return n, err
	})
}

// TestSlowHolderBesideABusyOne checks a fast holder that has become busy and an honest holder on a
// slow link. The slow holder repeatedly loses its ranges to the busy one. This is not counted as a
// failure of the slow holder, and the payload finally comes from it.
func TestSlowHolderBesideABusyOne(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "joiner", "slow", "fast")
	data, before := payload(600_000), payload(2<<20)
	honest := holding(data)
	serveWith(nodes[1], func(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
		return honest.serve(stream, slowly(ctx, stream, 6_000)) // 1 Mbit/s, half of it for this member
	})
	Serve(nodes[2], holding(before))
	store := NewStore(1 << 30)
	if _, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(before)), uint64(len(before)), p2ptest.IDs(nodes[2])); err != nil {
		t.Fatal(err)
	}
	never := p2p.StreamLimits{PerPeer: 0, Total: 1, Timeout: p2ptest.Wait}
	nodes[2].HandleBulk(Protocol, never, func(context.Context, identity.ID, p2p.Stream) error { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	got, err := Fetch(ctx, nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), p2ptest.IDs(nodes[1:]...))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d of %d bytes after %v: %v", len(got), len(data), time.Since(begun), err)
	}
	if score := nodes[0].Score(nodes[1].ID()); score != 0 {
		t.Errorf("the slow holder is blamed: %v", score)
	}
	t.Log(time.Since(begun))
}

// TestRateIsMeasuredFromTheFirstBytes checks that the rate of a range is measured from its first
// bytes on. On a link with a long delay, which first needs a connection, the first bytes arrive
// after a second and the rest soon after. Asking a different holder in between would start over
// each time.
func TestRateIsMeasuredFromTheFirstBytes(t *testing.T) {
	d := &download{s: NewStore(1 << 20)}
	a, other := &attempt{seen: groupSize, span: span{length: 1 << 20}}, &holderState{}
	for _, test := range []struct {
		coming time.Duration
		want   bool
	}{{100 * time.Millisecond, false}, {slowGrace - 1, false}, {slowGrace, true}} {
		if got := d.gains(a, test.coming, other); got != test.want {
			t.Errorf("%d bytes in %v: %v", a.seen, test.coming, got)
		}
	}
}

// TestSlowStreams checks that a holder with slow streams is asked on separate connections from then
// on, whatever their rate. It is asked on streams again once the measurement is too old.
func TestSlowStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id, now := identity.ID{1}, func(rate float64) *account { return &account{rate: rate, measured: time.Now()} }
		b := &book{known: map[identity.ID]*account{}}
		expect := func(length uint64, want bool) {
			t.Helper()
			if got := b.slow(id, length); got != want {
				t.Errorf("%d bytes: slow %v", length, got)
			}
		}
		expect(1<<30, false) // no measurement
		b.known[id] = now(200 << 10)
		expect(600<<10, false)
		expect(601<<10, true)
		expect(slowSize, true)
		time.Sleep(rateMemory / 2)
		b.known[id].rate, b.known[id].measured = 10<<20, time.Now()
		expect(slowSize, true)
		time.Sleep(rateMemory / 2)
		expect(slowSize, false)
		b.known[id].rate = 1
		expect(slowSize, true)
		time.Sleep(rateMemory)
		expect(1<<30, false) // the measurement is too old
	})
}
