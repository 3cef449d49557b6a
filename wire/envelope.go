package wire

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// Domains that signatures are bound to: a signature for one purpose holds for no other.
const (
	DomainAction       = "psyche/action/v1"
	DomainAnnouncement = "psyche/announcement/v1"
	DomainHello        = "psyche/hello/v1"  // a client's answer to a server's challenge
	DomainServer       = "psyche/server/v1" // a server's proof of its own key
)

// The reasons for which a message is refused, wrapped with what was wrong.
var (
	ErrSize      = errors.New("message of impossible size")
	ErrVersion   = errors.New("unknown message version")
	ErrSignature = errors.New("signature does not verify")
	ErrRunID     = errors.New("message is for another run")
	ErrMalformed = errors.New("malformed message")
)

const (
	version        = 1
	prefixSize     = 1 + identity.IDSize + identity.SignatureSize
	runIDFieldSize = 1 + coordinator.MaxRunIDLength
)

// seal puts version, sender and signature before body.
func seal(key identity.Key, domain string, body []byte) []byte {
	id := key.ID()
	signature := key.Sign(domain, append([]byte{version}, body...))
	raw := make([]byte, 0, prefixSize+len(body))
	raw = append(raw, version)
	raw = append(raw, id[:]...)
	raw = append(raw, signature[:]...)
	return append(raw, body...)
}

// unseal returns the sender and the body of a message whose signature verifies.
func unseal(domain string, raw []byte, limit int) (identity.ID, []byte, error) {
	if len(raw) <= prefixSize || len(raw) > limit {
		return identity.ID{}, nil, fmt.Errorf("%w: %d bytes, want more than %d and at most %d", ErrSize, len(raw), prefixSize, limit)
	}
	if raw[0] != version {
		return identity.ID{}, nil, fmt.Errorf("%w %d, want %d", ErrVersion, raw[0], version)
	}
	from := identity.ID(raw[1 : 1+identity.IDSize])
	signature := [identity.SignatureSize]byte(raw[1+identity.IDSize : prefixSize])
	body := raw[prefixSize:]
	if !identity.Verify(from, domain, append([]byte{version}, body...), signature) {
		return identity.ID{}, nil, fmt.Errorf("%w: sender %s", ErrSignature, from)
	}
	return from, body, nil
}

// appendRunID appends the run id behind its length. Run ids are validated where a run
// is configured; a longer one here is a mistake of the caller.
func appendRunID(b []byte, runID string) []byte {
	if len(runID) > coordinator.MaxRunIDLength {
		panic(fmt.Sprintf("wire: run id longer than %d bytes", coordinator.MaxRunIDLength))
	}
	b = append(b, byte(len(runID)))
	return append(b, runID...)
}
