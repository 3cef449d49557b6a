package tally

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// replicaDomain is the start of every chain of replica hashes.
const replicaDomain = "psyche/replica/v1"

// roundDomain is the hash domain of signed replica values.
const roundDomain = "psyche/replica/round/v1"

// Commitment is the BLAKE3 hash of a result blob. The zero value means no result.
type Commitment = [32]byte

// votesDomain is the hash domain of votes.
const votesDomain = "psyche/replica/votes/v1"

// Counted is a result that became part of the model.
type Counted struct {
	Batch      assign.BatchID
	Commitment Commitment
	Vote       uint8 // from 1 to assign.FullVote
}

// VotesOf returns the vote of each result.
func VotesOf(counted []Counted) []uint8 {
	votes := make([]uint8, len(counted))
	for i, c := range counted {
		votes[i] = c.Vote
	}
	return votes
}

// StartReplica returns the replica hash of a client that holds the starting model of an epoch:
// SHA-256(domain ‖ digest of the model's manifest).
func StartReplica(digest [32]byte) [32]byte {
	return sha256.Sum256(append([]byte(replicaDomain), digest[:]...))
}

// ReplicaAt returns the replica value that a client signs in a round: SHA-256(domain ‖ replica ‖
// hash of the log's head at the round's start, or zeros if the run has no such log). If the host sent a
// client a different log, this client signs a different value.
func ReplicaAt(replica, head [32]byte) [32]byte {
	return sha256.Sum256(append(append([]byte(roundDomain), replica[:]...), head[:]...))
}

// ExtendReplica returns the replica hash after the counted results of a step were applied:
// SHA-256(previous ‖ step ‖ per counted result batch start ‖ batch end ‖ commitment), integers
// little-endian, results in ascending order of their batches. If a vote is not full, the replica hash is
// SHA-256(domain ‖ that hash ‖ per counted result one byte with its vote).
func ExtendReplica(previous [32]byte, step uint32, counted []Counted) [32]byte {
	h, full := binary.LittleEndian.AppendUint32(previous[:], step), true
	for _, c := range counted {
		full = full && c.Vote == assign.FullVote
		h = binary.LittleEndian.AppendUint64(h, c.Batch.Start)
		h = binary.LittleEndian.AppendUint64(h, c.Batch.End)
		h = append(h, c.Commitment[:]...)
	}
	next := sha256.Sum256(h)
	if full {
		return next
	}
	return sha256.Sum256(slices.Concat([]byte(votesDomain), next[:], VotesOf(counted)))
}
