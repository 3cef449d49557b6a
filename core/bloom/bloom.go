package bloom

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Filter dimensions. With 256 entries, the false-positive rate is 0.8 %.
const (
	Bits   = 2560
	Hashes = 7
)

// Filter is a set of 32-byte items. The zero Filter is empty.
type Filter [Bits / 64]uint64

// Keys are the initial values of the hash functions of all filters with the same seed.
type Keys [Hashes]uint64

// Positions are the bits that one item sets.
type Positions [Hashes]uint16

// NewKeys derives the keys: key i is the first eight bytes, little endian, of
// sha256(seed as le64 ‖ i as one byte).
func NewKeys(seed uint64) Keys {
	var message [9]byte
	binary.LittleEndian.PutUint64(message[:], seed)
	var keys Keys
	for i := range keys {
		message[8] = byte(i)
		hash := sha256.Sum256(message[:])
		keys[i] = binary.LittleEndian.Uint64(hash[:8])
	}
	return keys
}

// Positions returns the positions of an item's bits.
func (k *Keys) Positions(item []byte) Positions {
	// The hashes of one item are independent. Computing them in parallel takes a third of the time.
	a, b, c, d, e, f, g := k[0], k[1], k[2], k[3], k[4], k[5], k[6]
	for _, x := range item {
		a, b, c, d = fnv1a(a, x), fnv1a(b, x), fnv1a(c, x), fnv1a(d, x)
		e, f, g = fnv1a(e, x), fnv1a(f, x), fnv1a(g, x)
	}
	return Positions{
		uint16(a % Bits), uint16(b % Bits), uint16(c % Bits), uint16(d % Bits),
		uint16(e % Bits), uint16(f % Bits), uint16(g % Bits),
	}
}

// Add adds an item to the filter, with the keys derived from seed.
func (f *Filter) Add(seed uint64, item []byte) {
	keys := NewKeys(seed)
	f.AddPositions(keys.Positions(item))
}

// Contains reports whether item was added with the same seed. It may also report true for an item
// that was not added.
func (f *Filter) Contains(seed uint64, item []byte) bool {
	keys := NewKeys(seed)
	return f.ContainsPositions(keys.Positions(item))
}

// AddPositions adds the item with these positions to the filter.
func (f *Filter) AddPositions(positions Positions) {
	for _, bit := range positions {
		f[bit%Bits/64] |= 1 << (bit % 64)
	}
}

// ContainsPositions is like Contains, for the item with these positions.
func (f *Filter) ContainsPositions(positions Positions) bool {
	for _, bit := range positions {
		if f[bit%Bits/64]>>(bit%64)&1 == 0 {
			return false
		}
	}
	return true
}

// OnesCount returns the number of set bits, at most Hashes for each item.
func (f *Filter) OnesCount() int {
	count := 0
	for _, word := range f {
		count += bits.OnesCount64(word)
	}
	return count
}

// fnv1a adds one byte to a 64-bit FNV-1a hash, which starts at a key instead of the standard offset
// basis.
func fnv1a(hash uint64, b byte) uint64 { return (hash ^ uint64(b)) * 0x100000001b3 }
