package auditor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// domainDice is the key derivation domain of the private random source.
const domainDice = "psyche/audit/dice/v1"

// newRounds is the number of newest rounds that half of the draws consider.
const newRounds = 2

// dice is the private random source that decides which results a member audits. Other members
// cannot know its draws, before or after.
type dice struct{ secret []byte }

// newDice returns the random source of a member in a run. secret is derived from its private key.
func newDice(secret []byte, run [32]byte) dice {
	mac := hmac.New(sha256.New, secret)
	mac.Write(append([]byte(domainDice), run[:]...))
	return dice{mac.Sum(nil)}
}

// Throw draws, in the round of a step, one of the results for which may returns true. rounds are the
// newest rounds, oldest first. Half of the draws consider only the newest two rounds.
func (d dice) Throw(step uint32, rounds []appliedRound, may func(*heldResult) bool) (heldResult, bool) {
	mac := hmac.New(sha256.New, d.secret)
	mac.Write(binary.LittleEndian.AppendUint32(nil, step))
	drawn := mac.Sum(nil)
	if drawn[0]&1 == 1 {
		rounds = rounds[max(0, len(rounds)-newRounds):]
	}
	var all []heldResult
	for i := range rounds {
		for _, r := range rounds[i].Results {
			if may(&r) {
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		return heldResult{}, false
	}
	// A 64-bit number modulo the count is almost uniform.
	return all[binary.LittleEndian.Uint64(drawn[8:])%uint64(len(all))], true
}

// resultID identifies a result.
type resultID struct {
	Trainer coordinator.ClientID
	Step    uint32
}

// Compare orders results by step, and then by trainer.
func (k resultID) Compare(other resultID) int {
	if k.Step != other.Step {
		return int(int64(k.Step) - int64(other.Step))
	}
	return slices.Compare(k.Trainer[:], other.Trainer[:])
}
