package coordinator

import "slices"

// Claim is what a witness says of its own training in the round: zeros where it trained nothing or
// says nothing. Nobody can check it, every value is one that may be said, and no rule looks at it: it
// is shown, and the median of a quorum's claims is what a few that lie cannot move far.
type Claim struct {
	Loss  uint16 // mean of its batch, LossUnit to a nat per token; 0: none
	Speed uint32 // tokens that it trained in a second; 0: none
}

// LossUnit is how many units of Claim.Loss are a nat per token: the most that can be claimed is 65.5.
const LossUnit = 1000

// Claims are the claims of a round's witnesses about one value. In 24 rounds of four honest members, each with
// six sequences of the quickstart's data, none of 96 losses was far.
//
// A quorum has two thirds of the witnesses, but witnesses without a batch claim nothing. So Count may be small,
// and of two claims either may be false. Claims are in the state, and not only in the log, because observers of
// a server or a chain have the state and not always the log. They take 6 bytes of each proof, at most 768 of a
// state, no space in a chain's account, where they use padding, and 32 compute units of each proof there.
type Claims struct {
	Count  int        // that said it
	Median uint32     // of an even number the lower one of the two in the middle
	Spread uint32     // median of the claims' distances from Median, of an even number the higher one
	Far    []ClientID // of losses: who claims one that is more than five spreads and a third of the median away
}

// leastClaims is how many claims there have to be for one of them to be far from the others.
const leastClaims = 3

// Losses returns what the witnesses of the round claim of their loss, in units of Claim.Loss.
func (r *Round) Losses() Claims {
	return r.claims(func(c Claim) uint32 { return uint32(c.Loss) })
}

// Speeds returns what they claim of their speed, in tokens per second. Machines differ: nobody is far.
func (r *Round) Speeds() Claims {
	speeds := r.claims(func(c Claim) uint32 { return c.Speed })
	speeds.Far = nil
	return speeds
}

func (r *Round) claims(of func(Claim) uint32) Claims {
	var values, distances []uint32
	for i := range r.Witnesses {
		if v := of(r.Witnesses[i].Claim); v != 0 {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Claims{}
	}
	slices.Sort(values)
	c := Claims{Count: len(values), Median: values[(len(values)-1)/2]}
	for _, v := range values {
		distances = append(distances, distance(v, c.Median))
	}
	slices.Sort(distances)
	c.Spread = distances[len(distances)/2]
	for i := range r.Witnesses {
		w := &r.Witnesses[i]
		v := of(w.Claim)
		if d := uint64(distance(v, c.Median)); v != 0 && c.Count >= leastClaims && d > 5*uint64(c.Spread) && 3*d > uint64(c.Median) {
			c.Far = append(c.Far, r.Members[w.Member])
		}
	}
	return c
}

func distance(a, b uint32) uint32 { return max(a, b) - min(a, b) }

// Claimed returns the newest round that is over, whose witnesses were a quorum, and some of whom say
// something of their training. There is none when no such round is stored.
func (s *State) Claimed() (*Round, bool) {
	for i := len(s.Epoch.Rounds) - 1; i >= 0; i-- {
		r := &s.Epoch.Rounds[i]
		running := i == len(s.Epoch.Rounds)-1 && (s.RunState == RoundTrain || s.RunState == RoundWitness)
		if !running && r.HasQuorum() && slices.ContainsFunc(r.Witnesses, func(w Witness) bool { return w.Claim != Claim{} }) {
			return r, true
		}
	}
	return nil, false
}
