package auditor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// domainDice keeps the dice apart from everything else that a key's secrets are derived for.
const domainDice = "psyche/audit/dice/v1"

// newRounds are those to which half of the throws go.
const newRounds = 2

// dice decide which result a member audits. Nobody else can know it, before or after.
type dice struct{ secret []byte }

// newDice returns those of a member in a run. Secret is what nobody else knows of its key.
func newDice(secret []byte, run [32]byte) dice {
	mac := hmac.New(sha256.New, secret)
	mac.Write(append([]byte(domainDice), run[:]...))
	return dice{mac.Sum(nil)}
}

// Throw draws, in the round of a step, one of the results of the newest rounds, oldest first, that
// may be drawn: half of the throws go to the newest two.
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
	// Of a number of 64 bits the rest says as good as nothing of how many there are.
	return all[binary.LittleEndian.Uint64(drawn[8:])%uint64(len(all))], true
}

// resultID names a result.
type resultID struct {
	Trainer coordinator.ClientID
	Step    uint32
}

// Compare orders keys.
func (k resultID) Compare(other resultID) int {
	if k.Step != other.Step {
		return int(int64(k.Step) - int64(other.Step))
	}
	return slices.Compare(k.Trainer[:], other.Trainer[:])
}
