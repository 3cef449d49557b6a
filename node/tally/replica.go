package tally

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/psyche-go/psyche/core/assign"
)

// replicaDomain is the start of every chain of replica hashes.
const replicaDomain = "psyche/replica/v1"

// roundDomain is the hash domain of signed replica values.
const roundDomain = "psyche/replica/round/v1"

// Commitment is the BLAKE3 hash of a result blob. The zero value means no result.
type Commitment = [32]byte

// Counted is a result that became part of the model.
type Counted struct {
	Batch      assign.BatchID
	Commitment Commitment
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
// little-endian, results in ascending order of their batches.
func ExtendReplica(previous [32]byte, step uint32, counted []Counted) [32]byte {
	h := binary.LittleEndian.AppendUint32(previous[:], step)
	for _, c := range counted {
		h = binary.LittleEndian.AppendUint64(h, c.Batch.Start)
		h = binary.LittleEndian.AppendUint64(h, c.Batch.End)
		h = append(h, c.Commitment[:]...)
	}
	return sha256.Sum256(h)
}
