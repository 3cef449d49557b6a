package assign

import (
	"crypto/sha256"
	"encoding/binary"
)

// Salts of what a round's seed draws about the round before, and about trials.
const (
	saltAudit = "audit"
	saltJury  = "jury"
)

// domainDouble keeps who audits a trainer a second time apart from everything else that is hashed.
const domainDouble = "psyche/audit/v1/double"

// DoublePercent is how often, in a hundred, the second of two verifiers audits the trainer of the
// first, so that the two can be compared.
const DoublePercent = 25

// VerifierCount returns how many members of a round do not train.
func VerifierCount(members, verificationPercent int) int {
	return max(0, nonTrainers(members, verificationPercent))
}

// Verifiers returns the members that do not train in a round in the order of their positions in
// the "committee" shuffle, which are their ranks.
func Verifiers(seed uint64, members, verificationPercent int) []int {
	count := VerifierCount(members, verificationPercent)
	if count == 0 {
		return nil
	}
	return inOrder(uint32(members), seed, saltCommittee)[:count]
}

// Rank returns which place a member has in Verifiers, and false when it trains. It is faster for
// one member than that.
func Rank(seed uint64, members, verificationPercent, member int) (rank int, ok bool) {
	count := VerifierCount(members, verificationPercent)
	if count == 0 || member < 0 || member >= members {
		return 0, false
	}
	rank = int(Position(uint32(member), uint32(members), seed, saltCommittee))
	return rank, rank < count
}

// Target returns which of the trainers of a round the verifier of a rank of the round after
// audits: a position in their ascending list. The seed is that of the round after, which nobody
// knew when results were committed to. Of every two verifiers the second one audits the trainer
// of the first with a probability of DoublePercent. Without trainers, or for who is no verifier,
// it is −1.
func Target(seed uint64, rank, verifiers, trainers int) int {
	if rank < 0 || rank >= verifiers || trainers < 1 {
		return -1
	}
	if rank%2 == 1 && doubles(seed, rank) {
		rank--
	}
	return int(Position(uint32(rank%trainers), uint32(trainers), seed, saltAudit))
}

// doubles reports whether the verifier of an odd rank audits the trainer of the one before: the
// first eight bytes of sha256(domain ‖ seed as le64 ‖ rank as le32), modulo 100, say so.
func doubles(seed uint64, rank int) bool {
	message := binary.LittleEndian.AppendUint64([]byte(domainDouble), seed)
	hash := sha256.Sum256(binary.LittleEndian.AppendUint32(message, uint32(rank)))
	return binary.LittleEndian.Uint64(hash[:])%100 < DoublePercent
}

// Jury returns the members of a round in the order in which they are called to a jury.
func Jury(seed uint64, members int) []int {
	if members <= 0 {
		return nil
	}
	return inOrder(uint32(members), seed, saltJury)
}
