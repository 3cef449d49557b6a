package blob

import (
	"container/list"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"sync"

	"lukechampine.com/blake3/bao"

	"github.com/psyche-go/psyche/identity"
)

const (
	// group is Bao's name for 1 KiB << 4 = 16 KiB hashed as one unit.
	group     = 4
	groupSize = 1024 << group
)

// Errors of a store.
var (
	// ErrFull says that a payload does not fit beside what is retained.
	ErrFull = errors.New("blob store is full")
	// ErrNotHeld says that a store has no such payload.
	ErrNotHeld = errors.New("blob not held")
)

// Hash is the BLAKE3 hash of a payload and its name.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first 8 digits of the hash, for logs.
func (h Hash) Short() string { return hex.EncodeToString(h[:4]) }

// Store holds payloads in memory. A payload stays while a tag retains it; one without a
// tag stays until the room is needed, oldest first.
//
// The limit is for what comes from others: Fetch fails with ErrFull rather than exceed
// it. Put always keeps what the node itself made, because it must be able to serve it.
type Store struct {
	maxBytes int64

	mu       sync.Mutex
	used     int64 // bytes of payloads and outboards, and reserved for fetches
	blobs    map[Hash]*entry
	tags     map[string]map[Hash]struct{}
	loose    *list.List // hashes of payloads without a tag, oldest first
	flights  map[flightKey]*flight
	slots    map[identity.ID]chan struct{}
	offences map[identity.ID]uint64
}

type entry struct {
	data     []byte
	outboard func() []byte // made at the first call
	tags     map[string]struct{}
	loose    *list.Element // nil while a tag retains the payload
}

// NewStore makes an empty store for at most maxBytes bytes.
func NewStore(maxBytes int64) *Store {
	return &Store{
		maxBytes: maxBytes,
		blobs:    make(map[Hash]*entry),
		tags:     make(map[string]map[Hash]struct{}),
		loose:    list.New(),
		flights:  make(map[flightKey]*flight),
		slots:    make(map[identity.ID]chan struct{}),
		offences: make(map[identity.ID]uint64),
	}
}

// cost is what a payload of size bytes takes: its bytes and the tree of their hashes.
func cost(size int64) int64 {
	groups := (size + groupSize - 1) / groupSize
	return size + 8 + 64*max(groups-1, 0)
}

// Put keeps data without a tag and returns its hash. The caller must not modify data any
// more.
func (s *Store) Put(data []byte) Hash {
	outboard, h := bao.EncodeBuf(data, group, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(h, data, outboard)
	return h
}

// PutTagged is Put and Retain in one.
func (s *Store) PutTagged(tag string, data []byte) Hash {
	outboard, h := bao.EncodeBuf(data, group, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(h, data, outboard)
	s.retain(h, tag)
	return h
}

func (s *Store) put(h Hash, data, outboard []byte) {
	if _, held := s.blobs[h]; held {
		return
	}
	need := cost(int64(len(data)))
	s.evict(need)
	s.used += need
	s.insert(h, data, func() []byte { return outboard })
}

// insert adds a payload whose cost is in used already; s.mu is held.
func (s *Store) insert(h Hash, data []byte, outboard func() []byte) {
	s.blobs[h] = &entry{
		data:     data,
		outboard: outboard,
		tags:     make(map[string]struct{}),
		loose:    s.loose.PushBack(h),
	}
}

// Get returns a payload, which the caller must not modify.
func (s *Store) Get(h Hash) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.blobs[h]
	if !ok {
		return nil, false
	}
	return e.data, true
}

// Retain keeps a held payload until DropTag(tag) or Drop. A payload can have several
// tags. The error matches ErrNotHeld.
func (s *Store) Retain(h Hash, tag string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.blobs[h]; !held {
		return fmt.Errorf("retain blob %s for %q: %w", h.Short(), tag, ErrNotHeld)
	}
	s.retain(h, tag)
	return nil
}

func (s *Store) retain(h Hash, tag string) {
	e := s.blobs[h]
	e.tags[tag] = struct{}{}
	if e.loose != nil {
		s.loose.Remove(e.loose)
		e.loose = nil
	}
	if s.tags[tag] == nil {
		s.tags[tag] = make(map[Hash]struct{})
	}
	s.tags[tag][h] = struct{}{}
}

// Drop removes a payload whatever retains it. Streams that are sending it finish.
func (s *Store) Drop(h Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(h)
}

// DropTag ends the retention of all payloads with tag, and removes those that no other
// tag retains.
func (s *Store) DropTag(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.tags[tag] {
		e := s.blobs[h]
		delete(e.tags, tag)
		if len(e.tags) == 0 {
			s.drop(h)
		}
	}
	delete(s.tags, tag)
}

func (s *Store) drop(h Hash) {
	e, ok := s.blobs[h]
	if !ok {
		return
	}
	for tag := range e.tags {
		delete(s.tags[tag], h)
		if len(s.tags[tag]) == 0 {
			delete(s.tags, tag)
		}
	}
	if e.loose != nil {
		s.loose.Remove(e.loose)
	}
	delete(s.blobs, h)
	s.used -= cost(int64(len(e.data)))
}

// evict removes payloads without a tag, oldest first, until need more bytes fit or none
// is left; s.mu is held.
func (s *Store) evict(need int64) {
	for s.used+need > s.maxBytes && s.loose.Len() > 0 {
		s.drop(s.loose.Front().Value.(Hash))
	}
}

// reserve makes room for a payload of size bytes before any memory is taken for it.
func (s *Store) reserve(size uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > uint64(max(s.maxBytes, 0)) {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrFull, size, s.maxBytes)
	}
	need, retained := cost(int64(size)), s.used-s.looseCost()
	if retained+need > s.maxBytes {
		return fmt.Errorf("%w: %d bytes, limit %d, in use %d", ErrFull, size, s.maxBytes, retained)
	}
	s.evict(need)
	s.used += need
	return nil
}

// unreserve gives back what reserve took.
func (s *Store) unreserve(size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= cost(int64(size))
}

func (s *Store) looseCost() (total int64) {
	for e := s.loose.Front(); e != nil; e = e.Next() {
		total += cost(int64(len(s.blobs[e.Value.(Hash)].data)))
	}
	return total
}

// keep adds a fetched payload in the room that was reserved for it. Its hash has been
// verified; the tree of hashes is made when somebody asks us for the payload.
func (s *Store) keep(h Hash, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.blobs[h]; held {
		s.used -= cost(int64(len(data)))
		return
	}
	s.insert(h, data, sync.OnceValue(func() []byte {
		outboard, _ := bao.EncodeBuf(data, group, true)
		return outboard
	}))
}

func (s *Store) lookup(h Hash) (data []byte, outboard func() []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.blobs[h]
	if !ok {
		return nil, nil, false
	}
	return e.data, e.outboard, true
}

// Usage is what a store holds.
type Usage struct {
	Blobs    int
	Bytes    int64 // of payloads, their hash trees, and running fetches
	MaxBytes int64
}

// Usage returns what the store holds now.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Blobs: len(s.blobs), Bytes: s.used, MaxBytes: s.maxBytes}
}

// Offences returns, for every member that ever sent bytes that do not belong to the
// hash asked for, how often it did so. Such members are asked last from then on.
func (s *Store) Offences() map[identity.ID]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.offences)
}
