package wire

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
)

// Domains for signatures. A signature for one domain is not valid in any other.
const (
	domainAction       = "psyche/action/v2"
	domainAnnouncement = "psyche/announcement/v2"
	domainHead         = "psyche/head/v1"
)

// Reasons why a message is refused. Errors wrap them with details.
var (
	errSize      = errors.New("message of impossible size")
	errVersion   = errors.New("unknown message version")
	ErrSignature = errors.New("signature does not verify")
	ErrRun       = errors.New("message is for another run")
	errMalformed = errors.New("malformed message")
)

const (
	version    = 2
	prefixSize = 1 + identity.IDSize + identity.SignatureSize
	runSize    = 32
)

// seal prepends version, sender and signature to body.
func seal(key identity.Key, domain string, body []byte) []byte {
	id := key.ID()
	signature := key.Sign(domain, append([]byte{version}, body...))
	raw := make([]byte, 0, prefixSize+len(body))
	raw = append(raw, version)
	raw = append(raw, id[:]...)
	raw = append(raw, signature[:]...)
	return append(raw, body...)
}

// unseal returns the sender and the body of a message if its signature is valid.
func unseal(domain string, raw []byte, limit int) (identity.ID, []byte, error) {
	if len(raw) <= prefixSize || len(raw) > limit {
		return identity.ID{}, nil, fmt.Errorf("%w: %d bytes, want more than %d and at most %d", errSize, len(raw), prefixSize, limit)
	}
	if raw[0] != version {
		return identity.ID{}, nil, fmt.Errorf("%w %d, want %d", errVersion, raw[0], version)
	}
	from := identity.ID(raw[1 : 1+identity.IDSize])
	signature := [identity.SignatureSize]byte(raw[1+identity.IDSize : prefixSize])
	body := raw[prefixSize:]
	if !identity.Verify(from, domain, append([]byte{version}, body...), signature) {
		return identity.ID{}, nil, fmt.Errorf("%w: sender %s", ErrSignature, from)
	}
	return from, body, nil
}
