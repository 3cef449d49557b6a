package shuffle

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// rounds is the number of rounds of the swap-or-not network. Each moves an index with probability
// one half to a position that is uniform over all n.
const rounds = 90

const domain = "psyche/data/shuffle/v1"

// Permutation is a seeded order of n sequences, different for every pass over them. Its methods may
// be called concurrently.
type Permutation struct {
	seed [32]byte
	n    uint64

	mu   sync.Mutex
	pass pass // of the newest call
}

// pass contains the values that all indices of one pass share.
type pass struct {
	number uint64
	pivots [rounds]uint64
	ready  bool
}

// New returns the permutation of n ≥ 1 sequences for a seed.
func New(seed [32]byte, n uint64) *Permutation {
	if n == 0 {
		panic("shuffle: permutation of nothing")
	}
	return &Permutation{seed: seed, n: n}
}

// At returns the number of the sequence at an index of the run. For the indices p·n to (p+1)·n−1 of
// a pass p it returns every number below n once.
//
// At implements the swap-or-not shuffle (Hoang, Morris, Rogaway, CRYPTO 2012). In each round, it
// swaps an index with its mirror image about a pivot, or leaves both in place. One bit of a hash
// decides: the hash of the round and the larger of the two indices.
func (p *Permutation) At(index uint64) uint64 {
	current := p.passOf(index / p.n)
	position := index % p.n
	var block [len(domain) + 32 + 8 + 1 + 8]byte
	copy(block[:], domain)
	copy(block[len(domain):], p.seed[:])
	binary.LittleEndian.PutUint64(block[len(domain)+32:], current.number)
	for round := range rounds {
		// pivot − position modulo n, without exceeding 64 bits.
		mirror := current.pivots[round] - position
		if current.pivots[round] < position {
			mirror += p.n
		}
		larger := max(position, mirror)
		block[len(domain)+40] = byte(round)
		binary.LittleEndian.PutUint64(block[len(domain)+41:], larger>>8)
		bits := sha256.Sum256(block[:])
		if bits[larger>>3&31]>>(larger&7)&1 == 1 {
			position = mirror
		}
	}
	return position
}

// passOf returns the pivots of a pass.
func (p *Permutation) passOf(number uint64) pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pass.ready && p.pass.number == number {
		return p.pass
	}
	p.pass = pass{number: number, ready: true}
	message := make([]byte, 0, len(domain)+32+8+1)
	message = append(message, domain...)
	message = append(message, p.seed[:]...)
	message = binary.LittleEndian.AppendUint64(message, number)
	for round := range rounds {
		hash := sha256.Sum256(append(message, byte(round)))
		p.pass.pivots[round] = binary.LittleEndian.Uint64(hash[:]) % p.n
	}
	return p.pass
}
