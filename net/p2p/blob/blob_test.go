package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), p2ptest.Wait)
	t.Cleanup(cancel)
	return ctx
}

// payload returns size bytes that depend on size only.
func payload(size int) []byte {
	data := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)})
	_, _ = r.Read(data)
	return data
}

func holding(payloads ...[]byte) *Store {
	s := NewStore(1 << 30)
	for _, data := range payloads {
		s.Put(data)
	}
	return s
}

// serveWith serves the protocol with a handler that may violate it.
func serveWith(n *p2p.Node, h p2p.StreamHandler) {
	n.HandleStream(Protocol, p2p.StreamLimits{PerPeer: 64, Total: 64, Timeout: p2ptest.Wait}, h)
}

// counted serves as an honest holder and returns the number of requests.
func counted(n *p2p.Node, s *Store) *atomic.Int64 {
	var asked atomic.Int64
	serveWith(n, func(_ context.Context, _ identity.ID, stream p2p.Stream) error {
		asked.Add(1)
		return s.serve(stream, stream)
	})
	return &asked
}

// writerFunc changes the output of a holder's stream piece by piece.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (written int, err error) {
	for piece := range slices.Chunk(p, 64<<10) {
		n, err := f(piece)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// flipping serves as a holder that flips one bit of the byte at position at of each response.
func flipping(n *p2p.Node, s *Store, at int) *atomic.Int64 {
	var asked atomic.Int64
	serveWith(n, func(_ context.Context, _ identity.ID, stream p2p.Stream) error {
		asked.Add(1)
		sent := 0
		return s.serve(stream, writerFunc(func(p []byte) (int, error) {
			p = bytes.Clone(p)
			if i := at - sent; i >= 0 && i < len(p) {
				p[i] ^= 1
			}
			sent += len(p)
			return stream.Write(p)
		}))
	})
	return &asked
}

// dying serves as a holder that resets each stream after some bytes.
func dying(n *p2p.Node, s *Store, after int) *atomic.Int64 {
	var asked atomic.Int64
	serveWith(n, func(_ context.Context, _ identity.ID, stream p2p.Stream) error {
		asked.Add(1)
		left := after
		return s.serve(stream, writerFunc(func(p []byte) (int, error) {
			k, err := stream.Write(p[:min(left, len(p))])
			if left -= k; left == 0 && err == nil {
				err = io.ErrClosedPipe
			}
			return k, err
		}))
	})
	return &asked
}

func TestFetchSizes(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "a", "b")
	sizes := []int{0, 1, 1023, 1024, groupSize - 1, groupSize, groupSize + 1, 5*groupSize + 7,
		maxRange - 1, maxRange, maxRange + 1, 2*maxRange + 3*groupSize + 100}
	remote := NewStore(1 << 30)
	Serve(nodes[1], remote)
	for _, size := range sizes {
		data := payload(size)
		hash := remote.Put(data)
		if hash != Hash(blake3.Sum256(data)) {
			t.Fatalf("%d bytes: not the BLAKE3 hash", size)
		}
		local := NewStore(1 << 30)
		got, err := Fetch(testContext(t), nodes[0], local, hash, uint64(size), p2ptest.IDs(nodes...))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: got %d, %v", size, len(got), err)
		}
		if held, ok := local.get(t.Context(), hash); !ok || !bytes.Equal(held, data) {
			t.Errorf("%d bytes: not in the store", size)
		}
		if got := local.usage().Memory; got != cost(uint64(size)) {
			t.Errorf("%d bytes: usage %d, want %d", size, got, cost(uint64(size)))
		}
		local = NewStore(1 << 30)
		got, err = FetchUpTo(testContext(t), nodes[0], local, hash, uint64(size), p2ptest.IDs(nodes...))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes of unknown size: got %d, %v", size, len(got), err)
		}
		if size > 0 {
			_, err = FetchUpTo(testContext(t), nodes[0], NewStore(1<<30), hash, uint64(size-1), p2ptest.IDs(nodes...))
			if !errors.Is(err, errTooLarge) {
				t.Errorf("%d bytes, limit one less: %v", size, err)
			}
		}
	}
}

func TestFetchedBlobIsServed(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c")
	data := payload(3*groupSize + 5)
	Serve(nodes[0], holding(data))
	middle := NewStore(1 << 20)
	Serve(nodes[1], middle)
	hash := Hash(blake3.Sum256(data))
	for i, store := range []*Store{middle, NewStore(1 << 20)} {
		got, err := Fetch(testContext(t), nodes[i+1], store, hash, uint64(len(data)), []identity.ID{nodes[i].ID()})
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("hop %d: %v", i, err)
		}
	}
}

func TestOneOfSeveralHoldersSendsWrongData(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "a", "b", "c", "corrupt")
	data := payload(6*maxRange + 12345)
	corrupt := flipping(nodes[3], holding(data), 100_000)
	b, c := counted(nodes[1], holding(data)), counted(nodes[2], holding(data))
	store := NewStore(1 << 30)
	hash := Hash(blake3.Sum256(data))
	holders := []identity.ID{nodes[3].ID(), nodes[1].ID(), nodes[2].ID()}
	got, err := Fetch(testContext(t), nodes[0], store, hash, uint64(len(data)), holders)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if corrupt.Load() > perHolder || b.Load() == 0 || c.Load() == 0 {
		t.Errorf("asked the corrupt holder %d times, the other holders %d and %d times", corrupt.Load(), b.Load(), c.Load())
	}
	if !nodes[0].Avoids(nodes[3].ID()) || nodes[0].Score(nodes[1].ID()) != 0 {
		t.Errorf("scores: the corrupt holder's %v, an honest holder's %v", nodes[0].Score(nodes[3].ID()), nodes[0].Score(nodes[1].ID()))
	}
	// The next fetch asks this holder last.
	if order := store.holders.order(nodes[0], holders); order[2] != nodes[3].ID() {
		t.Errorf("order %v", order)
	}
}

func TestHolderDiesMidway(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c")
	data := payload(maxRange)
	hash := Hash(blake3.Sum256(data))
	dying(nodes[1], holding(data), 3_000_000)
	honest := holding(data)
	var first atomic.Pointer[request]
	serveWith(nodes[2], func(_ context.Context, _ identity.ID, stream p2p.Stream) error {
		var raw [requestSize]byte
		if _, err := io.ReadFull(stream, raw[:]); err != nil {
			return err
		}
		r, err := decodeRequest(raw[:])
		if err != nil {
			return err
		}
		first.CompareAndSwap(nil, &r)
		return honest.serve(bytes.NewReader(raw[:]), stream)
	})
	holders := []identity.ID{nodes[1].ID(), nodes[2].ID()}
	got, err := Fetch(testContext(t), nodes[0], NewStore(1<<30), hash, uint64(len(data)), holders)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if r := first.Load(); r == nil || r.offset == 0 || r.offset+r.length != maxRange {
		t.Errorf("request %+v to the second holder, want the rest", r)
	}
}

func TestSilentHolderLosesItsRange(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "a", "b", "c")
	data := payload(100_000)
	serveWith(nodes[1], func(ctx context.Context, _ identity.ID, _ p2p.Stream) error {
		<-ctx.Done()
		return ctx.Err()
	})
	Serve(nodes[2], holding(data))
	got, err := Fetch(testContext(t), nodes[0], NewStore(1<<30), Hash(blake3.Sum256(data)), uint64(len(data)),
		[]identity.ID{nodes[1].ID(), nodes[2].ID()})
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

// TestSilentHolderIsNotWaitedFor checks that a fetch moves on to a different holder if one is
// silent for much longer than answers usually take, like a killed process. The silent holder is not
// blamed, and later fetches do not ask it first.
func TestSilentHolderIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "a", "b", "c")
	var asked atomic.Int32
	serveWith(nodes[1], func(ctx context.Context, _ identity.ID, _ p2p.Stream) error {
		asked.Add(1)
		<-ctx.Done()
		return ctx.Err()
	})
	blobs := [][]byte{payload(100_000), payload(100_001), payload(100_002)}
	Serve(nodes[2], holding(blobs...))
	store := NewStore(1 << 30)
	for i, data := range blobs {
		holders := []identity.ID{nodes[1].ID(), nodes[2].ID()}
		if i == 0 { // this fetch measures the usual time of an answer
			holders = holders[1:]
		}
		got, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), holders)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the silent holder was asked %d times, want once", n)
	}
	if nodes[0].Score(nodes[1].ID()) != 0 {
		t.Error("the holder is blamed for a stall")
	}
}

func TestFetchFailures(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "a", "b", "c")
	nonMember := p2ptest.Node(t, "stranger")
	data := payload(5 * groupSize)
	hash := Hash(blake3.Sum256(data))
	Serve(nodes[1], holding(data))
	flipping(nodes[2], holding(data), 9)
	b, corrupt := []identity.ID{nodes[1].ID()}, []identity.ID{nodes[2].ID()}
	tests := []struct {
		name    string
		hash    Hash
		size    uint64
		holders []identity.ID
		want    error
	}{
		{"nobody", hash, 1, nil, errNoHolders},
		{"only non-members and itself", hash, 1, p2ptest.IDs(nonMember, nodes[0]), errNoHolders},
		{"not held", Hash{1}, 1, b, ErrNotHeld},
		{"announced too large", hash, uint64(len(data)) + 1, b, errSize},
		{"announced too small", hash, uint64(len(data)) - 1, b, errSize},
		{"announced as empty", hash, 0, b, errSize},
		{"over the store's limit", hash, 1<<20 + 1, b, ErrFull},
		{"absurd", hash, 1<<64 - 1, b, ErrFull},
		{"just above the largest int64", hash, 1<<63 + 5, b, ErrFull},
		{"only a corrupt holder", hash, uint64(len(data)), corrupt, errCorrupt},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store := NewStore(1 << 20)
			if _, err := Fetch(testContext(t), nodes[0], store, test.hash, test.size, test.holders); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if usage := store.usage(); usage.Memory != 0 || len(store.flights) != 0 {
				t.Errorf("left behind %+v and %d flights", usage, len(store.flights))
			}
		})
	}
	if _, err := FetchUpTo(testContext(t), nodes[0], NewStore(1<<20), Hash{1}, 10, b); !errors.Is(err, ErrNotHeld) {
		t.Errorf("unknown size, not held: %v", err)
	}
	if _, err := FetchUpTo(testContext(t), nodes[0], NewStore(1<<20), hash, 10, nil); !errors.Is(err, errNoHolders) {
		t.Errorf("unknown size, no holder: %v", err)
	}
	nonMember.SetMembers(p2ptest.Peers(nodes[1]))
	ctx, cancel := context.WithCancel(testContext(t))
	if _, err := Fetch(ctx, nonMember, NewStore(1<<20), hash, uint64(len(data)), b); err == nil {
		t.Error("a non-member fetched a blob")
	}
	cancel()
	if _, err := Fetch(ctx, nodes[0], NewStore(1<<20), hash, uint64(len(data)), b); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestHolderWithAnAbsurdSizeIsAvoided checks that a holder that claims an absurd size is avoided.
func TestHolderWithAnAbsurdSizeIsAvoided(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b", "c")
	data := payload(2 * groupSize)
	hash := Hash(blake3.Sum256(data))
	flipping(nodes[1], holding(data), 8) // the highest byte of the size
	Serve(nodes[2], holding(data))
	store := NewStore(1 << 20)
	got, err := FetchUpTo(testContext(t), nodes[0], store, hash, 1<<20, p2ptest.IDs(nodes...))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if !nodes[0].Avoids(nodes[1].ID()) {
		t.Error("the false size was not penalised")
	}
}

func TestOneFetchForManyCallers(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	data := payload(3 * groupSize)
	asked := counted(nodes[1], holding(data))
	store := NewStore(1 << 20)
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			got, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), p2ptest.IDs(nodes...))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	callers.Wait()
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// TestUploadRate checks that the upload rate applies to all members together, on streams and bulk
// connections.
func TestUploadRate(t *testing.T) {
	t.Parallel()
	const rate = 1 << 20 // bytes per second
	giver, err := p2p.New(context.Background(), p2p.Options{Key: p2ptest.Key("giver"), Listen: p2ptest.Loopback, MaxUploadRate: rate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = giver.Close() })
	receivers := []*p2p.Node{p2ptest.Node(t, "a"), p2ptest.Node(t, "b")}
	p2ptest.Connect(t, append(receivers, giver)...)
	large, small := payload(3*bulkSize), payload(bulkSize-1)
	Serve(giver, holding(large, small))
	begun := time.Now()
	var tasks sync.WaitGroup
	for i, data := range [][]byte{large, small} {
		tasks.Go(func() {
			got, err := Fetch(testContext(t), receivers[i], NewStore(1<<30), blake3.Sum256(data), uint64(len(data)), p2ptest.IDs(giver))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	tasks.Wait()
	if took, minimum := time.Since(begun), 700*time.Millisecond; took < minimum { // 1 MiB; a burst of 256 KiB is allowed
		t.Errorf("%d bytes at %d per second took %v", len(large)+len(small), rate, took)
	}
	for _, receiver := range receivers {
		if receiver.Score(giver.ID()) != 0 {
			t.Error("a member is blamed for a slow link")
		}
	}
}

func TestGarbageOnTheStream(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	data := payload(3 * groupSize)
	hash := Hash(blake3.Sum256(data))
	Serve(nodes[1], holding(data))
	for _, raw := range [][]byte{
		{}, {1}, bytes.Repeat([]byte{0xff}, requestSize), make([]byte, 10*requestSize),
		request{hash, 1, groupSize}.encode(), request{hash, 0, 0}.encode(), request{hash, 0, maxRange + 1}.encode(),
		request{hash, 1 << 63, groupSize}.encode(), request{hash, 0, groupSize + 1}.encode(),
		request{hash, 2 * groupSize, 2 * groupSize}.encode(), request{hash, probeOffset - groupSize + 1, groupSize}.encode(),
	} {
		s, err := nodes[0].OpenStream(testContext(t), nodes[1].ID(), Protocol)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write(raw)
		_ = s.CloseWrite()
		if answer, err := io.ReadAll(s); err == nil && len(answer) > 0 && answer[0] == statusOK {
			t.Errorf("%x got an answer", raw)
		}
		_ = s.Close()
	}
	if _, err := Fetch(testContext(t), nodes[0], NewStore(1<<20), hash, uint64(len(data)), p2ptest.IDs(nodes...)); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkFetch(b *testing.B) {
	nodes := p2ptest.New(b, "a", "b", "c")
	for _, size := range []int{64 << 10, 1 << 20, 32 << 20} {
		data := payload(size)
		Serve(nodes[1], holding(data))
		Serve(nodes[2], holding(data))
		hash := Hash(blake3.Sum256(data))
		b.Run(byteCount(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := Fetch(context.Background(), nodes[0], NewStore(1<<30), hash, uint64(size), p2ptest.IDs(nodes[1:]...)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func byteCount(size int) string {
	if size >= 1<<20 {
		return string(rune('0'+size>>20/10)) + string(rune('0'+size>>20%10)) + "MiB"
	}
	return "64KiB"
}
