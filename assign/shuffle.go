package assign

import (
	"crypto/sha256"
	"encoding/binary"
)

// Salts keep the shuffles of one seed independent of each other.
const (
	saltCommittee = "committee"
	saltWitness   = "witness"
	saltBatch     = "batch"
)

const shuffleRounds = 90

// Position returns where the swap-or-not shuffle of total elements puts index. For
// fixed total, seed and salt it is a permutation of 0…total−1. An index that is not
// below total is returned as it is.
//
// The shuffle is that of Hoang, Morris and Rogaway ("An Enciphering Scheme Based on a
// Card Shuffle", 2012) in the form of the Ethereum consensus specification, with 90
// rounds and the key sha256(sha256(seed as le64) ‖ salt).
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

// positions returns Position of every index below total. It shares the hashes of a
// round between the indices: 180 of them for up to 256 indices.
func positions(total uint32, seed uint64, salt string) []uint32 {
	key := shuffleKey(seed, salt)
	current := make([]uint32, total)
	for i := range current {
		current[i] = uint32(i)
	}
	blocks := (uint64(total) + 255) / 256
	sources := make([][sha256.Size]byte, blocks)
	for round := range byte(shuffleRounds) {
		pivot := shufflePivot(&key, round, total)
		for block := range sources {
			sources[block] = shuffleSource(&key, round, uint32(block))
		}
		for i, index := range current {
			flip, position := partner(index, total, pivot)
			if chosen(&sources[position/256], position) {
				current[i] = flip
			}
		}
	}
	return current
}

// inOrder returns the indices below total in the order of their positions.
func inOrder(total uint32, seed uint64, salt string) []int {
	order := make([]int, total)
	for index, position := range positions(total, seed, salt) {
		order[position] = index
	}
	return order
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

// partner returns the index that a round may swap with index, and the larger of the
// two, which decides for both.
func partner(index, total, pivot uint32) (flip, position uint32) {
	flip = uint32((uint64(pivot) + uint64(total) - uint64(index)) % uint64(total))
	return flip, max(index, flip)
}

func chosen(source *[sha256.Size]byte, position uint32) bool {
	return source[(position%256)/8]>>(position%8)&1 == 1
}
