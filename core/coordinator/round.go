package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
)

// Assignments returns the batches of the round in ascending order, as intervals of positions (see
// Sequences). Member is an index in r.Members.
func (r *Round) Assignments(c Config) []assign.Assignment {
	assignments := assign.Batches(r.BatchSeed, len(r.Members), int(c.VerificationPercent), r.Position, r.BatchSize, r.levels())
	if c.RetryLost && r.Warming != (MemberSet{}) {
		r.warmingLast(assignments)
	}
	return assignments
}

// ElectedWitnesses returns the indices of the round's witnesses in r.Members.
func (r *Round) ElectedWitnesses(c Config) []int {
	return assign.Witnesses(r.Seed, len(r.Members), int(c.WitnessNodes))
}

// electedSet returns ElectedWitnesses as a set.
func (r *Round) electedSet(c Config) (elected MemberSet) {
	for _, member := range r.ElectedWitnesses(c) {
		elected.add(member)
	}
	return elected
}

// Owners returns the indices in r.Members of the members with a batch, ascending.
func (r *Round) Owners(c Config) []int {
	return assign.Owners(r.BatchSeed, len(r.Members), int(c.VerificationPercent), r.BatchSize, r.levels())
}

// BatchCount returns the number of batches of the round.
func (r *Round) BatchCount(c Config) int {
	return assign.BatchCount(r.BatchSeed, len(r.Members), int(c.VerificationPercent), r.BatchSize, r.levels())
}

// levels returns the levels of r.Members.
func (r *Round) levels() []uint8 { return r.Levels[:len(r.Members)] }

// MemberIndex returns the client's index in r.Members.
func (r *Round) MemberIndex(id ClientID) (int, bool) {
	i := slices.Index(r.Members, id)
	return i, i >= 0
}

// overfills reports whether the filters have more bits than the round's items can set. Such filters
// would vote for any result.
func (r *Round) overfills(participants, commitments *bloom.Filter, c Config) bool {
	batches := r.BatchCount(c)
	return participants.OnesCount() > bloom.Hashes*len(r.Members) || commitments.OnesCount() > bloom.Hashes*batches
}

// HasQuorum reports whether enough witnesses sent proofs. Without a quorum, no result counts and no
// health check is possible.
func (r *Round) HasQuorum() bool {
	return r.WitnessesNeeded > 0 && len(r.Witnesses) >= int(r.WitnessesNeeded)
}

// Votes returns the number of the round's witnesses that hold the commitment.
func (r *Round) Votes(commitment [32]byte) int {
	keys := bloom.NewKeys(r.Seed)
	positions := keys.Positions(commitment[:])
	votes := 0
	for i := range r.Witnesses {
		if r.Witnesses[i].Commitments.ContainsPositions(positions) {
			votes++
		}
	}
	return votes
}

// QuorumRoot returns the Merkle root that a quorum of the witnesses agrees on. Two roots cannot
// both have a quorum, because a quorum is more than half of the elected witnesses.
func (r *Round) QuorumRoot() (root [32]byte, ok bool) {
	for i := range r.Witnesses {
		candidate, count := r.Witnesses[i].CommitmentsRoot, 0
		for j := range r.Witnesses {
			if r.Witnesses[j].CommitmentsRoot == candidate {
				count++
			}
		}
		if count >= int(r.WitnessesNeeded) {
			return candidate, true
		}
	}
	return [32]byte{}, false
}
