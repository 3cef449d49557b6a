package blob

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"lukechampine.com/blake3/bao"
)

// spillSize is the minimum size of a payload that is preferably stored on disk, if the store has a
// folder. Parts of a model have at least that size. Most results of a round are smaller, and go to
// the disk only if the memory is full.
const spillSize = 1 << 20

// Errors of a store.
var (
	// ErrFull means that a payload does not fit into the store together with the retained payloads.
	ErrFull = errors.New("blob store is full")
	// ErrNotHeld means that a store does not hold a payload.
	ErrNotHeld = errors.New("blob not held")
)

// Hash is the BLAKE3 hash of a payload, which identifies it.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// short returns the first 8 digits of the hash, for logs.
func (h Hash) short() string { return hex.EncodeToString(h[:4]) }

// Options are the settings of a store.
type Options struct {
	MaxMemory int64 // bytes
	// Dir is the folder for payloads of 1 MiB or more, and for smaller payloads that do not fit
	// into memory. Only one store may use it at a time. If it is empty, all payloads stay in
	// memory. A store reuses what an earlier process left in the folder.
	Dir     string
	MaxDisk int64        // bytes in Dir
	Logger  *slog.Logger // may be nil
}

// Store holds payloads: small ones in memory, and large ones in a folder if it has one. If the
// preferred medium is full, it uses the other. A retained payload stays until Drop. When the store
// needs space, it removes other payloads and the data of incomplete payloads, oldest first.
//
// The limits apply to data from other members: Fetch fails with ErrFull rather than exceed them.
// Put always keeps the node's own data, because the node must be able to serve it.
type Store struct {
	logger  *slog.Logger
	holders book
	lone    time.Duration // how long a holder without an alternative may stall
	reading chan struct{} // answers that are reading from a disk

	mu       sync.Mutex
	memory   room
	disk     room
	folder   *folder // nil: memory only
	spare    bool    // disk space is needed for other data, so memory is preferred
	blobs    map[Hash]*entry
	partials map[flightKey]*partial
	flights  map[flightKey]*flight
}

// entry is one payload.
type entry struct {
	hash     Hash
	size     uint64
	data     memory                 // nil: the payload is in a file
	from     *lentFile              // the caller's file; nil: the file is in the folder
	room     *room                  // nil: data belongs to the caller and does not count as used space
	inRoom   *roomEntry             // nil while the payload is retained
	outboard func() ([]byte, error) // returns the hash tree, computed at the first call
	reading  *reading               // read of the file by get; nil: none is running
}

// inFolder reports whether the payload is in the store's own folder.
func (e *entry) inFolder() bool { return e.data == nil && e.from == nil }

// NewStore returns an empty store with at most maxBytes bytes in memory.
func NewStore(maxBytes int64) *Store {
	s := &Store{
		logger:   slog.New(slog.DiscardHandler),
		lone:     loneTime,
		reading:  make(chan struct{}, diskReads),
		blobs:    make(map[Hash]*entry),
		partials: make(map[flightKey]*partial),
		flights:  make(map[flightKey]*flight),
	}
	s.memory.max = maxBytes
	return s
}

// OpenStore returns a store that may have a folder. The caller must close it.
func OpenStore(o Options) (*Store, error) {
	s := NewStore(o.MaxMemory)
	if o.Logger != nil {
		s.logger = o.Logger
	}
	if o.Dir == "" {
		return s, nil
	}
	s.disk.max = o.MaxDisk
	var err error
	if s.folder, err = openFolder(o.Dir); err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}
	if err := s.restore(); err != nil {
		return nil, errors.Join(fmt.Errorf("open blob folder: %w", err), s.folder.close())
	}
	return s, nil
}

// Close releases the folder, so that another store can use it.
func (s *Store) Close() error {
	if s.folder == nil {
		return nil
	}
	return s.folder.close()
}

// cost returns the space that a payload of size bytes takes: its bytes and its hash tree.
func cost(size uint64) int64 {
	groups := (size + groupSize - 1) / groupSize
	return int64(size + 8 + pairSize*max(groups, 1) - pairSize)
}

// Put stores data, retains it and returns its hash, even above the limit of the memory. The caller must not
// modify data afterwards.
func (s *Store) Put(data []byte) Hash {
	h, _ := s.put(data, true) // fails only if data must fit
	return h
}

// Keep is Put for data of another member, which must fit. The error matches ErrFull.
func (s *Store) Keep(data []byte) (Hash, error) { return s.put(data, false) }

func (s *Store) put(data []byte, always bool) (Hash, error) {
	outboard, sum := bao.EncodeBuf(data, group, true)
	e := &entry{hash: Hash(sum), size: uint64(len(data)), data: data, outboard: made(outboard)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs[e.hash] == nil {
		if e.room = s.roomFor(e.size); e.room == nil && !always {
			return e.hash, fmt.Errorf("%w: %d bytes, limit %d, in use %d", ErrFull, e.size, s.memory.max, s.memory.used-s.memory.loose)
		}
		if e.room == nil {
			e.room = &s.memory
		}
		e.room.used += cost(e.size)
		if e.room == &s.disk {
			s.write(e)
		}
		if s.blobs[e.hash] == nil {
			s.insert(e)
		} else { // the payload arrived while it was being written
			e.room.used -= cost(e.size)
			if e.inFolder() && !s.blobs[e.hash].inFolder() {
				s.folder.remove(e.hash)
			}
		}
	}
	s.retain(e.hash)
	return e.hash, nil
}

// write moves a new payload from memory to its file. A payload that cannot be written stays in
// memory, even above the limit. The caller must hold s.mu, which write releases while it writes.
func (s *Store) write(e *entry) {
	s.mu.Unlock()
	err := s.folder.write(e.hash, e.data)
	s.mu.Lock()
	if err == nil {
		e.data = nil
		return
	}
	s.logger.Warn("blob: cannot write a payload; keeping it in memory", "blob", e.hash.short(), "bytes", e.size, "err", err)
	s.disk.used -= cost(e.size)
	s.memory.makeRoom(cost(e.size))
	s.memory.used += cost(e.size)
	e.room = &s.memory
}

func made(outboard []byte) func() ([]byte, error) {
	return func() ([]byte, error) { return outboard, nil }
}

// roomFor makes space for a payload and returns its medium. Large payloads go to the disk, unless
// disk space is needed for other data, and small ones to memory. If the preferred medium has no
// space, roomFor returns the other, or nil if neither has space. The caller must hold s.mu.
func (s *Store) roomFor(size uint64) *room {
	first, second := &s.memory, &s.disk
	if size >= spillSize && !s.spare {
		first, second = second, first
	}
	for _, r := range []*room{first, second} {
		if r.makeRoom(cost(size)) {
			return r
		}
	}
	return nil
}

// insert adds a payload whose cost is already included in its room's used. The caller must hold
// s.mu.
func (s *Store) insert(e *entry) {
	if e.data == nil && e.size == 0 {
		e.data = memory{}
	}
	s.blobs[e.hash] = e
	e.inRoom = e.room.add(func() { s.drop(e.hash) }, cost(e.size))
}

// get returns a payload, which the caller must not modify. It waits for the disk until ctx ends.
func (s *Store) get(ctx context.Context, h Hash) ([]byte, bool) {
	s.mu.Lock()
	e := s.blobs[h]
	if e == nil {
		s.mu.Unlock()
		return nil, false
	}
	if e.data != nil {
		s.mu.Unlock()
		return e.data, true
	}
	if e.reading == nil {
		e.reading = &reading{done: make(chan struct{})}
		go s.readFor(e.reading, e)
	}
	r := e.reading
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.data, r.err == nil
	case <-ctx.Done():
		return nil, false
	}
}

// reading is a read of a payload from its file, shared by all concurrent callers. Each payload has
// at most one. On a disk that does not respond, it ends only when the disk responds.
type reading struct {
	done chan struct{} // closed when the other fields are valid
	data []byte
	err  error
}

// readFor reads a payload from its file.
func (s *Store) readFor(r *reading, e *entry) {
	defer close(r.done)
	if r.data, r.err = s.read(e); r.err != nil {
		s.lost(e, r.err)
	}
	s.mu.Lock()
	e.reading = nil
	s.mu.Unlock()
}

// lost drops a payload whose file has changed.
func (s *Store) lost(e *entry, err error) {
	s.logger.Warn("blob: dropping an unusable file", "blob", e.hash.short(), "bytes", e.size, "err", err)
	s.mu.Lock()
	current := s.blobs[e.hash] == e
	if current {
		s.drop(e.hash)
	}
	s.mu.Unlock()
	if current && e.from != nil {
		e.from.lost(err)
	}
}

// Retain keeps a held payload until Drop. The error matches ErrNotHeld.
func (s *Store) Retain(h Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs[h] == nil {
		return fmt.Errorf("retain blob %s: %w", h.short(), ErrNotHeld)
	}
	s.retain(h)
	return nil
}

func (s *Store) retain(h Hash) {
	e := s.blobs[h]
	e.room.remove(e.inRoom)
	e.inRoom = nil
}

// Drop removes a payload, complete or not. Streams that are sending it finish.
func (s *Store) Drop(h Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(h)
	for key, p := range s.partials {
		if key.hash == h {
			s.discard(p)
		}
	}
}

func (s *Store) drop(h Hash) {
	e := s.blobs[h]
	if e == nil {
		return
	}
	if e.room != nil {
		e.room.remove(e.inRoom)
		e.room.used -= cost(e.size)
	}
	delete(s.blobs, h)
	if e.inFolder() {
		s.folder.remove(h)
	}
}

// reserve makes space for a payload of size bytes before any of its data is stored, and returns the
// medium.
func (s *Store) reserve(size uint64) (*room, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// This check comes first, because the cost of an absurd size would overflow.
	if limit := max(s.memory.max, s.disk.max, 0); size > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrFull, size, limit)
	}
	r := s.roomFor(size)
	if r == nil {
		return nil, fmt.Errorf("%w: %d bytes, limit %d, in use %d", ErrFull, size, s.memory.max, s.memory.used-s.memory.loose)
	}
	r.used += cost(size)
	return r, nil
}

// held is a payload that is being served.
type held struct {
	data     readerAt
	size     uint64
	outboard []byte
}

func (h held) close() { _ = h.data.Close() }

// open returns a payload to serve. The error matches ErrNotHeld.
func (s *Store) open(h Hash) (held, error) {
	s.mu.Lock()
	e := s.blobs[h]
	s.mu.Unlock()
	if e == nil {
		return held{}, ErrNotHeld
	}
	outboard, err := e.outboard()
	var data readerAt = e.data
	switch {
	case err != nil:
	case e.from != nil:
		data = checked{e.from, s, e, outboard}
	case e.data == nil:
		if data, err = s.folder.open(h); err == nil {
			data = checked{data, s, e, outboard}
		}
	}
	if err != nil {
		s.lost(e, err)
		return held{}, fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return held{data, e.size, outboard}, nil
}
