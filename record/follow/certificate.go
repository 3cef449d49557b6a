package follow

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// epochDomain is the signature domain of epoch certificates. It separates them from everything else
// that the same key signs.
const epochDomain = "psyche/epoch/v1"

// ErrCertificate means that a certificate does not prove its epoch.
var ErrCertificate = errors.New("certificate of an epoch")

// maxSignatures is the maximum number of signatures in a certificate: one for each member of the
// previous epoch, and one for each member of the certified epoch.
const maxSignatures = 2 * coordinator.MaxClients

// maxCertificate is the maximum size of a certificate in bytes.
const maxCertificate = epochFixed + coordinator.MaxClients*identity.IDSize + 2 + maxSignatures*signatureSize

const (
	epochFixed    = 4 + 8 + 32 + 32 + 2
	signatureSize = identity.IDSize + identity.SignatureSize
)

// Epoch is the start of an epoch in a run's log.
type Epoch struct {
	Number  uint32 // of the epoch; an epoch that found too few members starts again under the same number
	Index   uint64 // number of records, up to the tick that started it
	Hash    [32]byte
	State   [32]byte // SHA-256 of the state's canonical bytes
	Members []identity.ID
}

// epochOf returns the epoch that the newest record has started.
func (f *Follower) epochOf() Epoch {
	e := Epoch{Number: f.State.Progress.Epoch, Index: f.head.Index, Hash: f.head.Hash, State: f.State.Hash()}
	for i := range f.State.Epoch.Clients {
		e.Members = append(e.Members, identity.ID(f.State.Epoch.Clients[i].ID))
	}
	return e
}

// signed returns the bytes that a signature covers.
func (e Epoch) signed(run [32]byte) []byte {
	b := binary.LittleEndian.AppendUint32(run[:], e.Number)
	b = binary.LittleEndian.AppendUint64(b, e.Index)
	b = append(append(b, e.Hash[:]...), e.State[:]...)
	members := sha256.New()
	for _, id := range e.Members {
		_, _ = members.Write(id[:])
	}
	return members.Sum(b)
}

// Sign returns a member's signature that the run's log leads to this epoch.
func (e Epoch) Sign(key identity.Key, run [32]byte) [identity.SignatureSize]byte {
	return key.Sign(epochDomain, e.signed(run))
}

// Verify reports whether id has signed the epoch.
func (e Epoch) Verify(id identity.ID, run [32]byte, signature [identity.SignatureSize]byte) bool {
	return identity.Verify(id, epochDomain, e.signed(run), signature)
}

// Certificate is the start of an epoch with signatures of members of this and of earlier epochs. A
// client that knows the members of an earlier epoch can trust it without the log in between.
type Certificate struct {
	Epoch
	Signatures []Signature
}

// Signature is the signature of one member.
type Signature struct {
	ID        identity.ID
	Signature [identity.SignatureSize]byte
}

// SignedBy returns how many of the members have signed. It does not verify signatures.
func (c Certificate) SignedBy(members []identity.ID) int {
	count := 0
	signed := make(map[identity.ID]bool, len(c.Signatures))
	for _, s := range c.Signatures {
		signed[s.ID] = true
	}
	for _, id := range members {
		if signed[id] {
			count++
		}
	}
	return count
}

// Suffices reports whether count is more than two thirds of n members.
func Suffices(count, n int) bool { return n > 0 && 3*count > 2*n }

// Check returns ErrCertificate unless more than two thirds of the members have signed.
func (c Certificate) Check(run [32]byte, members []identity.ID) error {
	missing := make(map[identity.ID]bool, len(members))
	for _, id := range members {
		missing[id] = true
	}
	count := 0
	for _, s := range c.Signatures {
		if !missing[s.ID] {
			continue
		}
		if !c.Verify(s.ID, run, s.Signature) {
			return fmt.Errorf("%w %d: the signature of %s does not verify", ErrCertificate, c.Number, s.ID)
		}
		delete(missing, s.ID)
		if count++; Suffices(count, len(members)) {
			return nil
		}
	}
	return fmt.Errorf("%w %d: %d of %d members signed it, more than two thirds must", ErrCertificate, c.Number, count, len(members))
}

// AppendTo appends the bytes of the certificate.
func (c Certificate) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, c.Number)
	b = binary.LittleEndian.AppendUint64(b, c.Index)
	b = append(append(b, c.Hash[:]...), c.State[:]...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Members)))
	for _, id := range c.Members {
		b = append(b, id[:]...)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Signatures)))
	for _, s := range c.Signatures {
		b = append(append(b, s.ID[:]...), s.Signature[:]...)
	}
	return b
}

// DecodeCertificate decodes the output of AppendTo. It verifies nothing. The error wraps
// ErrCertificate.
func DecodeCertificate(b []byte) (Certificate, error) {
	var c Certificate
	if len(b) < epochFixed {
		return c, fmt.Errorf("%w: wrong size of %d bytes", ErrCertificate, len(b))
	}
	c.Number, c.Index = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[4:])
	copy(c.Hash[:], b[12:])
	copy(c.State[:], b[44:])
	members := int(binary.LittleEndian.Uint16(b[76:]))
	b = b[epochFixed:]
	if members > coordinator.MaxClients || len(b) < members*identity.IDSize+2 {
		return c, fmt.Errorf("%w: wrong number of members, %d", ErrCertificate, members)
	}
	for range members {
		c.Members = append(c.Members, identity.ID(b[:identity.IDSize]))
		b = b[identity.IDSize:]
	}
	signatures := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	if signatures > maxSignatures || len(b) != signatures*signatureSize {
		return c, fmt.Errorf("%w: %d signatures in %d bytes do not match", ErrCertificate, signatures, len(b))
	}
	for range signatures {
		c.Signatures = append(c.Signatures, Signature{identity.ID(b[:identity.IDSize]), [identity.SignatureSize]byte(b[identity.IDSize:])})
		b = b[signatureSize:]
	}
	return c, nil
}

// ResumeAt returns a Follower at a certified epoch, given the canonical bytes of the state. The
// caller must have checked the certificate.
func ResumeAt(g Genesis, c Certificate, state []byte) (*Follower, error) {
	if sha256.Sum256(state) != c.State {
		return nil, fmt.Errorf("%w %d: the state differs", ErrCertificate, c.Number)
	}
	decoded, err := coordinator.Decode(state)
	if err != nil {
		return nil, fmt.Errorf("%w %d: %w", ErrCertificate, c.Number, err)
	}
	f := Resume(g, decoded, headOf(c.Epoch), nil)
	f.epoch = c.Epoch
	return f, nil
}
