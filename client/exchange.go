package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// Protocols that clients answer for each other, and their bounds.
const (
	// Request: step u32. Response: number of announcements u16, then each with its
	// length u16 before it. Little-endian.
	roundProtocol    = "/psyche/round/1"
	roundRequestSize = 4

	// Request: digest of a manifest. Response: the encoded manifest.
	modelProtocol    = "/psyche/model/1"
	modelRequestSize = 32

	maxAnnouncementSize = 512 // bytes
	maxAnnouncements    = maxCandidates * coordinator.MaxClients
	maxRoundResponse    = 2 + maxAnnouncements*(2+maxAnnouncementSize)
)

var (
	errMalformed = errors.New("malformed message")
	errNotHeld   = errors.New("not held here")
)

// encodeAnnouncements packs signed announcements; what is beyond the bounds is left out.
func encodeAnnouncements(raws [][]byte) []byte {
	raws = raws[:min(len(raws), maxAnnouncements)]
	size := 2
	for _, raw := range raws {
		size += 2 + len(raw)
	}
	b := binary.LittleEndian.AppendUint16(make([]byte, 0, size), uint16(len(raws)))
	for _, raw := range raws {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(raw)))
		b = append(b, raw...)
	}
	return b
}

// decodeAnnouncements unpacks what encodeAnnouncements packed; the announcements
// themselves are not looked at.
func decodeAnnouncements(b []byte) ([][]byte, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: %d bytes of announcements", errMalformed, len(b))
	}
	count := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	if count > maxAnnouncements {
		return nil, fmt.Errorf("%w: %d announcements, at most %d", errMalformed, count, maxAnnouncements)
	}
	raws := make([][]byte, 0, min(count, len(b)/2))
	for i := range count {
		if len(b) < 2 {
			return nil, fmt.Errorf("%w: announcement %d of %d is missing", errMalformed, i, count)
		}
		size := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		if size > maxAnnouncementSize || size > len(b) {
			return nil, fmt.Errorf("%w: announcement %d claims %d bytes", errMalformed, i, size)
		}
		raws = append(raws, b[:size:size])
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the announcements", errMalformed, len(b))
	}
	return raws, nil
}

// shelf holds what peers may ask for, beside blobs. The loop fills it, the network's
// goroutines read it.
type shelf struct {
	mu        sync.Mutex
	rounds    map[uint32]*shelved // by step
	manifests map[[32]byte][]byte // digest → encoded manifest
}

// shelved are the announcements of a round.
type shelved struct {
	slots   [][][]byte // per batch, signed announcements, preferred first
	encoded []byte     // nil: not encoded since the last change
	known   map[string]struct{}
}

// encode returns the encoded announcements: the first of every batch before the others, so
// that a peer which keeps only two per batch gets them.
func (s *shelved) encode() []byte {
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

func newShelf() *shelf {
	return &shelf{rounds: make(map[uint32]*shelved), manifests: make(map[[32]byte][]byte)}
}

// putBatch replaces the announcements of one of count batches of a round.
func (s *shelf) putBatch(step uint32, index, count int, raws [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	round := s.rounds[step]
	if round == nil {
		round = &shelved{slots: make([][][]byte, count), known: make(map[string]struct{}, count)}
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

// unknown leaves out the announcements of a round that were verified before.
func (s *shelf) unknown(step uint32, raws [][]byte) [][]byte {
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

func (s *shelf) dropRound(step uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rounds, step)
}

func (s *shelf) putManifest(digest [32]byte, manifest []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifests[digest] = manifest
}

func (s *shelf) dropManifest(digest [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.manifests, digest)
}

func (s *shelf) answerRound(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	if len(request) != roundRequestSize {
		return nil, fmt.Errorf("%w: request for a round of %d bytes, want %d", errMalformed, len(request), roundRequestSize)
	}
	step := binary.LittleEndian.Uint32(request)
	s.mu.Lock()
	defer s.mu.Unlock()
	round, found := s.rounds[step]
	if !found {
		return nil, fmt.Errorf("%w: results of step %d", errNotHeld, step)
	}
	return round.encode(), nil
}

func (s *shelf) answerModel(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	if len(request) != modelRequestSize {
		return nil, fmt.Errorf("%w: request for a model of %d bytes, want %d", errMalformed, len(request), modelRequestSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	manifest, found := s.manifests[[32]byte(request)]
	if !found {
		return nil, fmt.Errorf("%w: model %x", errNotHeld, request[:8])
	}
	return manifest, nil
}
