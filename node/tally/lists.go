package tally

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/merkle"
)

// maxGuesses is the maximum number of Merkle roots that are computed to read the witnesses' lists
// of one round, in addition to two for each witness.
const maxGuesses = 1 << 10

// reading is the search for the list of commitments whose root a witness signed.
type reading struct {
	index   int // index of the witness
	witness *coordinator.Witness
	options [][]Commitment // for each batch the possible entries of the list, likely ones first; zero: none
	size    int            // number of lists that these allow, at most maxGuesses+1
	list    []Commitment   // set once found
}

// lists returns for each witness the list that it signed, among known candidates that its filters
// contain, or nil if none was found.
//
// It first tries every list with the results held here, including results that this client would
// not have proved because they arrived late or came from another replica. An honest witness holds
// only results that can be fetched, so the first guess is right for it, however many commitments
// were forged, as soon as its results were fetched. Then it tries all lists that its filters allow,
// starting with the witnesses with the fewest possibilities, so that a dishonest witness cannot use
// up the guesses that the others need.
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
			r.options[i] = append(r.options[i], Commitment{}) // all may have passed the filter by error
		}
		r.size = min(r.size*len(r.options[i]), maxGuesses+1)
	}
	return r
}

// holds reports whether a result of a batch is held here.
func (b ballot) holds(batch int, c Commitment) bool {
	return b.held != nil && slices.Contains(b.held[batch], c)
}

// adopted returns the list that another witness was found to have signed, if this one signed it
// too.
func (r *reading) adopted(readings []*reading) []Commitment {
	for _, other := range readings {
		if other.list != nil && other.witness.CommitmentsRoot == r.witness.CommitmentsRoot && r.allows(other.list) {
			return other.list
		}
	}
	return nil
}

// repeats reports whether an earlier reading was the same.
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

// guess tries the likely results, and then an empty entry for batches without a held result.
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
