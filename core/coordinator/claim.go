package coordinator

import "slices"

// Claim contains a witness's unverified statements about its own training in the round. It is zero
// if the witness trained nothing or makes no statement. No rule uses a Claim, every value is
// allowed, and programs only display it. A few false claims cannot move the median of a quorum's
// claims far.
type Claim struct {
	Loss  uint16 // mean loss of its batch, in units of 1/LossUnit nats per token; 0: none
	Speed uint32 // tokens trained per second; 0: none
}

// LossUnit is the number of units of Claim.Loss in a nat per token. The largest loss that a Claim
// can contain is 65.5.
const LossUnit = 1000

// Claims summarizes what a round's witnesses claim about one value. In 24 rounds of four honest
// members, each with six sequences of the quickstart's data, none of 96 losses was in Far.
//
// A quorum has two thirds of the witnesses, but witnesses without a batch claim nothing. Count may
// therefore be small, and with two claims, either may be the false one. Claims are in the state and
// not only in the log, because observers of a server or a chain always have the state but not always
// the log. They take 6 bytes of each proof, at most 768 bytes of a state. On a chain, each proof's
// claim takes 32 compute units and no space in the account, because it uses padding.
type Claims struct {
	Count  int        // number of claims
	Median uint32     // of an even number of claims, the lower of the two in the middle
	Spread uint32     // median of the claims' distances from Median; of an even number of claims, the higher of the two in the middle
	Far    []ClientID // only for losses: clients whose claim differs from Median by more than five Spreads and a third of Median
}

// leastClaims is the minimum number of claims of a round for Claims.Far to list any.
const leastClaims = 3

// Losses returns the losses that the witnesses of the round claim, in units of Claim.Loss.
func (r *Round) Losses() Claims {
	return r.claims(func(c Claim) uint32 { return uint32(c.Loss) })
}

// Speeds returns the speeds that the witnesses claim, in tokens per second. Far is empty, because
// machines differ.
func (r *Round) Speeds() Claims {
	speeds := r.claims(func(c Claim) uint32 { return c.Speed })
	speeds.Far = nil
	return speeds
}

func (r *Round) claims(of func(Claim) uint32) Claims {
	var made []statement
	for i := range r.Witnesses {
		w := &r.Witnesses[i]
		made = append(made, statement{r.Members[w.Member], of(w.Claim)})
	}
	return summary(made)
}

// HeldOut returns the losses on held-out data that members claim for the run's checkpoint, in units of
// Claim.Loss. A member makes this claim when it reports the model. Far lists members as for Losses. The
// state contains the claims until a member reports a later model.
func (s *State) HeldOut() Claims {
	at := s.Model.Checkpoint
	recorded := Recorded{Step: at.Step, Digest: at.Digest}
	runs := s.RunState == Warmup || s.active()
	var made []statement
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending} {
		for i := range clients {
			switch c := &clients[i]; {
			case !at.FromPeers() || runs && c.Report.Step != 0:
				return Claims{}
			case c.HeldOut != 0 && (runs || c.Report == recorded):
				made = append(made, statement{c.ID, uint32(c.HeldOut)})
			}
		}
	}
	return summary(made)
}

// statement is one client's claim about a value; 0: none.
type statement struct {
	by    ClientID
	value uint32
}

// summary returns the summary of claims.
func summary(made []statement) Claims {
	var values, distances []uint32
	for _, m := range made {
		if m.value != 0 {
			values = append(values, m.value)
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
	for _, m := range made {
		if d := uint64(distance(m.value, c.Median)); m.value != 0 && c.Count >= leastClaims && d > 5*uint64(c.Spread) && 3*d > uint64(c.Median) {
			c.Far = append(c.Far, m.by)
		}
	}
	return c
}

func distance(a, b uint32) uint32 { return max(a, b) - min(a, b) }

// Claimed returns the newest finished round that has a quorum of witnesses and at least one nonzero
// Claim. ok is false if no such round is stored.
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
