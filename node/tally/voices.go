package tally

import "github.com/psyche-go/psyche/core/coordinator"

// Outvoted reports whether this client's replica in a finished round differs from the replica of
// the other members: more of the round's members signed one other replica, in the announcement of a
// result or in the proof of a witness, than signed this client's. That number must also exceed the
// possible number of dishonest members, fewer than a third of the epoch's seats, so that at least
// one honest member signed it. A committee of witnesses alone is not sufficient, because it can
// have more than its share of dishonest members.
func (b *Tally) Outvoted(seats int) bool {
	if !b.Began || !b.Final {
		return false
	}
	v := &b.voices
	if !v.counted || v.changes != b.changes {
		*v = voices{counted: true, changes: b.changes}
		for replica, count := range b.signed() {
			if replica == b.Replica {
				v.own = count
			} else {
				v.others = max(v.others, count)
			}
		}
	}
	return v.others > (seats-1)/3 && v.others > v.own
}

// voices contains the numbers of members that signed this client's replica of a finished round, and
// the most frequent other replica, as last counted by Outvoted.
type voices struct {
	counted     bool
	changes     int // value of Tally.changes for this count
	own, others int
}

// signed counts the members that signed each replica. For a member that signed two, the one in its
// witness proof counts, or the first one received.
func (b *Tally) signed() map[[32]byte]int {
	voice := make(map[coordinator.ClientID][32]byte, len(b.Slots)+len(b.Round.Witnesses))
	for i := range b.Slots {
		if s := &b.Slots[i]; len(s.Candidates) > 0 {
			voice[s.Owner] = s.Candidates[0].Replica
		}
	}
	for i := range b.Round.Witnesses {
		w := &b.Round.Witnesses[i]
		voice[b.Round.Members[w.Member]] = w.Replica
	}
	counts := make(map[[32]byte]int)
	for _, replica := range voice {
		counts[replica]++
	}
	return counts
}
