package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/bloom"
)

// Audit is what a member that trains nothing in a round has to check: the result of the round
// before that Trainer sent.
type Audit struct {
	Step    uint32 // of the round in which the verifier trains nothing
	Trainer ClientID
	Sealed  bool
	Judged  bool
}

// Audits returns the audits that a member may still seal or judge: of the running round and of the
// one before.
func (s *State) Audits(id ClientID) []Audit {
	if s.RunState != RoundTrain && s.RunState != RoundWitness || !s.isHealthy(id) {
		return nil
	}
	var audits []Audit
	for step := s.Progress.Step - 1; step <= s.Progress.Step; step++ {
		if audit, ok := s.AuditOf(step, id); ok {
			audits = append(audits, audit)
		}
	}
	return audits
}

// AuditOf returns whom a member audits in the round of a step, as long as that round and the one
// before are stored. ok is false if it trains in it, or there is nothing to audit.
func (s *State) AuditOf(step uint32, id ClientID) (audit Audit, ok bool) {
	round, before := s.auditedRound(step)
	if round == nil {
		return Audit{}, false
	}
	member, ok := round.MemberIndex(id)
	if !ok {
		return Audit{}, false
	}
	target := auditTarget(round, before, s.Config, member)
	if target < 0 {
		return Audit{}, false
	}
	return Audit{Step: step, Trainer: before.Members[target], Sealed: round.Sealed.Has(member), Judged: round.Judged.Has(member)}, true
}

// Auditors returns who audits, in the round of a step, what a trainer sent in the round before.
func (s *State) Auditors(step uint32, trainer ClientID) []ClientID {
	round, before := s.auditedRound(step)
	if round == nil {
		return nil
	}
	var auditors []ClientID
	owners, verifiers := before.owners(s.Config), round.verifiers(s.Config)
	for rank, member := range verifiers {
		if target := drawTarget(round, before, owners, rank, len(verifiers), member); target >= 0 && before.Members[target] == trainer {
			auditors = append(auditors, round.Members[member])
		}
	}
	return auditors
}

// auditedRound returns the round of a step and the one before of its epoch, or nil.
func (s *State) auditedRound(step uint32) (round, before *Round) {
	round, before = s.RoundOfStep(step), s.RoundOfStep(step-1)
	if round == nil || before == nil {
		return nil, nil
	}
	return round, before
}

// verifiers returns the indices in r.Members of those that do not train, in the order of their ranks.
func (r *Round) verifiers(c Config) []int {
	return assign.Verifiers(r.BatchSeed, len(r.Members), int(c.VerificationPercent))
}

// auditTarget returns whom a member of a round audits, as an index in the members of the round
// before, or −1 for nobody. Nobody audits itself, but the next trainer.
func auditTarget(round, before *Round, c Config, member int) int {
	members, percent := len(round.Members), int(c.VerificationPercent)
	rank, ok := assign.Rank(round.BatchSeed, members, percent, member)
	if !ok {
		return -1
	}
	return drawTarget(round, before, before.owners(c), rank, assign.VerifierCount(members, percent), member)
}

// drawTarget is auditTarget for the verifier of a rank, where the owners of the batches are known.
func drawTarget(round, before *Round, owners []int, rank, verifiers, member int) int {
	target := assign.Target(round.Seed, rank, verifiers, len(owners))
	if target >= 0 && before.Members[owners[target]] == round.Members[member] {
		target = (target + 1) % len(owners)
	}
	if target < 0 || before.Members[owners[target]] == round.Members[member] {
		return -1
	}
	return owners[target]
}

// verifier returns the round of a step and the index in it of a member that has to audit then, as
// long as seals and verdicts of that round are taken.
func (s *State) verifier(step uint32, id ClientID) (round *Round, member int, err error) {
	if s.RunState != RoundTrain && s.RunState != RoundWitness {
		return nil, 0, ErrWrongState
	}
	round, before := s.auditedRound(step)
	if round == nil || s.Progress.Step-step > 1 {
		return nil, 0, ErrWrongStep
	}
	member, ok := round.MemberIndex(id)
	if !ok || !s.isHealthy(id) {
		return nil, 0, ErrNotMember
	}
	if !audits(round, before, s.Config, member) {
		return nil, 0, ErrNotElected
	}
	return round, member, nil
}

// audits reports whether a member of a round has somebody to audit. It is cheaper than auditTarget.
func audits(round, before *Round, c Config, member int) bool {
	if _, ok := assign.Rank(round.BatchSeed, len(round.Members), int(c.VerificationPercent), member); !ok {
		return false
	}
	return hasOtherOwner(round, before, c, member)
}

// hasOtherOwner reports whether somebody but a member of the next round had a batch.
func hasOtherOwner(round, before *Round, c Config, member int) bool {
	if assign.BatchCount(len(before.Members), int(c.VerificationPercent), before.BatchSize) != 1 {
		return true
	}
	return before.Members[before.owners(c)[0]] != round.Members[member]
}

// sealVerdict notes that a verifier committed to what it computed.
func (s *State) sealVerdict(from ClientID, a SealVerdict) error {
	round, member, err := s.verifier(a.Step, from)
	switch {
	case err != nil:
		return err
	case round.Sealed.Has(member):
		return ErrDuplicate
	}
	round.Sealed.add(member)
	return nil
}

// verdict notes that a verifier judged.
func (s *State) verdict(from ClientID, a Verdict) error {
	round, member, err := s.verifier(a.Step, from)
	switch {
	case err != nil:
		return err
	case round.Judged.Has(member):
		return ErrDuplicate
	case !round.Sealed.Has(member):
		return ErrInvalidAction
	}
	round.Judged.add(member)
	return nil
}

// findIdleVerifiers finds those late who had two rounds to judge what they drew in the round before
// the running one, and did not. Who was not there in both is found by nobody.
func (s *State) findIdleVerifiers() {
	round, before := s.auditedRound(s.Progress.Step - 1)
	if round == nil {
		return
	}
	verifiers := round.verifiers(s.Config)
	slices.Sort(verifiers)
	left, running := s.room(), newIDSet(s.CurrentRound().Members)
	for _, member := range verifiers {
		id := round.Members[member]
		if round.Judged.Has(member) || !running.has(id) || !hasOtherOwner(round, before, s.Config, member) {
			continue
		}
		s.findLate(id, &left)
	}
}

// findLate finds a member late, or drops it if it was late before, that did not do its duty. There
// is one finding of each round.
func (s *State) findLate(id ClientID, left *room) {
	client, ok := s.Member(id)
	if !ok || client.State != Healthy {
		return
	}
	after := client.afterFinding(*left, true)
	if after.state == Dropped {
		left.drop--
	}
	client.State, client.Lateness = after.state, after.lateness
}

// isMissing reports whether no quorum of a round's witnesses can hold the client's result: there is
// nothing to audit.
func (r *Round) isMissing(id ClientID) bool {
	keys := bloom.NewKeys(r.Seed)
	return !r.HasQuorum() || r.provedMissing(&keys, id)
}
