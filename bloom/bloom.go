// Package bloom is the fixed-size Bloom filter in which a witness says what it holds.
package bloom

// Filter dimensions: at MaxEntries the false-positive rate is 0.8 %.
const (
	Bits       = 2560
	Hashes     = 7
	MaxEntries = 256
)

// Filter is a set of 32-byte items. The zero Filter is empty.
type Filter [Bits / 64]uint64
