package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/bloom"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/merkle"
)

// replicaDomain starts every chain of replica hashes.
const replicaDomain = "psyche/replica/v1"

// commitment is the BLAKE3 hash of a result blob. The zero value stands for no result.
type commitment = [32]byte

// countedResult is a result that became part of the model.
type countedResult struct {
	batch      assign.BatchID
	commitment commitment
}

// startReplica is the replica hash of a client that holds the model an epoch starts from:
// SHA-256(domain ‖ digest of the model's manifest).
func startReplica(digest [32]byte) [32]byte {
	return sha256.Sum256(append([]byte(replicaDomain), digest[:]...))
}

// extendReplica is the replica hash after the counted results of a step were applied:
// SHA-256(previous ‖ step ‖ per counted result batch start ‖ batch end ‖ commitment),
// integers little-endian, results in ascending order of their batches.
func extendReplica(previous [32]byte, step uint32, counted []countedResult) [32]byte {
	h := binary.LittleEndian.AppendUint32(previous[:], step)
	for _, c := range counted {
		h = binary.LittleEndian.AppendUint64(h, c.batch.Start)
		h = binary.LittleEndian.AppendUint64(h, c.batch.End)
		h = append(h, c.commitment[:]...)
	}
	return sha256.Sum256(h)
}

// ballot is everything that decides which results of a finished round count.
type ballot struct {
	round      *coordinator.Round     // with all its witnesses
	owners     []coordinator.ClientID // of the batches, in ascending order of batches
	candidates [][]commitment         // per batch, the known results, in any order
}

// verdict is the outcome of a ballot.
type verdict struct {
	chosen []commitment // per batch; zero: no result counts
	// unknown lists the batches of which the witnesses hold a result that is not among
	// the candidates. The verdict stands only when it is empty.
	unknown []int
}

// decide counts the votes. A result counts when at least quorum witnesses hold it; where
// two do, the one with more votes, then the lower commitment. A Merkle root that a quorum
// of the witnesses signed overrules that: the outcome must have exactly this root, so
// that every client arrives at the same set or knows that it lacks something. The
// outcome depends on no order of arrival.
func (b ballot) decide() verdict {
	if !b.round.HasQuorum() {
		return verdict{chosen: make([]commitment, len(b.owners))}
	}
	votes := b.countVotes()
	strict := b.choose(votes, int(b.round.WitnessesNeeded))
	root, agreed := b.round.QuorumRoot()
	if !agreed {
		return verdict{chosen: strict, unknown: b.unaccounted(strict)}
	}
	if merkle.Root(strict) == root {
		return verdict{chosen: strict}
	}
	// A witness may sign the right root and leave bits out of its filter.
	if loose := b.choose(votes, 1); merkle.Root(loose) == root {
		return verdict{chosen: loose}
	}
	if found := b.search(votes, strict, root); found != nil {
		return verdict{chosen: found}
	}
	missing := b.unaccounted(strict)
	if len(missing) == 0 { // the filters tell nothing: any batch may be it
		for i := range strict {
			missing = append(missing, i)
		}
	}
	return verdict{chosen: strict, unknown: missing}
}

// countVotes returns for every candidate the number of witnesses that hold it.
func (b ballot) countVotes() [][]int {
	keys := bloom.NewKeys(b.round.Seed)
	votes := make([][]int, len(b.candidates))
	for i, known := range b.candidates {
		votes[i] = make([]int, len(known))
		for j, c := range known {
			positions := keys.Positions(c[:])
			for k := range b.round.Witnesses {
				if b.round.Witnesses[k].Commitments.ContainsPositions(positions) {
					votes[i][j]++
				}
			}
		}
	}
	return votes
}

// choose picks per batch the candidate with the most votes, at least threshold.
func (b ballot) choose(votes [][]int, threshold int) []commitment {
	chosen := make([]commitment, len(b.candidates))
	for i, known := range b.candidates {
		best := 0
		for j, c := range known {
			if votes[i][j] < threshold || votes[i][j] < best {
				continue
			}
			if votes[i][j] > best || bytes.Compare(c[:], chosen[i][:]) < 0 {
				best, chosen[i] = votes[i][j], c
			}
		}
	}
	return chosen
}

// maxGuesses bounds what search tries.
const maxGuesses = 1 << 10

// search looks for the outcome with the given root where some trainers sent several
// results and a witness that lies about its filter blurs which of them the others hold.
// It returns nil when there is none, or too many to try.
func (b ballot) search(votes [][]int, chosen []commitment, root [32]byte) []commitment {
	guess := slices.Clone(chosen)
	var open []int // batches with a choice
	var options [][]commitment
	total := 1
	for i, known := range b.candidates {
		possible := []commitment{chosen[i]}
		for j, c := range known {
			if votes[i][j] > 0 && c != chosen[i] {
				possible = append(possible, c)
			}
		}
		if len(possible) < 2 {
			continue
		}
		if total *= len(possible); total > maxGuesses {
			return nil
		}
		open, options = append(open, i), append(options, possible)
	}
	for number := range total {
		for k, i := range open {
			guess[i] = options[k][number%len(options[k])]
			number /= len(options[k])
		}
		if merkle.Root(guess) == root {
			return guess
		}
	}
	return nil
}

// unaccounted lists the batches without an outcome of which an unknown result may have the
// quorum. All witnesses may hold it that hold a result of the owner and none that is known
// here; and those that lie, fewer than a third, may have it in their filters whatever else
// these say.
func (b ballot) unaccounted(chosen []commitment) []int {
	keys := bloom.NewKeys(b.round.Seed)
	witnesses := b.round.Witnesses
	liars := (max(int(b.round.WitnessesElected), len(witnesses)) - 1) / 3
	var missing []int
	for i, owner := range b.owners {
		if chosen[i] != (commitment{}) {
			continue
		}
		held := keys.Positions(owner[:])
		known := make([]bloom.Positions, len(b.candidates[i]))
		for j, c := range b.candidates[i] {
			known[j] = keys.Positions(c[:])
		}
		holders := 0
		for k := range witnesses {
			w := &witnesses[k]
			if w.Participants.ContainsPositions(held) && !slices.ContainsFunc(known, w.Commitments.ContainsPositions) {
				holders++
			}
		}
		if holders+min(liars, len(witnesses)-holders) >= int(b.round.WitnessesNeeded) {
			missing = append(missing, i)
		}
	}
	return missing
}

// informed lists the members that know more of the batches unknown here: the witnesses that
// signed the root of a quorum, for they hold just what counts; without such a root those
// that hold a result of one of the batches and none of its candidates.
func (b ballot) informed(unknown []int) []uint16 {
	keys := bloom.NewKeys(b.round.Seed)
	root, agreed := b.round.QuorumRoot()
	var members []uint16
	for k := range b.round.Witnesses {
		w := &b.round.Witnesses[k]
		knows := agreed && w.CommitmentsRoot == root
		for _, i := range unknown {
			if knows || agreed {
				break
			}
			knows = w.Participants.ContainsPositions(keys.Positions(b.owners[i][:])) &&
				!slices.ContainsFunc(b.candidates[i], func(c commitment) bool {
					return w.Commitments.ContainsPositions(keys.Positions(c[:]))
				})
		}
		if knows {
			members = append(members, w.Member)
		}
	}
	return members
}
