package tally

import (
	"bytes"
	"slices"

	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/merkle"
)

// ballot contains everything that decides which results of a finished round count.
type ballot struct {
	round      *coordinator.Round     // with all its witnesses
	owners     []coordinator.ClientID // of the batches, in ascending order of batches
	candidates [][]Commitment         // for each batch, the known results, in any order
	held       [][]Commitment         // for each batch, the candidates held here, with any replica; nil: none
}

// verdict is the outcome of a ballot.
type verdict struct {
	chosen []Commitment // for each batch; zero: no result counts
	// unknown lists the batches for which the witnesses hold a result that is not among the
	// candidates. The verdict is final only if it is empty.
	unknown []int
	// claimed is set if no root was agreed on and fewer witnesses than a quorum claim to hold the
	// unknown result. It counts only if other witnesses, whose filters hide it, also hold it.
	claimed bool
	// unread contains the members whose lists are unknown, if a chosen result depends on them: it
	// has enough votes, but too few of the known lists name it for an honest one to be among them.
	// A client that knows further results of these members may find that another result counts.
	unread []uint16
}

// decide counts the votes. A result counts if at least a quorum of witnesses hold it. If two do,
// the one with more votes counts, then the lower commitment. A Merkle root that a quorum of the
// witnesses signed overrules that: the outcome must have exactly this root, so that every client
// arrives at the same set or knows that something is missing. The outcome does not depend on the
// order of arrival.
func (b ballot) decide() verdict {
	if !b.round.HasQuorum() {
		return verdict{chosen: make([]Commitment, len(b.owners))}
	}
	t := b.tally()
	root, agreed := b.round.QuorumRoot()
	if !agreed {
		lists := t.lists(func(*coordinator.Witness) bool { return true })
		chosen := b.choose(t.believed(lists), int(b.round.WitnessesNeeded))
		unknown, claimed := t.unaccounted(chosen, lists)
		return verdict{chosen, unknown, claimed, t.unread(chosen, lists)}
	}
	if found := t.withRoot(root); found != nil {
		return verdict{chosen: found}
	}
	strict := b.choose(t.votes, int(b.round.WitnessesNeeded))
	missing, _ := t.unaccounted(strict, nil)
	if len(missing) == 0 { // the filters show nothing: it may be any batch
		for i := range strict {
			missing = append(missing, i)
		}
	}
	return verdict{chosen: strict, unknown: missing}
}

// count is a ballot with the contents of the witnesses' filters.
type count struct {
	ballot
	owned [][]bool   // for each batch and witness: it claims to hold a result of the owner
	bears [][][]bool // for each batch, candidate and witness: its filter contains the candidate, and the owner
	votes [][]int    // for each batch and candidate: the number of these witnesses
}

func (b ballot) tally() count {
	keys, witnesses := bloom.NewKeys(b.round.Seed), b.round.Witnesses
	t := count{b, make([][]bool, len(b.owners)), make([][][]bool, len(b.owners)), make([][]int, len(b.owners))}
	for i, owner := range b.owners {
		positions := keys.Positions(owner[:])
		t.owned[i] = make([]bool, len(witnesses))
		for k := range witnesses {
			t.owned[i][k] = witnesses[k].Participants.ContainsPositions(positions)
		}
		t.bears[i] = make([][]bool, len(b.candidates[i]))
		t.votes[i] = make([]int, len(b.candidates[i]))
		for j, c := range b.candidates[i] {
			positions := keys.Positions(c[:])
			t.bears[i][j] = make([]bool, len(witnesses))
			for k := range witnesses {
				// An honest witness names the owner of every result that it holds. A witness that
				// does not would have a vote for clients that know the result, and hide it from the
				// others.
				if t.owned[i][k] && witnesses[k].Commitments.ContainsPositions(positions) {
					t.bears[i][j][k] = true
					t.votes[i][j]++
				}
			}
		}
	}
	return t
}

// liars returns the maximum number of dishonest witnesses in the round: fewer than a third of the
// elected.
func (b ballot) liars() int {
	return (max(int(b.round.WitnessesElected), len(b.round.Witnesses)) - 1) / 3
}

// choose selects for each batch the candidate with the most votes, at least threshold.
func (b ballot) choose(votes [][]int, threshold int) []Commitment {
	chosen := make([]Commitment, len(b.candidates))
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

// withRoot returns the outcome with the root that a quorum signed, or nil if it is not found. It
// tries the candidates that the filters together select, and then those in the filter of each of
// these witnesses. At least one of them is honest, whatever the others' filters contain.
func (t count) withRoot(root [32]byte) []Commitment {
	for _, threshold := range []int{int(t.round.WitnessesNeeded), 1} {
		if chosen := t.choose(t.votes, threshold); merkle.Root(chosen) == root {
			return chosen
		}
	}
	for _, list := range t.lists(func(w *coordinator.Witness) bool { return w.CommitmentsRoot == root }) {
		if list != nil {
			return list
		}
	}
	return nil
}

// believed returns the votes that count. A witness denies a candidate that its filter contains if
// its list, whose root it signed, names a different one. If more witnesses deny a candidate than
// can be dishonest, at least one of them is honest. The candidate was then made to pass the
// filters, and the votes of all that deny it are removed. It then has a quorum only if honest
// witnesses hold it.
//
// Fewer denials do not count, although each is signed. The known lists depend on the messages that
// a client has received, so a vote must not depend on dishonest witnesses alone: honest clients
// could then be made to differ at no cost. Now they can differ only about a candidate that was made
// to pass the filter of an honest witness, which requires a search in every round.
func (t count) believed(lists [][]Commitment) [][]int {
	believed, liars := make([][]int, len(t.votes)), t.liars()
	for i, known := range t.candidates {
		believed[i] = slices.Clone(t.votes[i])
		for j, c := range known {
			denials := 0
			for k, list := range lists {
				if list != nil && t.bears[i][j][k] && list[i] != c {
					denials++
				}
			}
			if denials > liars {
				believed[i][j] -= denials
			}
		}
	}
	return believed
}

// unaccounted lists the batches without an outcome for which an unknown result may have the quorum.
// All witnesses may hold it that claim a result of the owner and hold none that is known here,
// unless their whole list is known. Dishonest witnesses, fewer than a third, may have it in their
// filters in any case. claimed means that each of these batches depends on them.
func (t count) unaccounted(chosen []Commitment, lists [][]Commitment) (missing []int, claimed bool) {
	witnesses := len(t.round.Witnesses)
	claimed = true
	for i := range t.owners {
		if chosen[i] != (Commitment{}) {
			continue
		}
		holders := 0
		for k := range witnesses {
			if (lists == nil || lists[k] == nil) && t.lacks(i, k) {
				holders++
			}
		}
		if holders+min(t.liars(), witnesses-holders) >= int(t.round.WitnessesNeeded) {
			missing = append(missing, i)
			claimed = claimed && holders < int(t.round.WitnessesNeeded)
		}
	}
	return missing, claimed && len(missing) > 0
}

// unread lists the members whose lists are unknown, if a chosen result is named by no more of the
// known lists than can be dishonest. Its votes may then be false positives of the filters, which a
// trainer can search for.
func (t count) unread(chosen []Commitment, lists [][]Commitment) []uint16 {
	var members []uint16
	for k := range t.round.Witnesses {
		if lists[k] == nil {
			members = append(members, t.round.Witnesses[k].Member)
		}
	}
	for i, c := range chosen {
		if c == (Commitment{}) {
			continue
		}
		named := 0
		for _, list := range lists {
			if list != nil && list[i] == c {
				named++
			}
		}
		if named <= t.liars() {
			return members
		}
	}
	return nil
}

// lacks reports whether a witness holds a result of a batch that is unknown here.
func (t count) lacks(batch, witness int) bool {
	return t.owned[batch][witness] && !slices.ContainsFunc(t.bears[batch], func(by []bool) bool { return by[witness] })
}

// informed lists the members that know more about the batches unknown here: the witnesses that
// signed the root of a quorum, because they hold exactly what counts. Without such a root it lists
// the witnesses that claim a result of one of the batches and hold none of its candidates.
func (b ballot) informed(unknown []int) []uint16 {
	t := b.tally()
	root, agreed := b.round.QuorumRoot()
	var members []uint16
	for k := range b.round.Witnesses {
		w := &b.round.Witnesses[k]
		if agreed && w.CommitmentsRoot == root ||
			!agreed && slices.ContainsFunc(unknown, func(i int) bool { return t.lacks(i, k) }) {
			members = append(members, w.Member)
		}
	}
	return members
}
