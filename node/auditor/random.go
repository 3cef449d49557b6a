package auditor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// domainPrivateRandom is the key derivation domain of the private random source.
const domainPrivateRandom = "psyche/audit/dice/v1"

// newRounds is the number of newest rounds that half of the draws consider.
const newRounds = 2

// privateRandom is the private random source that decides which results a member audits. Other
// members cannot know its draws, before or after.
type privateRandom struct{ secret []byte }

// newPrivateRandom returns the random source of a member in a run. secret is derived from its
// private key.
func newPrivateRandom(secret []byte, run [32]byte) privateRandom {
	mac := hmac.New(sha256.New, secret)
	mac.Write(append([]byte(domainPrivateRandom), run[:]...))
	return privateRandom{mac.Sum(nil)}
}

// choose draws, in the round of a step, one of the eligible results, each with a probability in proportion to its vote,
// which is its effect on the model. rounds are the newest rounds, oldest first. Half of the draws consider only the newest
// two rounds.
func (p privateRandom) choose(step uint32, rounds []appliedRound, eligible func(*attestedResult) bool) (attestedResult, bool) {
	mac := hmac.New(sha256.New, p.secret)
	mac.Write(binary.LittleEndian.AppendUint32(nil, step))
	drawn := mac.Sum(nil)
	if drawn[0]&1 == 1 {
		rounds = rounds[max(0, len(rounds)-newRounds):]
	}
	var all []attestedResult
	votes := uint64(0)
	for i := range rounds {
		for _, r := range rounds[i].Results {
			if eligible(&r) {
				all = append(all, r)
				votes += uint64(r.Vote)
			}
		}
	}
	if votes == 0 {
		return attestedResult{}, false
	}
	at := binary.LittleEndian.Uint64(drawn[8:]) % votes // a 64-bit number modulo a small number is almost uniform
	i := 0
	for ; at >= uint64(all[i].Vote); i++ {
		at -= uint64(all[i].Vote)
	}
	return all[i], true
}

// resultID identifies a result.
type resultID struct {
	Trainer coordinator.ClientID
	Step    uint32
}

// compare orders results by step, and then by trainer.
func (k resultID) compare(other resultID) int {
	if k.Step != other.Step {
		return int(int64(k.Step) - int64(other.Step))
	}
	return slices.Compare(k.Trainer[:], other.Trainer[:])
}
