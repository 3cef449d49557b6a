package tally

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/merkle"
)

// maxGuesses limits how many Merkle roots a client computes to find the witnesses' lists of one round.
// Two roots for each witness are not counted.
const maxGuesses = 1 << 10

// reading is the search for the list of commitments whose root a witness signed.
type reading struct {
	index   int // index of the witness
	witness *coordinator.Witness
	options [][]Commitment // for each batch the possible entries of the list, likely ones first; a zero entry: no result
	size    int            // number of lists that the options allow, at most maxGuesses+1
	list    []Commitment   // set once found
}

// lists returns, for each witness that of selects, the list of results whose root the witness signed,
// or nil if it was not found. It looks for lists of known candidates that the witness's filters
// contain.
//
// For each witness, it first tries the results that this client holds, even results that arrived late
// or were made from another replica. An honest witness holds only results that can be fetched. Once
// this client has fetched these, the first attempt succeeds, however many commitments were forged.
// After that, lists tries everything that the filters allow. It starts with the witnesses with the
// fewest possibilities, so that a dishonest witness cannot use up the attempts that are needed for
// honest ones.
func (t count) lists(of func(w *coordinator.Witness) bool) [][]Commitment {
	var readings []*reading
	for k := range t.round.Witnesses {
		if w := &t.round.Witnesses[k]; of(w) {
			readings = append(readings, t.reading(k, w))
		}
	}
	slices.SortFunc(readings, func(a, b *reading) int {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.witness.Member, b.witness.Member))
	})
	for i, r := range readings {
		if r.list = r.adopted(readings[:i]); r.list == nil && !r.repeats(readings[:i]) {
			r.list = r.guess()
		}
	}
	left := maxGuesses
	for i, r := range readings {
		if r.list == nil {
			r.list = r.adopted(readings)
		}
		if r.list == nil && r.size <= left && !r.repeats(readings[:i]) {
			left -= r.size
			r.list = r.search()
		}
	}
	lists := make([][]Commitment, len(t.round.Witnesses))
	for _, r := range readings {
		lists[r.index] = r.list
	}
	return lists
}

// reading returns the possibilities that the filters of a witness allow.
func (t count) reading(k int, w *coordinator.Witness) *reading {
	r := &reading{index: k, witness: w, options: make([][]Commitment, len(t.owners)), size: 1}
	for i, known := range t.candidates {
		if !t.owned[i][k] { // an honest witness names the owner of every result that it holds
			r.options[i] = []Commitment{{}}
			continue
		}
		var options []int
		for j := range known {
			if t.bears[i][j][k] {
				options = append(options, j)
			}
		}
		slices.SortFunc(options, func(a, b int) int {
			if x, y := t.holds(i, known[a]), t.holds(i, known[b]); x != y {
				if x {
					return -1
				}
				return 1
			}
			return cmp.Or(cmp.Compare(t.votes[i][b], t.votes[i][a]), bytes.Compare(known[a][:], known[b][:]))
		})
		for _, j := range options {
			r.options[i] = append(r.options[i], known[j])
		}
		if len(options) == 0 || !t.holds(i, r.options[i][0]) {
			r.options[i] = append(r.options[i], Commitment{}) // all options may have passed the filter by error
		}
		r.size = min(r.size*len(r.options[i]), maxGuesses+1)
	}
	return r
}

// holds reports whether a result of a batch is held here.
func (b ballot) holds(batch int, c Commitment) bool {
	return b.held != nil && slices.Contains(b.held[batch], c)
}

// adopted returns the list of another witness with the same root, if that list was found, and the
// filters of this witness allow it. Otherwise it returns nil.
func (r *reading) adopted(readings []*reading) []Commitment {
	for _, other := range readings {
		if other.list != nil && other.witness.CommitmentsRoot == r.witness.CommitmentsRoot && r.allows(other.list) {
			return other.list
		}
	}
	return nil
}

// repeats reports whether an earlier reading has the same root and filters.
func (r *reading) repeats(earlier []*reading) bool {
	return slices.ContainsFunc(earlier, func(other *reading) bool {
		a, b := other.witness, r.witness
		return a.CommitmentsRoot == b.CommitmentsRoot && a.Commitments == b.Commitments && a.Participants == b.Participants
	})
}

// allows reports whether the filters contain all entries of a list.
func (r *reading) allows(list []Commitment) bool {
	for i, c := range list {
		if !slices.Contains(r.options[i], c) {
			return false
		}
	}
	return true
}

// guess tries two lists. The first contains the most likely result of every batch. The second leaves out
// batches without a result that this client holds.
func (r *reading) guess() []Commitment {
	list := make([]Commitment, len(r.options))
	for i, options := range r.options {
		list[i] = options[0]
	}
	if merkle.Root(list) == r.witness.CommitmentsRoot {
		return list
	}
	for i, options := range r.options {
		if last := options[len(options)-1]; last == (Commitment{}) {
			list[i] = last
		}
	}
	if merkle.Root(list) == r.witness.CommitmentsRoot {
		return list
	}
	return nil
}

// search tries every list that the filters allow.
func (r *reading) search() []Commitment {
	list := make([]Commitment, len(r.options))
	for number := range r.size {
		for i, options := range r.options {
			list[i] = options[number%len(options)]
			number /= len(options)
		}
		if merkle.Root(list) == r.witness.CommitmentsRoot {
			return list
		}
	}
	return nil
}
