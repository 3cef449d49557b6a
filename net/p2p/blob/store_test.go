package blob

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// loosely stores data without retaining it, as Fetch does. The store may evict it to make room.
func (s *Store) loosely(data []byte) (Hash, error) {
	h := Hash(blake3.Sum256(data))
	p, err := s.take(flightKey{h, uint64(len(data))})
	if err != nil {
		return h, err
	}
	p.open()
	copy(p.buffer(), data)
	p.persist(span{0, uint64(len(data))})
	p.missing = []span{}
	s.complete(p)
	return h, nil
}

func TestRetention(t *testing.T) {
	s := NewStore(1 << 20)
	a := s.Put([]byte("a"))
	b, err := s.loosely([]byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Retain(b); err != nil {
		t.Fatal(err)
	}
	s.Drop(a)
	s.Drop(a)
	if _, ok := s.get(t.Context(), a); ok {
		t.Error("a is still held")
	}
	if _, ok := s.get(t.Context(), b); !ok {
		t.Error("b is missing")
	}
	if err := s.Retain(a); !errors.Is(err, ErrNotHeld) {
		t.Errorf("retain a missing blob: %v", err)
	}
	s.Drop(b)
	if usage := s.usage(); usage != (used{}) || s.memory.order.Len() != 0 {
		t.Errorf("left behind %+v, %d loose", usage, s.memory.order.Len())
	}
}

func TestRoomIsMadeOldestFirst(t *testing.T) {
	s := NewStore(cost(100) * 3)
	filled := func(b int) []byte { return bytes.Repeat([]byte{byte(b)}, 100) }
	kept := s.Put(filled(1))
	old, err := s.loosely(filled(2))
	young, err2 := s.loosely(filled(3))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if _, err := s.reserve(100); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.get(t.Context(), old); ok {
		t.Error("the oldest payload was not evicted")
	}
	for _, h := range []Hash{kept, young} {
		if _, ok := s.get(t.Context(), h); !ok {
			t.Error("more than the oldest payload was evicted")
		}
	}
	if _, err := s.reserve(201); !errors.Is(err, ErrFull) {
		t.Errorf("reserve more than the limit: %v", err)
	}
	if _, ok := s.get(t.Context(), young); !ok {
		t.Error("a reservation that cannot succeed evicts")
	}
	s.memory.used -= cost(100)
	for i := range 10 {
		s.Put(filled(i + 10))
	}
	if usage := s.usage(); usage.Blobs != 12 && usage.Blobs != 11 {
		t.Errorf("%d payloads, want at least the node's own 11", usage.Blobs)
	}
}

// TestStoreAccounts checks that the accounts agree with the contents after random operations.
func TestStoreAccounts(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		s, err := OpenStore(Options{MaxMemory: 500, Dir: dir, MaxDisk: 300 * rapid.Int64Range(0, 1).Draw(t, "disk")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			for h := range s.blobs {
				s.Drop(h)
			}
			for _, p := range s.partials {
				s.discard(p)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			data := bytes.Repeat([]byte{rapid.ByteRange(0, 5).Draw(t, "data")}, rapid.IntRange(0, 60).Draw(t, "size"))
			h := Hash(blake3.Sum256(data))
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				s.Put(data)
			case 1:
				_ = s.Retain(h)
			case 2:
				s.Drop(h)
			case 3:
				_, _ = s.loosely(data)
			case 4:
				if p, err := s.take(flightKey{h, uint64(len(data))}); err == nil {
					p.open()
					p.buffer()
					s.setAside(p)
				}
			}
			counted := map[*room]*room{&s.memory: {}, &s.disk: {}}
			for _, e := range s.blobs {
				counted[e.room].used += cost(e.size)
				if e.inRoom != nil {
					counted[e.room].loose += cost(e.size)
				}
			}
			for key, p := range s.partials {
				counted[p.room].used += cost(key.size)
				counted[p.room].loose += cost(key.size)
			}
			for r, want := range counted {
				if want.used != r.used || want.loose != r.loose {
					t.Fatalf("used %d, counted %d; loose %d, counted %d", r.used, want.used, r.loose, want.loose)
				}
			}
			if s.disk.used > s.disk.max {
				t.Fatalf("%d bytes of the disk are used, of %d", s.disk.used, s.disk.max)
			}
			checkFiles(t, s)
		}
	})
}

// checkFiles checks that the folder contains exactly the payloads that the store keeps there.
func checkFiles(t *rapid.T, s *Store) {
	files, err := filepath.Glob(filepath.Join(s.folder.dir, "*"+blobSuffix))
	if err != nil {
		t.Fatal(err)
	}
	on := 0
	for _, e := range s.blobs {
		if e.data == nil {
			on++
		}
		if data, held := s.get(t.Context(), e.hash); !held || Hash(blake3.Sum256(data)) != e.hash {
			t.Fatalf("a payload of %d bytes has changed", e.size)
		}
	}
	if len(files) != on {
		t.Fatalf("%d files, want %d", len(files), on)
	}
}

// TestFullMemory checks that small payloads for which memory has no room go to the folder and can
// be read from it. Without a folder they are refused.
func TestFullMemory(t *testing.T) {
	small := func(b int) []byte { return bytes.Repeat([]byte{byte(b)}, 300_000) }
	s := openStore(t, t.TempDir())
	s.memory.max = 1 << 20
	var held []Hash
	for i := range 12 {
		h, err := s.loosely(small(i))
		if err == nil {
			err = s.Retain(h)
		}
		if err != nil {
			t.Fatalf("result %d: %v", i, err)
		}
		held = append(held, h)
	}
	held = append(held, s.Put(small(12)))
	usage := s.usage()
	if usage.Memory > 1<<20 || usage.Blobs != 13 || usage.Disk < 9*300_000 {
		t.Errorf("usage %+v", usage)
	}
	for i, h := range held {
		if data, ok := s.get(t.Context(), h); !ok || !bytes.Equal(data, small(i)) {
			t.Errorf("result %d has changed", i)
		}
		s.Drop(h)
	}
	if usage := s.usage(); usage != (used{}) {
		t.Errorf("left behind %+v", usage)
	}

	alone := NewStore(1 << 20)
	for i := range 3 {
		alone.Put(small(i))
	}
	if _, err := alone.loosely(small(3)); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth result in memory for three: %v", err)
	}
}

// TestLentPayloadUsesNoRoom checks that a lent payload is served from its owner's memory, and does
// not count as used room in the store's memory or folder.
func TestLentPayloadUsesNoRoom(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	data := payload(spillSize + 5)
	h := s.Lend(data)
	if h != Hash(blake3.Sum256(data)) || s.Lend(data) != h {
		t.Fatal("the payload has a different hash")
	}
	if usage := s.usage(); usage != (used{Blobs: 1}) {
		t.Errorf("usage %+v", usage)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*"+blobSuffix)); err != nil || len(files) > 0 {
		t.Errorf("the payload is in files %v, %v", files, err)
	}
	if got, held := s.get(t.Context(), h); !held || !bytes.Equal(got, data) {
		t.Error("the payload has changed")
	}
	put := NewStore(1 << 30)
	put.Put(data)
	want, err := put.open(h)
	lent, failed := s.open(h)
	if err != nil || failed != nil || !bytes.Equal(lent.outboard, want.outboard) || lent.size != want.size {
		t.Errorf("the served bytes differ from the stored ones: %v, %v", err, failed)
	}
	if freed := s.FreeDisk(); freed != 0 {
		t.Errorf("evicting freed %d bytes", freed)
	}
	if err := s.Retain(h); err != nil {
		t.Error(err)
	}
	s.Drop(h)
	if _, held := s.get(t.Context(), h); held || s.usage() != (used{}) {
		t.Errorf("left behind %+v", s.usage())
	}

	kept := s.Put(data) // the store keeps its own copy
	if s.Lend(data) != kept || s.usage().Memory == 0 {
		t.Errorf("usage %+v", s.usage())
	}
	s.Drop(kept)
	if usage := s.usage(); usage != (used{}) {
		t.Errorf("left behind %+v", usage)
	}
}

// TestFolderIsGone checks that a store without its folder, or with a full disk, keeps fetched
// payloads in memory as far as they fit, and serves them.
func TestFolderIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := openStore(t, dir)
	s.memory.max = 3 << 20
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		data := payload(spillSize + i)
		h, err := s.loosely(data)
		if err == nil {
			err = s.Retain(h)
		}
		if fits := i < 2; fits != (err == nil) {
			t.Fatalf("payload %d of 1 MiB, in a memory of 3 MiB: %v", i, err)
		} else if !fits {
			continue
		}
		if got, held := s.get(t.Context(), h); !held || !bytes.Equal(got, data) {
			t.Errorf("payload %d is missing", i)
		}
		if held, err := s.open(h); err != nil || len(held.outboard) == 0 {
			t.Errorf("payload %d cannot be served: %v", i, err)
		}
	}
	if usage := s.usage(); usage.Disk != 0 || usage.Memory > 3<<20 || usage.Blobs != 2 || len(s.partials) != 0 {
		t.Errorf("usage %+v, %d partials", usage, len(s.partials))
	}
}

// TestFolderIsCleaned checks that opening a folder removes unusable files of an interrupted
// process, and no other files.
func TestFolderIsCleaned(t *testing.T) {
	dir := t.TempDir()
	hash := Hash(blake3.Sum256([]byte("x"))).String()
	names := map[string]bool{ // whether the file stays
		"new-model.txt": true, "notes.part": true, "a.blob": true, "other.spans": true, hash: true,
		hash + "-7.spans":               false, // has no data file
		hash + "-123456" + tempSuffix:   false, // left by an interrupted write
		"x-123456" + tempSuffix:         true,
		strings.ToUpper(hash) + ".blob": true,
	}
	for name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, dir)
	for name, stays := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: got %v; want (err == nil) == stays", name, err)
		}
	}
	if usage := s.usage(); usage.Blobs != 0 || usage.Disk != 0 {
		t.Errorf("usage %+v", usage)
	}
}

// TestNothingIsKeptOfNothing checks that a fetch without a verified group leaves nothing behind.
func TestNothingIsKeptOfNothing(t *testing.T) {
	nodes := p2ptest.New(t, "a", "b")
	data := payload(1000)
	dying(nodes[1], holding(data), 50) // the size and a part of the first group
	s := NewStore(1 << 20)
	if _, err := Fetch(testContext(t), nodes[0], s, blake3.Sum256(data), uint64(len(data)), p2ptest.IDs(nodes[1])); err == nil {
		t.Fatal("fetched from a dead peer")
	}
	if usage := s.usage(); usage.Memory != 0 || len(s.partials) != 0 {
		t.Errorf("left behind %+v and %d partials", usage, len(s.partials))
	}
}

// TestFreeDisk checks a store whose disk space is needed. It moves retained payloads into memory as
// far as they fit, and drops other payloads. After that it writes only payloads to the disk that do
// not fit in memory: results of rounds, which a client needs to continue.
func TestFreeDisk(t *testing.T) {
	s, err := OpenStore(Options{MaxMemory: 3 << 20, Dir: t.TempDir(), MaxDisk: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	parts := [][]byte{payload(spillSize), payload(spillSize + 1), payload(spillSize + 2)}
	var hashes []Hash
	for _, part := range parts {
		hashes = append(hashes, s.Put(part))
	}
	loose := s.Put(payload(spillSize + 3))
	s.mu.Lock()
	e := s.blobs[loose]
	e.inRoom = e.room.add(func() { s.drop(loose) }, cost(e.size))
	s.mu.Unlock()
	before := s.usage()
	if before.Memory != 0 || before.Blobs != 4 {
		t.Fatalf("before: %+v", before)
	}
	freed := s.FreeDisk()
	after := s.usage()
	if after.Blobs != 3 || freed != before.Disk-after.Disk || after.Disk > cost(spillSize+2) || after.Memory == 0 || after.Memory > 3<<20 {
		t.Errorf("freed %d; before %+v, after %+v", freed, before, after)
	}
	for i, h := range hashes {
		if data, held := s.get(t.Context(), h); !held || !bytes.Equal(data, parts[i]) {
			t.Errorf("part %d is missing", i)
		}
		if held, err := s.open(h); err != nil || len(held.outboard) == 0 {
			t.Errorf("part %d cannot be served: %v", i, err)
		} else {
			held.close()
		}
	}
	s.Drop(hashes[0])
	s.Drop(hashes[1])
	s.Drop(hashes[2])
	large, err := s.loosely(payload(spillSize + 4))
	if now := s.usage(); err != nil || now.Disk != 0 || now.Memory != cost(spillSize+4) {
		t.Errorf("a blob that fits into memory: %v, %+v", err, now)
	}
	if err := s.Retain(large); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		h, err := s.loosely(payload(300_000 + i))
		if err == nil {
			err = s.Retain(h)
		}
		if err != nil {
			t.Fatalf("result %d: %v", i, err)
		}
	}
	if now := s.usage(); now.Memory > 3<<20 || now.Disk > cost(14*300_020) {
		t.Errorf("afterwards: %+v", now)
	}
	if again := NewStore(1 << 20).FreeDisk(); again != 0 {
		t.Errorf("a store without a folder freed %d", again)
	}
}

// TestEmptyFileIsLent checks an empty file of a model, which has no bytes if it came from a peer. It
// is served and dropped like any other file, with a folder and without.
func TestEmptyFileIsLent(t *testing.T) {
	for name, s := range map[string]*Store{"memory": NewStore(1 << 20), "folder": openStore(t, t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			h := s.Lend(nil)
			if h != emptyHash {
				t.Fatalf("the payload has hash %s", h)
			}
			if data, held := s.get(t.Context(), h); !held || len(data) > 0 {
				t.Errorf("got %d bytes, held %v", len(data), held)
			}
			if held, err := s.open(h); err != nil || held.size != 0 {
				t.Errorf("the payload cannot be served: %v", err)
			}
			s.Drop(h)
			if usage := s.usage(); usage != (used{}) {
				t.Errorf("left behind %+v", usage)
			}
		})
	}
}

// used is the space that a store uses. Lent data does not count.
type used struct {
	Blobs  int
	Memory int64 // bytes of payloads, their hash trees, and running fetches
	Disk   int64 // bytes of the same in the folder
}

// usage returns the store's current usage.
func (s *Store) usage() used {
	s.mu.Lock()
	defer s.mu.Unlock()
	return used{Blobs: len(s.blobs), Memory: s.memory.used, Disk: s.disk.used}
}

// TestKeepStaysBelowTheLimit checks that data of other members does not exceed the limit of the memory, unlike
// this client's own data, and that it is kept again when there is room.
func TestKeepStaysBelowTheLimit(t *testing.T) {
	const size = 300_000
	s := openStore(t, "")
	s.memory.max = 1 << 20
	data := func(b byte) []byte { return bytes.Repeat([]byte{b}, size) }
	var kept []Hash
	for i := range byte(5) {
		h, err := s.Keep(data(i))
		if want := i >= 3; errors.Is(err, ErrFull) != want {
			t.Fatalf("result %d: %v", i, err)
		}
		if err == nil {
			kept = append(kept, h)
		}
	}
	if usage := s.usage(); usage.Memory > 1<<20 || usage.Blobs != 3 {
		t.Errorf("usage %+v", usage)
	}
	if h, err := s.Keep(data(0)); err != nil || h != kept[0] {
		t.Errorf("a held result: %v", err)
	}
	s.Drop(kept[0])
	if _, err := s.Keep(data(4)); err != nil {
		t.Error(err)
	}
	s.Put(data(5))
	if usage := s.usage(); usage.Blobs != 4 {
		t.Errorf("usage with this client's data: %+v", usage)
	}
}
