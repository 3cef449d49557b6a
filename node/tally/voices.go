package tally

import "github.com/psyche-go/psyche/core/coordinator"

// Outvoted reports whether this client's replica in a finished round is probably wrong. That is so if
// more of the round's members signed one other replica than signed this client's. Members sign their
// replica in the announcement of a result and in the proof of a witness. The number of members with
// the other replica must also exceed the possible number of dishonest members, which is fewer than a
// third of the epoch's seats. Then at least one of them is honest. A committee of witnesses alone is
// not sufficient, because dishonest members can have more than their share in it.
func (t *Tally) Outvoted(seats int) bool {
	if !t.Began || !t.Final {
		return false
	}
	v := &t.voices
	if !v.counted || v.changes != t.changes {
		*v = voices{counted: true, changes: t.changes}
		for replica, count := range t.signed() {
			if replica == t.Replica {
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
func (t *Tally) signed() map[[32]byte]int {
	voice := make(map[coordinator.ClientID][32]byte, len(t.Slots)+len(t.Round.Witnesses))
	for i := range t.Slots {
		if s := &t.Slots[i]; len(s.Candidates) > 0 {
			voice[s.Owner] = s.Candidates[0].Replica
		}
	}
	for i := range t.Round.Witnesses {
		w := &t.Round.Witnesses[i]
		voice[t.Round.Members[w.Member]] = w.Replica
	}
	counts := make(map[[32]byte]int)
	for _, replica := range voice {
		counts[replica]++
	}
	return counts
}
