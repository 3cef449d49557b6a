package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
	"lukechampine.com/blake3"
)

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := OpenStore(Options{MaxMemory: 8 << 20, Dir: dir, MaxDisk: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// received returns the number of bytes that a node has received since begun.
func received(n *p2p.Node, begun uint64) uint64 {
	_, now := n.Bytes()
	return now - begun
}

// TestNothingIsFetchedTwiceWhenAHolderDies checks that a holder that dies halfway costs only the
// bytes in flight, not the verified bytes.
func TestNothingIsFetchedTwiceWhenAHolderDies(t *testing.T) {
	nodes := p2ptest.New(t, "joiner", "a", "b", "c")
	data := payload(48<<20 + 1234)
	hash := Hash(blake3.Sum256(data))
	victim := nodes[1]
	Serve(nodes[2], holding(data))
	Serve(nodes[3], holding(data))
	var sent atomic.Int64
	honest := holding(data)
	serveWith(victim, func(_ context.Context, _ identity.ID, stream p2p.Stream) error {
		return honest.serve(stream, writerFunc(func(p []byte) (int, error) {
			if sent.Add(int64(len(p))) > 6<<20 {
				go func() { _ = victim.Close() }()
				return 0, io.ErrClosedPipe
			}
			return stream.Write(p)
		}))
	})
	_, begun := nodes[0].Bytes()
	got, err := Fetch(testContext(t), nodes[0], NewStore(1<<30), hash, uint64(len(data)), p2ptest.IDs(nodes[1:]...))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if total := received(nodes[0], begun); float64(total) > 1.1*float64(len(data)) {
		t.Errorf("received %d bytes for %d", total, len(data))
	}
}

// TestFetchGoesOnAfterARestart checks that the next process does not fetch again what the previous
// process had verified before it was killed.
func TestFetchGoesOnAfterARestart(t *testing.T) {
	for _, damage := range []string{"", "data", "journal"} {
		t.Run("damaged "+damage, func(t *testing.T) {
			nodes := p2ptest.New(t, "joiner", "a")
			data := payload(24<<20 + 99)
			hash := Hash(blake3.Sum256(data))
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(testContext(t))
			var sent atomic.Int64
			honest := holding(data)
			serveWith(nodes[1], func(_ context.Context, _ identity.ID, stream p2p.Stream) error {
				return honest.serve(stream, writerFunc(func(p []byte) (int, error) {
					if sent.Add(int64(len(p))) > 16<<20 {
						cancel() // simulates the end of the process
					}
					return stream.Write(p)
				}))
			})
			first := openStore(t, dir)
			if _, err := Fetch(ctx, nodes[0], first, hash, uint64(len(data)), p2ptest.IDs(nodes[1])); !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: %v", err)
			}
			if _, err := OpenStore(Options{Dir: dir}); !errors.Is(err, ErrInUse) {
				t.Errorf("a folder in use was opened: %v", err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			spoil(t, dir, damage)

			Serve(nodes[1], honest)
			second := openStore(t, dir)
			_, begun := nodes[0].Bytes()
			got, err := Fetch(testContext(t), nodes[0], second, hash, uint64(len(data)), p2ptest.IDs(nodes[1]))
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			again := received(nodes[0], begun)
			if damage == "" && again > 14<<20 {
				t.Errorf("received %d bytes of %d after the restart", again, len(data))
			}
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}

			// A third process has all bytes, and serves them from the disk.
			third := openStore(t, dir)
			if held, ok := third.get(t.Context(), hash); !ok || !bytes.Equal(held, data) {
				t.Fatal("not held after another restart")
			}
			if usage := third.usage(); usage.Memory != 0 || usage.Disk != cost(uint64(len(data))) {
				t.Errorf("usage %+v", usage)
			}
			Serve(nodes[0], third)
			got, err = Fetch(testContext(t), nodes[1], NewStore(1<<30), hash, uint64(len(data)), p2ptest.IDs(nodes[0]))
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("served from disk: %d bytes, %v", len(got), err)
			}
			third.Drop(hash)
			if left, _ := filepath.Glob(filepath.Join(dir, "*.*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// spoil damages a file of an interrupted process.
func spoil(t *testing.T, dir, subject string) {
	t.Helper()
	suffix := map[string]string{"data": partSuffix, "journal": spansSuffix}[subject]
	if suffix == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v; want nil error and len(files) == 1", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil || len(raw) < 20 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	if subject == "data" {
		raw[3] ^= 1
		raw[len(raw)/2] ^= 1
	} else {
		raw = append(raw[:len(raw)-3], strings.Repeat("\xff", 40)...)
	}
	if err := os.WriteFile(files[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestChangedFileIsDropped checks that a file that another program changed is neither served nor
// returned.
func TestChangedFileIsDropped(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	dir := t.TempDir()
	data := payload(2 << 20)
	s := openStore(t, dir)
	hash := s.Put(data)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data = bytes.Clone(data)
	data[77] ^= 1
	if err := os.WriteFile(s.folder.path(hash), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	Serve(nodes[0], s)
	if _, err := Fetch(testContext(t), nodes[1], NewStore(1<<30), hash, uint64(len(data)), p2ptest.IDs(nodes[0])); !errors.Is(err, ErrNotHeld) {
		t.Errorf("fetched: %v", err)
	}
	if _, ok := s.get(t.Context(), hash); ok {
		t.Error("returned")
	}
	if nodes[1].Score(nodes[0].ID()) != 0 {
		t.Error("a holder with a damaged file is blamed for wrong bytes")
	}
}

// TestDribblingHolder checks that a member that sends single bytes costs about a second, and is
// then asked after the others.
func TestDribblingHolder(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "joiner", "dribbler", "b")
	data := payload(12 << 20)
	honest := holding(data)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	serveWith(nodes[1], func(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
		return honest.serve(stream, writerFunc(func(p []byte) (int, error) {
			for i := range p {
				if _, err := stream.Write(p[i : i+1]); err != nil {
					return i, err
				}
				select {
				case <-time.After(200 * time.Millisecond):
				case <-ended:
					return i, io.ErrClosedPipe
				case <-ctx.Done():
					return i, ctx.Err()
				}
			}
			return len(p), nil
		}))
	})
	Serve(nodes[2], honest)
	begun := time.Now()
	store := NewStore(1 << 30)
	got, err := Fetch(testContext(t), nodes[0], store, Hash(blake3.Sum256(data)), uint64(len(data)), p2ptest.IDs(nodes[1:]...))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if order := store.holders.order(nodes[0], p2ptest.IDs(nodes[1:]...)); order[0] != nodes[2].ID() {
		t.Errorf("the dribbling holder is asked first again; scores: its %v, the honest holder's %v", nodes[0].Score(nodes[1].ID()), nodes[0].Score(nodes[2].ID()))
	}
}

// TestLoneSilentHolder checks that a fetch ends if its only holder is silent.
func TestLoneSilentHolder(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "joiner", "silent")
	serveWith(nodes[1], func(ctx context.Context, _ identity.ID, _ p2p.Stream) error {
		<-ctx.Done()
		return ctx.Err()
	})
	store := NewStore(1 << 30)
	store.lone = 200 * time.Millisecond
	_, err := Fetch(testContext(t), nodes[0], store, Hash{1}, 100, p2ptest.IDs(nodes[1]))
	if !errors.Is(err, errSlow) {
		t.Errorf("error %v", err)
	}
	if nodes[0].Score(nodes[1].ID()) == 0 {
		t.Error("the holder is not blamed for the stall")
	}
}

// TestStallBehindARelayIsNotBlamed checks that a stall of a relayed connection is not blamed on
// the member, because the relay may be the cause.
func TestStallBehindARelayIsNotBlamed(t *testing.T) {
	t.Parallel()
	hidden, err := p2p.New(context.Background(), p2p.Options{Key: p2ptest.Key("hidden")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hidden.Close() })
	joiner, err := p2p.New(context.Background(), p2p.Options{Key: p2ptest.Key("joiner")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = joiner.Close() })
	p2ptest.Connect(t, hidden, joiner, p2ptest.Node(t, "relay"))
	serveWith(hidden, func(ctx context.Context, _ identity.ID, _ p2p.Stream) error {
		<-ctx.Done()
		return ctx.Err()
	})
	store := NewStore(1 << 30)
	store.lone = 200 * time.Millisecond
	if _, err := Fetch(testContext(t), joiner, store, Hash{1}, 100, p2ptest.IDs(hidden)); !errors.Is(err, errSlow) {
		t.Errorf("error %v", err)
	}
	if joiner.Score(hidden.ID()) != 0 {
		t.Error("the member is blamed, but the relay may have stalled")
	}
}

// TestMemoryStaysFlat checks that wrong sizes and wrong bytes do not increase the memory in use.
func TestMemoryStaysFlat(t *testing.T) {
	nodes := p2ptest.New(t, "joiner", "corrupt")
	data := payload(4 * groupSize)
	hash := Hash(blake3.Sum256(data))
	flipping(nodes[1], holding(data), 8) // claims an absurd size
	store := NewStore(64 << 20)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 50 {
		if _, err := Fetch(testContext(t), nodes[0], store, hash, 32<<20, p2ptest.IDs(nodes[1])); !errors.Is(err, errSize) {
			t.Fatalf("error %v", err)
		}
		if _, err := FetchUpTo(testContext(t), nodes[0], store, hash, 32<<20, p2ptest.IDs(nodes[1])); !errors.Is(err, errCorrupt) {
			t.Fatalf("error %v", err)
		}
	}
	if after := heap(); after > before+8<<20 {
		t.Errorf("heap grew from %d to %d bytes", before, after)
	}
	if usage := store.usage(); usage != (used{}) {
		t.Errorf("left behind %+v", usage)
	}
}

// TestDisconnectedMemberIsNotBlamed checks that a member without a connection is not blamed for not
// answering. It may have left, like other members at the end of a run.
func TestDisconnectedMemberIsNotBlamed(t *testing.T) {
	t.Parallel()
	joiner := p2ptest.Node(t, "joiner")
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0") // its former address, which never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	gone := p2ptest.Key("gone").ID()
	port := silent.LocalAddr().(*net.UDPAddr).Port
	joiner.SetMembers([]p2p.Peer{{ID: gone, Addrs: []string{fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", port)}}})
	store := NewStore(1 << 30)
	store.lone = 200 * time.Millisecond
	if _, err := Fetch(testContext(t), joiner, store, Hash{1}, 100, []identity.ID{gone}); !errors.Is(err, errSlow) {
		t.Errorf("error %v", err)
	}
	if score := joiner.Score(gone); score != 0 {
		t.Errorf("score %v", score)
	}
}

// TestFileThatChangesWhileItIsServed checks that a file of the folder that other programs changed
// after it was served is dropped at the next request. The requester does not get wrong bytes from
// this member.
func TestFileThatChangesWhileItIsServed(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	data := payload(2 << 20)
	s := openStore(t, t.TempDir())
	Serve(nodes[0], s)
	hash := s.Put(data)
	fetched := func() error {
		_, err := Fetch(testContext(t), nodes[1], NewStore(1<<30), hash, uint64(len(data)), p2ptest.IDs(nodes[0]))
		return err
	}
	if err := fetched(); err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(data)
	changed[len(data)/2] ^= 1
	if err := os.WriteFile(s.folder.path(hash), changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fetched(); err == nil || errors.Is(err, errCorrupt) {
		t.Errorf("fetched: %v", err)
	}
	if _, held := s.get(t.Context(), hash); held || s.usage() != (used{}) {
		t.Errorf("held: %v, usage %+v", held, s.usage())
	}
	if score := nodes[1].Score(nodes[0].ID()); score != 0 {
		t.Errorf("the holder is blamed: %v", score)
	}
}
