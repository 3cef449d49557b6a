package identity

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"

	"github.com/mr-tron/base58"
)

// Sizes in bytes (RFC 8032).
const (
	IDSize        = ed25519.PublicKeySize
	SeedSize      = ed25519.SeedSize
	SignatureSize = ed25519.SignatureSize
)

// ErrInvalidKey says that bytes or text do not hold an ed25519 key.
var ErrInvalidKey = errors.New("invalid ed25519 key")

// ID is an ed25519 public key.
type ID [IDSize]byte

// String returns the base58 form of the id.
func (id ID) String() string { return base58.Encode(id[:]) }

// Short returns the first eight characters of the base58 form, for logs and tables.
func (id ID) Short() string { return id.String()[:8] }

// ParseID reads the base58 form of an id.
func ParseID(text string) (ID, error) {
	raw, err := base58.Decode(text)
	if err != nil || len(raw) != IDSize {
		return ID{}, fmt.Errorf("parse id %q: %w: want %d bytes in base58", text, ErrInvalidKey, IDSize)
	}
	return ID(raw), nil
}

// Key is an ed25519 private key. The zero Key is not usable.
type Key struct {
	private ed25519.PrivateKey
}

// Generate makes a key from 32 bytes of random.
func Generate(random io.Reader) (Key, error) {
	var seed [SeedSize]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return Key{}, fmt.Errorf("generate key: %w", err)
	}
	return FromSeed(seed), nil
}

// FromSeed returns the key that RFC 8032 derives from a 32-byte seed.
func FromSeed(seed [SeedSize]byte) Key {
	return Key{private: ed25519.NewKeyFromSeed(seed[:])}
}

// ID returns the public half of the key.
func (k Key) ID() ID { return ID(k.private.Public().(ed25519.PublicKey)) }

// Private returns the key in the form of the standard library: seed, then public key.
// The caller must not modify it.
func (k Key) Private() ed25519.PrivateKey { return k.private }

// Sign signs message for the named domain.
func (k Key) Sign(domain string, message []byte) [SignatureSize]byte {
	return [SignatureSize]byte(ed25519.Sign(k.private, signedBytes(domain, message)))
}

// Verify reports whether signature is id's signature of message for the named domain.
func Verify(id ID, domain string, message []byte, signature [SignatureSize]byte) bool {
	return ed25519.Verify(id[:], signedBytes(domain, message), signature[:])
}

// signedBytes prefixes message with the domain and its length, so that no pair of a
// domain and a message has the bytes of another pair.
func signedBytes(domain string, message []byte) []byte {
	if len(domain) > 255 {
		panic("identity: domain longer than 255 bytes")
	}
	signed := make([]byte, 0, 1+len(domain)+len(message))
	signed = append(signed, byte(len(domain)))
	signed = append(signed, domain...)
	return append(signed, message...)
}
