package gossip

import (
	"crypto/sha256"

	"github.com/psyche-go/psyche/base/identity"
)

// recent contains the last messages, so that a message is not handled again when its author
// publishes it again, or when it is replayed after gossipsub has forgotten it.
type recent struct {
	ring [][sha256.Size]byte
	next int
	set  map[[sha256.Size]byte]struct{}
}

func newRecent(capacity int) *recent {
	return &recent{
		ring: make([][sha256.Size]byte, 0, capacity),
		set:  make(map[[sha256.Size]byte]struct{}, capacity),
	}
}

func keyOf(from identity.ID, data []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(from[:])
	h.Write(data)
	return [sha256.Size]byte(h.Sum(nil))
}

// has reports whether the message is in r.
func (r *recent) has(from identity.ID, data []byte) bool {
	_, known := r.set[keyOf(from, data)]
	return known
}

// add reports whether the message is new, and if so stores it in place of the oldest message.
func (r *recent) add(from identity.ID, data []byte) bool {
	key := keyOf(from, data)
	if _, known := r.set[key]; known {
		return false
	}
	r.set[key] = struct{}{}
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, key)
		return true
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = key
	r.next = (r.next + 1) % len(r.ring)
	return true
}
