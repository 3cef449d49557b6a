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
	held       [][]Commitment         // for each batch, the candidates that this client holds; nil: none
}

// verdict is the outcome of a ballot.
type verdict struct {
	chosen []Commitment // for each batch; zero: no result counts
	// unknown lists the batches for which the witnesses hold a result that is not among the
	// candidates. The verdict is final only if it is empty.
	unknown []int
	// claimed is set if no quorum signed the same root, and fewer witnesses than a quorum claim to
	// hold the unknown result of each of these batches. Such a result counts only if further
	// witnesses hold it although their filters do not show it.
	claimed bool
	// unread contains the witnesses whose lists are unknown, if a chosen result depends on them: the
	// result has enough votes, but so few of the known lists name it that all of these may be lists
	// of dishonest witnesses. A client that learns of further results in the unread lists may find
	// that another result counts.
	unread []uint16
}

// decide counts the votes. A result counts if at least a quorum of witnesses hold it. If two results
// of a batch have a quorum, the result with more votes counts; if they have equally many, the result
// with the lower commitment. A Merkle root that a quorum of the witnesses signed takes precedence
// over the votes: the outcome must have exactly this root, so that every client arrives at the same
// set or knows that something is missing. The outcome does not depend on the order of arrival.
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
	if len(missing) == 0 { // the filters do not show which batch lacks a result: it may be any
		for i := range strict {
			missing = append(missing, i)
		}
	}
	return verdict{chosen: strict, unknown: missing}
}

// count is a ballot with the contents of the witnesses' filters.
type count struct {
	ballot
	owned [][]bool   // for each batch and witness: the witness claims to hold a result of the owner
	bears [][][]bool // for each batch, candidate and witness: the witness's filters contain the candidate and the owner
	votes [][]int    // for each batch and candidate: the number of witnesses with bears
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
				// An honest witness names the owner of every result that it holds. The vote of a
				// witness that does not name the owner must not count: clients that know the result
				// would count it, and other clients would not even learn that a result is missing.
				if t.owned[i][k] && witnesses[k].Commitments.ContainsPositions(positions) {
					t.bears[i][j][k] = true
					t.votes[i][j]++
				}
			}
		}
	}
	return t
}

// maxFaulty returns the assumed maximum number of dishonest witnesses in the round: fewer than a third of
// the elected witnesses.
func (b ballot) maxFaulty() int {
	return (max(int(b.round.WitnessesElected), len(b.round.Witnesses)) - 1) / 3
}

// choose selects for each batch the candidate with the most votes, if it has at least threshold votes.
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
// first tries the candidates that the filters of all witnesses select together. Then it tries, for
// each witness that signed the root, the candidates in the filter of this witness alone. At least one
// of these witnesses is honest, so its filter contains the outcome.
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

// believed returns the votes that count. A witness denies a candidate if its filter contains the
// candidate, but its list, whose root it signed, names a different result of the batch. If more
// witnesses deny a candidate than can be dishonest, at least one of them is honest. The candidate was
// then made to pass the filters, so the votes of all witnesses that deny it are removed. The
// candidate then has a quorum only if honest witnesses hold it.
//
// Fewer denials do not count, although each of them is signed. Which lists a client knows depends on
// the messages that it has received. If denials by dishonest witnesses alone counted, an attacker
// could easily make honest clients decide differently. With this rule, honest clients can differ only
// about a candidate that was made to pass the filter of an honest witness, and an attacker must search
// for such a candidate in every round.
func (t count) believed(lists [][]Commitment) [][]int {
	believed, maxFaulty := make([][]int, len(t.votes)), t.maxFaulty()
	for i, known := range t.candidates {
		believed[i] = slices.Clone(t.votes[i])
		for j, c := range known {
			denials := 0
			for k, list := range lists {
				if list != nil && t.bears[i][j][k] && list[i] != c {
					denials++
				}
			}
			if denials > maxFaulty {
				believed[i][j] -= denials
			}
		}
	}
	return believed
}

// unaccounted lists the batches without a chosen result for which an unknown result may have the
// quorum. A witness may hold the unknown result if it claims a result of the batch's owner, has no
// known one in its filter, and its list is unknown. In addition, as many witnesses as can be
// dishonest may hold it. claimed means that without these additional witnesses, none of the listed
// batches would have a quorum.
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
		if holders+min(t.maxFaulty(), witnesses-holders) >= int(t.round.WitnessesNeeded) {
			missing = append(missing, i)
			claimed = claimed && holders < int(t.round.WitnessesNeeded)
		}
	}
	return missing, claimed && len(missing) > 0
}

// unread lists the witnesses whose lists are unknown, if at most as many of the known lists name a
// chosen result as there can be dishonest witnesses. The votes for the result may then be false
// positives of the filters, which its trainer can search for. Otherwise unread returns nil.
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
		if named <= t.maxFaulty() {
			return members
		}
	}
	return nil
}

// lacks reports whether a witness claims a result of a batch, but none that this client knows.
func (t count) lacks(batch, witness int) bool {
	return t.owned[batch][witness] && !slices.ContainsFunc(t.bears[batch], func(by []bool) bool { return by[witness] })
}

// informed lists the members that know more about the batches whose result is unknown here. These are
// the witnesses that signed the root of a quorum, because they hold exactly the results that count.
// If no root has a quorum, they are the witnesses that claim a result of one of the batches, but none
// that this client knows.
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
