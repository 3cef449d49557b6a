package assign

import (
	"crypto/sha256"
	"encoding/binary"
)

// Salts make the shuffles of one seed independent of each other.
const (
	saltCommittee = "committee"
	saltWitness   = "witness"
	saltBatch     = "batch"
)

const shuffleRounds = 90

// Position returns the position of index in the swap-or-not shuffle of total elements. For fixed
// total, seed and salt it is a permutation of 0…total−1. It returns an index that is not below
// total unchanged.
//
// The shuffle is by Hoang, Morris and Rogaway ("An Enciphering Scheme Based on a Card Shuffle",
// 2012) in the form of the Ethereum consensus specification, with 90 rounds and the key
// sha256(sha256(seed as le64) ‖ salt).
func Position(index, total uint32, seed uint64, salt string) uint32 {
	if index >= total {
		return index
	}
	key := shuffleKey(seed, salt)
	for round := range byte(shuffleRounds) {
		flip, position := partner(index, total, shufflePivot(&key, round, total))
		source := shuffleSource(&key, round, position/256)
		if chosen(&source, position) {
			index = flip
		}
	}
	return index
}

// inOrder returns the indices below total in the order of their positions. Each round of the shuffle
// swaps some of the pairs of positions that have the same sum modulo total. inOrder processes all
// positions together, so that each hash of a round is computed only once: 180 hashes for up to 256
// indices.
func inOrder(total uint32, seed uint64, salt string) []int {
	key := shuffleKey(seed, salt)
	order := make([]int, total)
	for i := range order {
		order[i] = i
	}
	sources := make([][sha256.Size]byte, (uint64(total)+255)/256)
	for round := range byte(shuffleRounds) {
		pivot := shufflePivot(&key, round, total)
		for block := range sources {
			sources[block] = shuffleSource(&key, round, uint32(block))
		}
		swapPairs(order[:pivot+1], 0, sources)
		swapPairs(order[pivot+1:], pivot+1, sources)
	}
	return order
}

// swapPairs swaps the first element of places with the last, the second with the last but one, and
// so on, each pair only if the source bit for its higher position is set. base is the position of
// the first element.
func swapPairs(places []int, base uint32, sources [][sha256.Size]byte) {
	for low, high := 0, len(places)-1; low < high; low, high = low+1, high-1 {
		position := base + uint32(high)
		source := &sources[position/256]
		// Avoid a branch, which the processor could not predict.
		difference := (places[low] ^ places[high]) & -int(source[position%256/8]>>(position%8)&1)
		places[low] ^= difference
		places[high] ^= difference
	}
}

func shuffleKey(seed uint64, salt string) [sha256.Size]byte {
	inner := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, seed))
	return sha256.Sum256(append(inner[:], salt...))
}

func shufflePivot(key *[sha256.Size]byte, round byte, total uint32) uint32 {
	var message [sha256.Size + 1]byte
	copy(message[:], key[:])
	message[sha256.Size] = round
	hash := sha256.Sum256(message[:])
	return uint32(binary.LittleEndian.Uint64(hash[:8]) % uint64(total))
}

func shuffleSource(key *[sha256.Size]byte, round byte, block uint32) [sha256.Size]byte {
	var message [sha256.Size + 5]byte
	copy(message[:], key[:])
	message[sha256.Size] = round
	binary.LittleEndian.PutUint32(message[sha256.Size+1:], block)
	return sha256.Sum256(message[:])
}

// partner returns the index that a shuffle round may swap with index. position is the larger of the
// two indices; its bit decides whether they are swapped.
func partner(index, total, pivot uint32) (flip, position uint32) {
	flip = pivot - index
	if index > pivot {
		flip += total // wraps around to a value below total
	}
	return flip, max(index, flip)
}

func chosen(source *[sha256.Size]byte, position uint32) bool {
	return source[(position%256)/8]>>(position%8)&1 == 1
}
