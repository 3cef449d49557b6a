package clienttest

import (
	"crypto/sha256"
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/record/wire"
)

// Round returns a running round of three members with a batch each, in a run with Config(3).
func Round() coordinator.Round {
	round := coordinator.Round{Step: 5, Seed: 42, DataIndex: 100, Position: 100, BatchSize: 12, WitnessesNeeded: 2, WitnessesElected: 3}
	for i := range 3 {
		round.Members = append(round.Members, coordinator.ClientID(Key(i).ID()))
	}
	return round
}

// Owners returns the trainers of a round in a run with Config(3), in the order of their batches.
func Owners(round coordinator.Round) []coordinator.ClientID {
	var owners []coordinator.ClientID
	for _, a := range round.Assignments(Config(3)) {
		owners = append(owners, round.Members[a.Member])
	}
	return owners
}

// Hash returns a distinct commitment for each n.
func Hash(n byte) [32]byte { return [32]byte{n, 0xee} }

// Numbered returns a distinct commitment for each combination of its parameters. The first byte is
// never zero.
func Numbered(kind byte, batch, number int) (c [32]byte) {
	c = sha256.Sum256(fmt.Appendf(nil, "%d %d %d", kind, batch, number))
	c[0] = 0x80 | kind
	return c
}

// Proofs returns the proofs of witnesses. Each list contains the commitments that one witness
// holds, one for each batch, zero for none.
func Proofs(seed uint64, owners []coordinator.ClientID, lists ...[][32]byte) []coordinator.Witness {
	var witnesses []coordinator.Witness
	for i, list := range lists {
		w := coordinator.Witness{Member: uint16(i), CommitmentsRoot: merkle.Root(list)}
		for j, c := range list {
			if c != ([32]byte{}) {
				w.Participants.Add(seed, owners[j][:])
				w.Commitments.Add(seed, c[:])
			}
		}
		witnesses = append(witnesses, w)
	}
	return witnesses
}

// Run is the hash of Round's run.
var Run = wire.HostedRun([]byte(RunID))

// Announcement returns the announcement of a result in Round.
func Announcement(batch assign.BatchID, blob, replica [32]byte) wire.ResultAnnouncement {
	return wire.ResultAnnouncement{Run: Run, Step: Round().Step, Batch: batch, Blob: blob, Size: 1, Replica: replica}
}
