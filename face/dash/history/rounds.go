package history

// Stretch is one round, or the sum of several consecutive rounds.
type Stretch struct {
	First     uint32 `json:"s"` // step of the first round
	Rounds    uint32 `json:"n"` // number of rounds
	End       uint64 `json:"t"` // end of the last round
	Spent     Spent  `json:"w"` // time in every phase, since the end of the round before the first
	Tokens    uint64 `json:"k"` // of results that counted
	Batches   uint64 `json:"b"` // batches of these rounds
	Counted   uint64 `json:"c"` // batches with a counted result
	Members   uint64 `json:"m"` // summed over the rounds
	Fewest    uint32 `json:"l"` // smallest number of members in a round
	Most      uint32 `json:"h"` // largest number of members in a round
	Witnesses uint64 `json:"v"` // accepted proofs
	Elected   uint64 `json:"q"` // elected witnesses

	// Claims that the witnesses of rounds with a quorum make about their training.
	Claimed uint32 `json:"a,omitempty"` // rounds with claims of the loss
	Losses  uint64 `json:"x,omitempty"` // sum of these rounds' medians, in units of coordinator.Claim
	Spreads uint64 `json:"y,omitempty"` // sum of their spreads
	Speeds  uint64 `json:"z,omitempty"` // sum of their median speeds, tokens per second of one member
	Claims  uint64 `json:"g,omitempty"` // of the loss
	Far     uint64 `json:"f,omitempty"` // of Claims: far from the median
}

// join adds the following stretch.
func (s *Stretch) join(next *Stretch) {
	s.Rounds += next.Rounds
	s.End = next.End
	for i, ms := range next.Spent {
		s.Spent[i] += ms
	}
	s.Tokens += next.Tokens
	s.Batches += next.Batches
	s.Counted += next.Counted
	s.Members += next.Members
	s.Fewest, s.Most = min(s.Fewest, next.Fewest), max(s.Most, next.Most)
	s.Witnesses += next.Witnesses
	s.Elected += next.Elected
	s.Claimed += next.Claimed
	s.Losses += next.Losses
	s.Spreads += next.Spreads
	s.Speeds += next.Speeds
	s.Claims += next.Claims
	s.Far += next.Far
}

// Rounds are all rounds of a run in at most maxStretches stretches. When they are full, pairs are
// merged, and later rounds are collected into stretches of the new size.
type Rounds struct {
	Each uint32 // rounds of a stretch
	List []Stretch
}

func (r *Rounds) add(s Stretch) {
	r.Each = max(r.Each, 1)
	if n := len(r.List); n > 0 && r.List[n-1].Rounds < r.Each {
		r.List[n-1].join(&s)
		return
	}
	if len(r.List) == maxStretches {
		r.List = merged(r.List, maxStretches/2)
		r.Each *= 2
		r.add(s)
		return
	}
	r.List = append(r.List, s)
}

// At returns the rounds of a range of steps, including both ends, in at most n stretches. If to is 0,
// the range has no end.
func (r *Rounds) At(from, to uint32, n int) []Stretch {
	list := make([]Stretch, 0, min(len(r.List), maxStretches))
	for i := range r.List {
		s := &r.List[i]
		if s.First+s.Rounds > from && (to == 0 || s.First <= to) {
			list = append(list, *s)
		}
	}
	return merged(list, n)
}

// merged merges a list into at most n stretches. Each is the sum of the same number of elements,
// except the last. merged reuses the memory of the list.
func merged(list []Stretch, n int) []Stretch {
	if n <= 0 || len(list) <= n {
		return list
	}
	each := (len(list) + n - 1) / n
	kept := 0
	for i := range list {
		if i%each == 0 {
			list[kept] = list[i]
			kept++
		} else {
			list[kept-1].join(&list[i])
		}
	}
	return list[:kept]
}
