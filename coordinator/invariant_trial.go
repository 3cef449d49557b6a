package coordinator

import (
	"math/bits"

	"github.com/psyche-go/psyche/assign"
)

// brokenAudits names what is wrong with a round's seals and verdicts.
func (r *Round) brokenAudits(c Config) string {
	sealed := 0
	for i := range r.Sealed {
		sealed += bits.OnesCount8(r.Sealed[i])
		if r.Judged[i]&^r.Sealed[i] != 0 {
			return "verdicts"
		}
	}
	if sealed == 0 {
		return ""
	}
	if r.Height == 0 || sealed > assign.VerifierCount(len(r.Members), int(c.VerificationPercent)) {
		return "sealed verdicts"
	}
	for member := len(r.Members); member < MaxClients; member++ {
		if r.Sealed.Has(member) {
			return "sealed verdicts"
		}
	}
	return ""
}

func (s *State) brokenTrials() string {
	trials := s.Epoch.Trials
	if len(trials) > MaxTrials || len(trials) > 0 && !s.active() {
		return "trials"
	}
	var parties []ClientID
	for i := range trials {
		t := &trials[i]
		parties = append(parties, t.Accused, t.Accuser)
		if t.Fault < FaultResult || t.Fault > FaultUnrevealed || t.broken(s) {
			return "trials"
		}
		if t.brokenJury(s.CurrentRound().Step) {
			return "jury"
		}
	}
	if repeats(parties) {
		return "trials"
	}
	return ""
}

// broken reports whether steps of the trial do not fit the run's, or it was not opened when it could
// have been.
func (t *Trial) broken(s *State) bool {
	newest := s.CurrentRound().Step
	return t.Since > newest || newest-t.Since > OpenRounds+VoteRounds ||
		t.Step > t.Since || t.Since-t.Step > AccuseRounds || t.Step <= s.Epoch.StartStep ||
		t.Opening != [32]byte{} && len(t.Jury) == 0
}

// brokenJury reports whether the jury is not one, or its votes cannot be, in the newest round.
func (t *Trial) brokenJury(newest uint32) bool {
	size := len(t.Jury)
	votes := t.Guilty | t.Innocent
	return size > MaxJury || (size < minJury) != (newest == t.Since) || size > 0 && newest == t.Since ||
		repeats(t.Jury) || t.IsJuror(t.Accused) || t.IsJuror(t.Accuser) ||
		t.Guilty&t.Innocent != 0 || bits.Len32(votes) > size ||
		size > 0 && (t.decides(t.Guilty) || t.decides(t.Innocent))
}
