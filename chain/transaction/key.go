package transaction

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/base/identity"
)

// PublicKey identifies an account or a program. A participant's PublicKey is its identity.ID.
type PublicKey [32]byte

// String returns the base58 form.
func (k PublicKey) String() string { return identity.ID(k).String() }

// MarshalText returns the base58 form.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses a key like ParsePublicKey.
func (k *PublicKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParsePublicKey(string(text))
	return err
}

// ParsePublicKey parses the base58 form of a key.
func ParsePublicKey(text string) (PublicKey, error) {
	raw, err := decodeBase58(text, len(PublicKey{}))
	if err != nil {
		return PublicKey{}, fmt.Errorf("public key %w", err)
	}
	return PublicKey(raw), nil
}

// Hash is the hash of a block, which limits the life of a transaction that names it.
type Hash [32]byte

// String returns the base58 form.
func (h Hash) String() string { return base58.Encode(h[:]) }

// ParseHash parses the base58 form of a hash.
func ParseHash(text string) (Hash, error) {
	raw, err := decodeBase58(text, len(Hash{}))
	if err != nil {
		return Hash{}, fmt.Errorf("hash %w", err)
	}
	return Hash(raw), nil
}

// Signature is an ed25519 signature. A transaction's first signature identifies it.
type Signature [64]byte

// String returns the base58 form.
func (s Signature) String() string { return base58.Encode(s[:]) }

// ParseSignature parses the base58 form of a signature.
func ParseSignature(text string) (Signature, error) {
	raw, err := decodeBase58(text, len(Signature{}))
	if err != nil {
		return Signature{}, fmt.Errorf("signature %w", err)
	}
	return Signature(raw), nil
}

// errNotBase58 means that a text is not the base58 form of the right number of bytes.
var errNotBase58 = errors.New("not in base58")

// decodeBase58 rejects texts that are too long for size bytes before it decodes, because decoding
// takes quadratic time.
func decodeBase58(text string, size int) ([]byte, error) {
	if most := size*138/100 + 1; len(text) > most {
		return nil, fmt.Errorf("of %d characters: %w: want at most %d", len(text), errNotBase58, most)
	}
	raw, err := base58.Decode(text)
	if err != nil || len(raw) != size {
		return nil, fmt.Errorf("%q: %w: want %d bytes", text, errNotBase58, size)
	}
	return raw, nil
}

// Limits of seeds.
const (
	maxSeedLength = 32 // bytes of one seed
	maxSeeds      = 16 // of a derived address, including its bump
)

// derivedMarker ends the input of the hash for a derived address. An owner in CreateWithSeed must
// not end with it.
const derivedMarker = "ProgramDerivedAddress"

// errSeed means that an address cannot be derived from these seeds.
var errSeed = errors.New("no address can be derived from these seeds")

// CreateWithSeed returns the address of base's account with this seed for a program.
func CreateWithSeed(base PublicKey, seed string, owner PublicKey) (PublicKey, error) {
	if len(seed) > maxSeedLength {
		return PublicKey{}, fmt.Errorf("address with seed %q: %w: %d bytes, at most %d", seed, errSeed, len(seed), maxSeedLength)
	}
	if string(owner[len(owner)-len(derivedMarker):]) == derivedMarker {
		return PublicKey{}, fmt.Errorf("address with seed %q: %w: the owner %s is reserved", seed, errSeed, owner)
	}
	return PublicKey(sha256.Sum256(slices.Concat(base[:], []byte(seed), owner[:]))), nil
}

// findProgramAddress returns the address that a program derives from seeds, and its bump: the
// greatest value for which the address is not a point on the curve and therefore has no key.
func findProgramAddress(program PublicKey, seeds ...[]byte) (PublicKey, uint8, error) {
	if len(seeds) >= maxSeeds {
		return PublicKey{}, 0, fmt.Errorf("derived address of %s: %w: %d seeds, want at most %d", program, errSeed, len(seeds), maxSeeds-1)
	}
	for i, seed := range seeds {
		if len(seed) > maxSeedLength {
			return PublicKey{}, 0, fmt.Errorf("derived address of %s: %w: seed %d has %d bytes, at most %d", program, errSeed, i, len(seed), maxSeedLength)
		}
	}
	joined := slices.Concat(seeds...)
	for bump := 255; bump >= 0; bump-- {
		hashed := slices.Concat(joined, []byte{byte(bump)}, program[:], []byte(derivedMarker))
		if address := PublicKey(sha256.Sum256(hashed)); !address.onCurve() {
			return address, uint8(bump), nil
		}
	}
	return PublicKey{}, 0, fmt.Errorf("derived address of %s: %w: all candidates are on the curve", program, errSeed)
}

// The field's prime 2²⁵⁵ − 19 and the curve's d (RFC 8032, section 5.1).
var (
	prime, _  = new(big.Int).SetString("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed", 16)
	curveD, _ = new(big.Int).SetString("52036cee2b6ffe738cc740797779e89800700a4d4141d8ab75eb4dca135978a3", 16)
)

// onCurve reports whether the bytes encode a point on the curve, so that a key may exist. As on the
// chain, y is taken modulo the prime and a sign of x = 0 is ignored.
func (k PublicKey) onCurve() bool {
	bytes := k
	bytes[31] &= 0x7f // the sign of x
	slices.Reverse(bytes[:])
	y := new(big.Int).SetBytes(bytes[:])
	square := y.Mul(y, y)
	square.Mod(square, prime)
	// x² = u/v with u = y² − 1 and v = dy² + 1, which is never 0; it is a square if u·v is.
	u := new(big.Int).Sub(square, big.NewInt(1))
	v := new(big.Int).Mul(curveD, square)
	v.Add(v, big.NewInt(1))
	product := u.Mul(u, v)
	product.Mod(product, prime)
	return big.Jacobi(product, prime) >= 0
}
