package tally

import "github.com/psyche-go/psyche/core/coordinator"

// Outvoted reports whether this client's replica in a finished round is probably wrong. That is so if
// more of the round's members signed one other replica than signed this client's. Members sign their
// replica in the announcement of a result and in the proof of a witness. The number of members with
// the other replica must also exceed the possible number of dishonest members, which is fewer than a
// third of the epoch's seats. Then at least one of them is honest. A committee of witnesses alone is
// not sufficient, because dishonest members can have more than their share in it.
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

// voices caches the counts of Outvoted: how many members signed this client's replica of a finished
// round, and how many signed the most frequent other replica.
type voices struct {
	counted     bool
	changes     int // value of Tally.changes for this count
	own, others int
}

// signed counts the members that signed each replica. If a member signed several, the replica in its
// witness proof counts, or else the replica in the announcement that arrived first.
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
