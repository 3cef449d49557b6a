package coordinator

import (
	"crypto/sha256"
	"slices"
)

// domainAuditSeed is the hash domain of audit seeds.
const domainAuditSeed = "psyche/audit/seed/v1"

// AuditSeed returns the seed that selects the audited parts of a step's results. The seed was
// unknown when trainers committed to the results. ok is false until the round of that step is over,
// and again after the state has dropped that round.
func (s *State) AuditSeed(step uint32) (seed [32]byte, ok bool) {
	round := s.RoundOfStep(step)
	if round == nil || step >= s.Progress.Step {
		return [32]byte{}, false
	}
	return round.Challenge, true
}

// sealChallenge computes the audit seed of the newest round, which is over, from the values that
// its witnesses revealed and the seed chain. The chain includes the draw of the next round if there
// is one.
func (s *State) sealChallenge() {
	if n := len(s.Epoch.Rounds); n > 0 {
		challenge := &s.Epoch.Rounds[n-1].Challenge
		*challenge = sha256.Sum256(slices.Concat([]byte(domainAuditSeed), s.SeedChain[:], challenge[:]))
	}
}
