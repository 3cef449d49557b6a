package assign

// committee is the role of a member for the data of a round.
type committee uint8

// Committees. Witnesses are drawn independently of them.
const (
	Trainer    committee = iota // trains a batch
	verifier                    // trains no batch in this round
	tieBreaker                  // trains no batch either; a third of the members that do not train
)

// String returns the committee's name.
func (c committee) String() string {
	switch c {
	case Trainer:
		return "trainer"
	case verifier:
		return "verifier"
	case tieBreaker:
		return "tie-breaker"
	default:
		return "committee?"
	}
}

// Selection contains all inputs of the draw of roles in a round.
type Selection struct {
	Seed                uint64 // elects the witnesses
	BatchSeed           uint64 // draws committee and batches
	Members             int
	WitnessNodes        int // 0: all members, at most 32
	VerificationPercent int
}

// proof is a member's role in a round with the shuffle positions that determine it. Anyone who
// knows the round can check it with Verify.
type proof struct {
	Member          int // index in the round's members
	Committee       committee
	Position        uint32 // in the "committee" shuffle
	Witness         bool
	WitnessPosition uint32 // in the "witness" shuffle
}

// Prove returns the proof of a member's role. ok is false if there is no such member. It computes
// 360 hashes, independent of the number of members.
func (s Selection) Prove(member int) (proof, bool) {
	if member < 0 || member >= s.Members {
		return proof{}, false
	}
	index, total := uint32(member), uint32(s.Members)
	p := proof{
		Member:          member,
		Position:        Position(index, total, s.BatchSeed, saltCommittee),
		WitnessPosition: Position(index, total, s.Seed, saltWitness),
	}
	p.Committee = committeeAt(int(p.Position), s.Members, s.VerificationPercent)
	p.Witness = int(p.WitnessPosition) < electedWitnesses(s.Members, s.WitnessNodes)
	return p, true
}

// Verify reports whether every statement of the proof is true.
func (s Selection) Verify(p proof) bool {
	want, ok := s.Prove(p.Member)
	return ok && p == want
}

// committeeAt returns the committee of a position of the "committee" shuffle: of the
// members that do not train, the first third are tie-breakers, the rest verifiers.
func committeeAt(position, members, verificationPercent int) committee {
	idle := nonTrainers(members, verificationPercent)
	switch {
	case position < idle/3:
		return tieBreaker
	case position < idle:
		return verifier
	default:
		return Trainer
	}
}

// VerifierCount returns the number of members of a round that do not train: verificationPercent of
// them, rounded down, but at least one member trains.
func VerifierCount(members, verificationPercent int) int {
	return max(0, nonTrainers(members, verificationPercent))
}

func nonTrainers(members, verificationPercent int) int {
	percent := max(0, min(verificationPercent, 100))
	return min(members*percent/100, members-1)
}

func electedWitnesses(members, witnessNodes int) int {
	if witnessNodes <= 0 {
		witnessNodes = maxWitnesses
	}
	return min(members, witnessNodes)
}
