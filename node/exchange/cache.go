package exchange

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
)

// Cache contains the announcements and manifests that peers may request. The loop fills it, and the
// network's goroutines read it.
type Cache struct {
	mu        sync.Mutex
	rounds    map[uint32]*cachedRound // by step
	manifests map[[32]byte][]byte     // digest → encoded manifest
	offered   [32]byte                // digest of a model that is published once a peer requests it; zero: none
	wanted    bool                    // a peer has requested it
	taken     map[[32]byte]bool       // manifests that a peer has requested
}

// cachedRound contains the announcements of a round.
type cachedRound struct {
	slots   [][][]byte // per batch, signed announcements, preferred first
	encoded []byte     // nil: not encoded since the last change
	known   map[string]struct{}
}

// encode returns the encoded announcements. The preferred announcement of every batch precedes all
// others, because a peer keeps only the first tally.MaxCandidates of a batch while the round runs.
func (s *cachedRound) encode() []byte {
	if s.encoded != nil {
		return s.encoded
	}
	var first, others [][]byte
	for _, raws := range s.slots {
		if len(raws) > 0 {
			first, others = append(first, raws[0]), append(others, raws[1:]...)
		}
	}
	s.encoded = encodeAnnouncements(append(first, others...))
	return s.encoded
}

// newCache returns an empty cache.
func newCache() *Cache {
	return &Cache{rounds: make(map[uint32]*cachedRound), manifests: make(map[[32]byte][]byte), taken: make(map[[32]byte]bool)}
}

// PutBatch replaces the announcements of one batch of a round. The round has count batches, and
// index is the position of this batch.
func (s *Cache) PutBatch(step uint32, index, count int, raws [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	round := s.rounds[step]
	if round == nil {
		round = &cachedRound{slots: make([][][]byte, count), known: make(map[string]struct{}, count)}
		s.rounds[step] = round
	}
	for _, raw := range round.slots[index] {
		delete(round.known, string(raw))
	}
	round.slots[index], round.encoded = raws, nil
	for _, raw := range raws {
		round.known[string(raw)] = struct{}{}
	}
}

// Unknown returns raws without the announcements of the round that were verified before.
func (s *Cache) Unknown(step uint32, raws [][]byte) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	round := s.rounds[step]
	if round == nil {
		return raws
	}
	return slices.DeleteFunc(raws, func(raw []byte) bool {
		_, known := round.known[string(raw)]
		return known
	})
}

// DropRound forgets a round.
func (s *Cache) DropRound(step uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rounds, step)
}

// PutManifest makes a manifest available under its digest.
func (s *Cache) PutManifest(digest [32]byte, manifest []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifests[digest] = manifest
}

// DropManifest removes a manifest.
func (s *Cache) DropManifest(digest [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.manifests, digest)
	delete(s.taken, digest)
}

// Taken reports whether a peer requested the manifest since it was added. Such a peer may be
// fetching the model.
func (s *Cache) Taken(digest [32]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[digest]
}

// Offer sets the digest of a model that the client holds but has not published yet, because hashing
// it takes long; zero: none. It reports whether a peer has requested that model.
func (s *Cache) Offer(digest [32]byte) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offered != digest {
		s.offered, s.wanted = digest, false
	}
	return s.wanted
}

func (s *Cache) answerRound(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	if len(request) != roundRequestSize {
		return nil, fmt.Errorf("%w: request for a round has %d bytes, want %d", errMalformed, len(request), roundRequestSize)
	}
	step := binary.LittleEndian.Uint32(request)
	s.mu.Lock()
	defer s.mu.Unlock()
	round, found := s.rounds[step]
	if !found {
		return nil, fmt.Errorf("%w: results of step %d", ErrNotHeld, step)
	}
	return round.encode(), nil
}

func (s *Cache) answerModel(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	if len(request) != modelRequestSize {
		return nil, fmt.Errorf("%w: request for a model has %d bytes, want %d", errMalformed, len(request), modelRequestSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	manifest, found := s.manifests[[32]byte(request)]
	if !found {
		s.wanted = s.wanted || s.offered == [32]byte(request) && s.offered != [32]byte{}
		return nil, fmt.Errorf("%w: model %x", ErrNotHeld, request[:8])
	}
	s.taken[[32]byte(request)] = true
	return manifest, nil
}
