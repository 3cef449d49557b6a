package frame

import (
	"fmt"

	"github.com/psyche-go/psyche/identity"
)

// createDomain separates signatures of a Create from all others of the same key.
const createDomain = "psyche/run/create/v1"

// MaxCreate bounds a Create in bytes: a first state is small, it has no members.
const MaxCreate = 32 << 10

// Create asks a host to begin a run. The host keeps it as the run's first record, so that
// everybody can verify who made the run.
type Create struct {
	Creator identity.ID
	State   []byte // canonical bytes of the state the run begins with; it names the host
	Raw     []byte // exactly what was signed and sent
}

// SignCreate returns the payload of a Create frame.
func SignCreate(key identity.Key, state []byte) []byte {
	creator, signature := key.ID(), key.Sign(createDomain, state)
	payload := append(creator[:], signature[:]...)
	return append(payload, state...)
}

// OpenCreate verifies the signature and returns the parts, which alias payload. The state
// is not decoded.
func OpenCreate(payload []byte) (Create, error) {
	const prefix = identity.IDSize + identity.SignatureSize
	if len(payload) < prefix || len(payload) > MaxCreate {
		return Create{}, fmt.Errorf("%w: create has %d bytes", ErrMalformed, len(payload))
	}
	c := Create{Creator: identity.ID(payload[:identity.IDSize]), State: payload[prefix:], Raw: payload}
	if !identity.Verify(c.Creator, createDomain, c.State, [identity.SignatureSize]byte(payload[identity.IDSize:prefix])) {
		return Create{}, fmt.Errorf("%w: the signature of the create does not verify", ErrMalformed)
	}
	return c, nil
}
