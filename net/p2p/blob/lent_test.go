package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// TestLentPayloadsAreAlwaysComplete checks fetches while a member randomly puts, lends and drops
// payloads and moves them off the disk. The fetched bytes are correct, no sender is blamed, and in
// the end the store is empty.
func TestLentPayloadsAreAlwaysComplete(t *testing.T) {
	nodes := p2ptest.New(t, "holder", "a", "b")
	store := openStore(t, t.TempDir())
	store.memory.max = 4 << 20
	Serve(nodes[0], store)
	var parts [][]byte
	var hashes []Hash
	var files []*io.SectionReader
	for _, size := range []int{0, 1, groupSize, 3*groupSize + 5, spillSize - 1, spillSize + 3, 2*maxRange + 9} {
		parts = append(parts, payload(size))
		hashes = append(hashes, blake3.Sum256(parts[len(parts)-1]))
		files = append(files, fileOf(t, parts[len(parts)-1]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for worker := range 4 {
		r := rand.New(rand.NewPCG(7, uint64(worker)))
		all.Go(func() {
			for ctx.Err() == nil {
				i := r.IntN(len(parts))
				switch r.IntN(6) {
				case 0, 1:
					store.Lend(parts[i])
				case 2:
					if h, err := store.LendFrom(files[i], func(err error) { t.Error(err) }); err != nil || h != hashes[i] {
						t.Errorf("payload %d cannot be lent from a file: %v, %v", i, h, err)
					}
				case 3:
					store.Put(parts[i])
				case 4:
					store.Drop(hashes[i])
				case 5:
					if r.IntN(20) == 0 {
						store.FreeDisk()
					} else if data, held := store.get(t.Context(), hashes[i]); held && !bytes.Equal(data, parts[i]) {
						t.Errorf("payload %d differs", i)
					}
				}
				time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
			}
		})
	}
	got := 0
	for n, node := range nodes[1:] {
		r := rand.New(rand.NewPCG(8, uint64(n)))
		all.Go(func() {
			for ctx.Err() == nil {
				i := r.IntN(len(parts))
				data, err := Fetch(ctx, node, NewStore(1<<30), hashes[i], uint64(len(parts[i])), p2ptest.IDs(nodes[0]))
				if err == nil && !bytes.Equal(data, parts[i]) {
					t.Errorf("payload %d arrived changed", i)
				}
				if err == nil && n == 0 {
					got++
				}
			}
		})
	}
	all.Wait()
	if got == 0 {
		t.Error("nothing was fetched")
	}
	for _, node := range nodes[1:] {
		if score := node.Score(nodes[0].ID()); score != 0 {
			t.Errorf("the holder is blamed: %v", score)
		}
	}
	for _, h := range hashes {
		store.Drop(h)
	}
	if usage := store.usage(); usage != (used{}) {
		t.Errorf("left behind %+v", usage)
	}
}

// fileOf returns an open file with data in its middle.
func fileOf(t *testing.T, data []byte) *io.SectionReader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(path, append(append([]byte("head"), data...), "tail"...), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return io.NewSectionReader(file, int64(len("head")), int64(len(data)))
}

// TestPayloadIsLentFromAFile checks that payloads in a file are served like payloads in memory and
// do not count as used room. They remain available after the file is removed, and replace a copy in
// memory.
func TestPayloadIsLentFromAFile(t *testing.T) {
	for _, size := range []int{0, 1, groupSize, groupSize + 1, oneWrite, 3*groupSize + 5, writeBuffer, 2*maxRange + 9} {
		nodes := p2ptest.New(t, "holder", "a")
		store := NewStore(1 << 30)
		Serve(nodes[0], store)
		data := payload(size)
		store.Lend(data)
		file := fileOf(t, data)
		h, err := store.LendFrom(file, func(err error) { t.Error(err) })
		if err != nil || h != Hash(blake3.Sum256(data)) {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if e := store.blobs[h]; e.data != nil || store.usage() != (used{Blobs: 1}) {
			t.Errorf("%d bytes: usage %+v, in memory: %v", size, store.usage(), e.data != nil)
		}
		outer, _, _ := file.Outer()
		if err := os.Remove(outer.(*os.File).Name()); err != nil {
			t.Fatal(err)
		}
		got, err := Fetch(t.Context(), nodes[1], NewStore(1<<30), h, uint64(size), p2ptest.IDs(nodes[0]))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: received %d, %v", size, len(got), err)
		}
		if got, held := store.get(t.Context(), h); !held || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: the payload has changed", size)
		}
		store.Lend(data)
		if store.blobs[h].data == nil {
			t.Errorf("%d bytes: a copy in memory is not preferred to a file", size)
		}
		store.Drop(h)
		if usage := store.usage(); usage != (used{}) {
			t.Errorf("%d bytes: left behind %+v", size, usage)
		}
	}
}

// TestLentFileStaysInTheFolder checks that a payload in the store's own folder stays there.
func TestLentFileStaysInTheFolder(t *testing.T) {
	s := openStore(t, t.TempDir())
	data := payload(spillSize + 5)
	h := s.Put(data)
	if _, err := s.LendFrom(fileOf(t, data), nil); err != nil {
		t.Fatal(err)
	}
	if e := s.blobs[h]; !e.inFolder() || s.usage().Disk == 0 {
		t.Errorf("usage %+v", s.usage())
	}
}

// TestLentFileThatChanges checks a lent file that is changed, cut or closed by another program, at
// its beginning or later. The store drops it and notifies its owner once. Fetches get the payload
// from other members, and no member is blamed.
func TestLentFileThatChanges(t *testing.T) {
	const size = 2*maxRange + 9
	changed := func(at int64) func(file *os.File) error {
		return func(file *os.File) error {
			_, err := file.WriteAt([]byte("another"), at)
			return err
		}
	}
	for name, spoil := range map[string]func(file *os.File) error{
		"at its beginning":     changed(4),
		"in the middle":        changed(maxRange + 3*writeBuffer),
		"at its end":           changed(size),
		"cut":                  func(file *os.File) error { return file.Truncate(maxRange + 5) },
		"cut to nothing":       func(file *os.File) error { return file.Truncate(0) },
		"one that is not open": func(file *os.File) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			nodes := p2ptest.New(t, "holder", "honest", "a")
			store, honest := NewStore(1<<30), NewStore(1<<30)
			Serve(nodes[0], store)
			Serve(nodes[1], honest)
			data := payload(size)
			honest.Put(data)
			lost := make(chan error, 100)
			file := fileOf(t, data)
			h, err := store.LendFrom(file, func(err error) { lost <- err })
			if err != nil {
				t.Fatal(err)
			}
			reader, _, _ := file.Outer()
			writable, err := os.OpenFile(reader.(*os.File).Name(), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(spoil(writable), writable.Close()); err != nil {
				t.Fatal(err)
			}
			if name == "one that is not open" {
				_ = reader.(*os.File).Close()
			}
			if got, err := Fetch(t.Context(), nodes[2], NewStore(1<<30), h, size, p2ptest.IDs(nodes[0])); err == nil {
				t.Errorf("%d bytes were fetched from the changed file", len(got))
			}
			if len(lost) != 1 {
				t.Fatalf("the owner was notified %d times", len(lost))
			}
			t.Log(<-lost)
			if _, held := store.get(t.Context(), h); held {
				t.Error("the payload is still held")
			}
			got, err := Fetch(t.Context(), nodes[2], NewStore(1<<30), h, size, p2ptest.IDs(nodes[:2]...))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("got %d bytes from two holders, %v", len(got), err)
			}
			for _, node := range nodes[:2] {
				if score := nodes[2].Score(node.ID()); score != 0 {
					t.Errorf("a holder is blamed: %v", score)
				}
			}
		})
	}
}

// hanging is a disk that stops answering once hangs is set.
type hanging struct {
	io.ReaderAt
	answers chan struct{} // closed when the disk answers again
	hangs   atomic.Bool
}

func (h *hanging) ReadAt(p []byte, offset int64) (int, error) {
	if h.hangs.Load() {
		<-h.answers
	}
	return h.ReaderAt.ReadAt(p, offset)
}

// TestHungDiskOfALender checks that a disk that does not answer does not block payloads in memory.
func TestHungDiskOfALender(t *testing.T) {
	t.Parallel()
	nodes := p2ptest.New(t, "holder", "a")
	store := NewStore(1 << 30)
	Serve(nodes[0], store)
	disk := &hanging{ReaderAt: memory(payload(4 * maxRange)), answers: make(chan struct{})}
	t.Cleanup(func() { close(disk.answers) })
	model, err := store.LendFrom(io.NewSectionReader(disk, 0, 4*maxRange), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	result := payload(100_000)
	hash := store.Put(result)
	disk.hangs.Store(true)
	ask := request{model, 0, maxRange}.encode()
	for range servesPerPeer {
		s, err := nodes[1].OpenStream(testContext(t), nodes[0].ID(), Protocol)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(ask); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = s.Reset() })
	}
	time.Sleep(2 * time.Second) // of libp2p's clock: until all streams are reset
	begun := time.Now()
	got, err := Fetch(testContext(t), nodes[1], NewStore(1<<30), hash, uint64(len(result)), p2ptest.IDs(nodes[0]))
	if err != nil || !bytes.Equal(got, result) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	t.Log(time.Since(begun))
}

// TestGetFromAHungDisk checks that reading a payload from a disk that does not answer ends with the
// caller's context. However many callers ask, only one read waits. If the disk answers, all callers
// get its bytes.
func TestGetFromAHungDisk(t *testing.T) {
	node := p2ptest.Node(t, "a")
	store, data := NewStore(1<<30), payload(5*groupSize)
	disk := &hanging{ReaderAt: memory(data), answers: make(chan struct{})}
	h, err := store.LendFrom(io.NewSectionReader(disk, 0, int64(len(data))), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	disk.hangs.Store(true)
	before := runtime.NumGoroutine()
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, held := store.get(ctx, h); held {
			t.Error("the disk was read")
		}
		if _, err := Fetch(ctx, node, store, h, uint64(len(data)), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fetch: %v", err)
		}
		if _, err := FetchUpTo(ctx, node, store, h, uint64(len(data)), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fetch of an unknown size: %v", err)
		}
		cancel()
	}
	if more := runtime.NumGoroutine() - before; more > 10 {
		t.Errorf("%d goroutines wait for the disk", more)
	}
	time.AfterFunc(10*time.Millisecond, func() { close(disk.answers) })
	for range 2 {
		if got, held := store.get(testContext(t), h); !held || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, held: %v", len(got), held)
		}
	}
}
