package identity

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mr-tron/base58"
)

// Sizes in bytes (RFC 8032).
const (
	IDSize        = ed25519.PublicKeySize
	SeedSize      = ed25519.SeedSize
	SignatureSize = ed25519.SignatureSize
)

// ErrInvalidKey means that bytes or a text do not contain an ed25519 key.
var ErrInvalidKey = errors.New("invalid ed25519 key")

// ID is an ed25519 public key.
type ID [IDSize]byte

// String returns the base58 form of the id.
func (id ID) String() string { return base58.Encode(id[:]) }

// Short returns the first eight characters of the base58 form, for logs and tables.
func (id ID) Short() string { return id.String()[:8] }

// ParseID parses the base58 form of an id.
func ParseID(text string) (ID, error) {
	raw, err := base58.Decode(text)
	if err != nil || len(raw) != IDSize {
		return ID{}, fmt.Errorf("parse id %q: %w: want %d bytes in base58", text, ErrInvalidKey, IDSize)
	}
	return ID(raw), nil
}

// MarshalText returns the base58 form, for logs and other texts in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses an id like ParseID.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// Key is an ed25519 private key. The zero Key is not usable.
type Key struct {
	private ed25519.PrivateKey
}

// Generate makes a key from 32 bytes that it reads from random.
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

// Private returns the key in the form of the standard library: seed, then public key. The caller
// must not modify it.
func (k Key) Private() ed25519.PrivateKey { return k.private }

// Sign signs message for the named domain.
func (k Key) Sign(domain string, message []byte) [SignatureSize]byte {
	return [SignatureSize]byte(ed25519.Sign(k.private, signedBytes(domain, message)))
}

// Verify reports whether signature is id's signature of message for the named domain. It rejects
// keys of small order, because their signatures can be made without a private key.
func Verify(id ID, domain string, message []byte, signature [SignatureSize]byte) bool {
	return !id.hasSmallOrder() && ed25519.Verify(id[:], signedBytes(domain, message), signature[:])
}

// signedBytes prefixes message with the domain and its length, so that different pairs of domain
// and message have different bytes.
func signedBytes(domain string, message []byte) []byte {
	if len(domain) > 255 {
		panic("identity: domain longer than 255 bytes")
	}
	signed := make([]byte, 0, 1+len(domain)+len(message))
	signed = append(signed, byte(len(domain)))
	signed = append(signed, domain...)
	return append(signed, message...)
}

// smallOrder has the little-endian y coordinates of the curve's points of order 1, 2, 4 and 8. Two of
// these coordinates have a second encoding, because RFC 7748, section 5, allows values that are not
// below the field's prime.
var smallOrder = [...]ID{
	{0x00},
	{0x01},
	{0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
		0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05},
	{0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
		0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a},
	nearPrime(0xec), // p − 1
	nearPrime(0xed), // p, which is 0
	nearPrime(0xee), // p + 1, which is 1
}

// nearPrime returns the little-endian number 2^255 − 256 + low, which is near 2^255 − 19.
func nearPrime(low byte) ID {
	id := ID(bytes.Repeat([]byte{0xff}, IDSize))
	id[0], id[IDSize-1] = low, 0x7f
	return id
}

// hasSmallOrder reports whether the id is a point with at most eight multiples. The top bit is the
// sign of x and does not matter.
func (id ID) hasSmallOrder() bool {
	id[IDSize-1] &= 0x7f
	return slices.Contains(smallOrder[:], id)
}
