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

// slowly returns a writer that writes pieces of this many bytes, one every tenth of a second.
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

// TestSlowHolderBesideABusyOne: a fast holder has no room for anything any more, and an honest one on a slow line loses its
// ranges to that one again and again. That is no failure of the slow one, from whom the payload is had.
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
		t.Errorf("the slow one is blamed: %v", score)
	}
	t.Log(time.Since(begun))
}

// TestWhoIsFarIsNotSlow: what came of a range is measured from its first bytes on. At the end of a long line, to which a
// connection is made first, they come after a second, and the rest soon after them: asking somebody else in
// between would begin all of it anew, each time.
func TestWhoIsFarIsNotSlow(t *testing.T) {
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

// TestSlowStreams: a holder whose streams are slow is asked on connections of their own from then on, whatever these bring, and
// on streams again when that was long ago.
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
		expect(1<<30, false) // nothing is known
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
		expect(1<<30, false) // what was measured is too old
	})
}
