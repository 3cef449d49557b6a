package sim

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
)

// Bounds of trials, in rounds, and how many there may be.
const (
	accuseWithin = 2
	openWithin   = 2
	voteWithin   = 6
	mostTrials   = 8
	mostJurors   = 32
)

// duty is a member's part as a verifier of a step.
type duty struct {
	step uint32
	id   coordinator.ClientID
}

// tried is what the checker knows of a trial.
type tried struct {
	accused, accuser coordinator.ClientID
	fault            coordinator.Fault
	step, since      uint32
	opened           bool
	jury             []coordinator.ClientID
	votes            map[coordinator.ClientID]bool
}

// complaint is what a member says once in an epoch, of whomever.
type complaint struct {
	by    coordinator.ClientID
	fault coordinator.Fault
}

// courts is the checker's own book of audits and trials.
type courts struct {
	sealed, judged map[duty]bool
	complained     map[complaint]bool // who said in this epoch that somebody was silent
	trials         []*tried
	kept           map[coordinator.ClientID]uint32 // until which epoch who was ejected is kept out
}

func newCourts() courts {
	return courts{
		sealed: make(map[duty]bool), judged: make(map[duty]bool), complained: make(map[complaint]bool),
		kept: make(map[coordinator.ClientID]uint32),
	}
}

func (c *courts) clone() courts {
	other := courts{sealed: maps.Clone(c.sealed), judged: maps.Clone(c.judged), complained: maps.Clone(c.complained), kept: maps.Clone(c.kept)}
	for _, t := range c.trials {
		tried := *t
		tried.jury, tried.votes = slices.Clone(t.jury), maps.Clone(t.votes)
		other.trials = append(other.trials, &tried)
	}
	return other
}

// courtsOf reads them from a state that is not checked against what was before.
func courtsOf(s *coordinator.State) courts {
	c := newCourts()
	for i := range s.Epoch.Rounds {
		round := &s.Epoch.Rounds[i]
		for member, id := range round.Members {
			c.sealed[duty{round.Step, id}] = round.Sealed.Has(member)
			c.judged[duty{round.Step, id}] = round.Judged.Has(member)
		}
	}
	for _, members := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range members {
			c.complained[complaint{members[i].ID, coordinator.FaultUnopened}] = members[i].Unopened
			c.complained[complaint{members[i].ID, coordinator.FaultUnrevealed}] = members[i].Unrevealed
		}
	}
	for i := range s.Epoch.Trials {
		t := &s.Epoch.Trials[i]
		known := &tried{t.Accused, t.Accuser, t.Fault, t.Step, t.Since, t.Opening != [32]byte{}, t.Jury, make(map[coordinator.ClientID]bool)}
		for j, id := range t.Jury {
			if t.HasVoted(id) {
				known.votes[id] = t.Guilty>>j&1 == 1
			}
		}
		c.trials = append(c.trials, known)
	}
	for _, e := range s.Authority.Ejections {
		c.kept[e.Client] = e.Until
	}
	return c
}

// of returns the trial of an accused, or nil.
func (c *courts) of(accused coordinator.ClientID) *tried {
	for _, t := range c.trials {
		if t.accused == accused {
			return t
		}
	}
	return nil
}

func (c *courts) end(ended *tried) {
	c.trials = slices.DeleteFunc(c.trials, func(t *tried) bool { return t == ended })
}

// mustAudit works out whom a member audits in the round of a step, from the shuffles alone.
func mustAudit(s *coordinator.State, step uint32, id coordinator.ClientID) (trainer coordinator.ClientID, ok bool) {
	round, before := s.RoundOfStep(step), s.RoundOfStep(step-1)
	if round == nil || before == nil {
		return trainer, false
	}
	member, n := slices.Index(round.Members, id), len(round.Members)
	idle := min(n*int(s.Config.VerificationPercent)/100, n-1)
	if member < 0 || idle < 1 {
		return trainer, false
	}
	rank := assign.Position(uint32(member), uint32(n), round.BatchSeed, "committee")
	if int(rank) >= idle {
		return trainer, false
	}
	owners := before.Assignments(s.Config)
	slices.SortFunc(owners, func(a, b assign.Assignment) int { return cmp.Compare(a.Member, b.Member) })
	message := binary.LittleEndian.AppendUint64([]byte("psyche/audit/v1/double"), round.Seed)
	hash := sha256.Sum256(binary.LittleEndian.AppendUint32(message, rank))
	if rank%2 == 1 && binary.LittleEndian.Uint64(hash[:])%100 < 25 {
		rank--
	}
	trainers := uint32(len(owners))
	for at := range trainers {
		if assign.Position(rank%trainers, trainers, round.Seed, "audit") != at {
			continue
		}
		if before.Members[owners[at].Member] == id {
			at = (at + 1) % trainers
		}
		trainer = before.Members[owners[at].Member]
	}
	return trainer, trainer != id
}

// courtAction checks an accepted action of audits and trials, and that nobody was ejected but by a
// vote that decides.
func (c *checker) courtAction(s *coordinator.State, from coordinator.ClientID, a coordinator.Action) {
	switch a := a.(type) {
	case coordinator.SealVerdict:
		c.onDuty(s, from, a.Step, !c.courts.sealed[duty{a.Step, from}])
		c.courts.sealed[duty{a.Step, from}] = true
	case coordinator.Verdict:
		c.onDuty(s, from, a.Step, c.courts.sealed[duty{a.Step, from}] && !c.courts.judged[duty{a.Step, from}])
		c.courts.judged[duty{a.Step, from}] = true
	case coordinator.Accuse:
		c.accuses(s, from, a)
	case coordinator.Open:
		t := c.courts.of(from)
		if t == nil || t.step != a.Step || t.opened || s.Progress.Step <= t.since || s.Progress.Step > t.since+openWithin {
			c.violate(FairlyTried, "%s opens in step %d for step %d", c.world.nameOf(from), s.Progress.Step, a.Step)
			return
		}
		t.opened = true
	case coordinator.Vote:
		c.votes(s, from, a)
	}
	c.ejections(s)
}

// onDuty checks that a seal or a verdict is of a verifier, in time, and not there yet.
func (c *checker) onDuty(s *coordinator.State, from coordinator.ClientID, step uint32, first bool) {
	_, audits := mustAudit(s, step, from)
	if !audits || !first || step > s.Progress.Step || s.Progress.Step-step > 1 || s.RunState == coordinator.Cooldown {
		c.violate(AuditsRight, "%s for step %d in step %d, audits: %t, first: %t", c.world.nameOf(from), step, s.Progress.Step, audits, first)
	}
}

// accuses checks an accusation, and notes it.
func (c *checker) accuses(s *coordinator.State, from coordinator.ClientID, a coordinator.Accuse) {
	busy := slices.ContainsFunc(c.courts.trials, func(t *tried) bool {
		return t.accused == from || t.accuser == from || t.accused == a.Client || t.accuser == a.Client
	})
	silence := a.Fault == coordinator.FaultUnopened || a.Fault == coordinator.FaultUnrevealed
	again := silence && c.courts.complained[complaint{from, a.Fault}]
	member, ok := s.Member(a.Client)
	switch {
	case !c.mayKnow(s, from, a) || !ok || member.State != coordinator.Healthy:
		c.violate(FairlyTried, "%s may not accuse %s for step %d: %s", c.world.nameOf(from), c.world.nameOf(a.Client), a.Step, a.Fault)
	case busy || again || len(c.courts.trials) >= mostTrials || s.Progress.Step-a.Step > accuseWithin:
		c.violate(FairlyTried, "%s accuses %s in step %d for step %d, in another trial: %t, again: %t, %d trials",
			c.world.nameOf(from), c.world.nameOf(a.Client), s.Progress.Step, a.Step, busy, again, len(c.courts.trials))
	}
	if silence {
		c.courts.complained[complaint{from, a.Fault}] = true
	}
	c.courts.trials = append(c.courts.trials, &tried{
		accused: a.Client, accuser: from, fault: a.Fault, step: a.Step, since: s.Progress.Step, votes: make(map[coordinator.ClientID]bool),
	})
}

// mayKnow reports whether somebody can know of a fault: of whom it audited, when it has judged; and of
// a verifier that has judged the same trainer, or the accuser itself.
func (c *checker) mayKnow(s *coordinator.State, from coordinator.ClientID, a coordinator.Accuse) bool {
	trainer, audits := mustAudit(s, a.Step, from)
	audits = audits && c.courts.judged[duty{a.Step, from}]
	if a.Fault == coordinator.FaultResult || a.Fault == coordinator.FaultUnopened {
		return audits && trainer == a.Client && mayCount(s, a.Step-1, trainer)
	}
	about, too := mustAudit(s, a.Step, a.Client)
	return too && c.courts.judged[duty{a.Step, a.Client}] && (about == from || audits && about == trainer) && mayCount(s, a.Step-1, about)
}

// mayCount reports whether a quorum of a round's witnesses may hold a member's result.
func mayCount(s *coordinator.State, step uint32, id coordinator.ClientID) bool {
	round := s.RoundOfStep(step)
	silent := electedOf(round, s.Config) - len(round.Witnesses)
	return heldBy(round, id)+silent >= quorumOf(electedOf(round, s.Config))
}

func heldBy(round *coordinator.Round, id coordinator.ClientID) int {
	held := 0
	for i := range round.Witnesses {
		if round.Witnesses[i].Participants.Contains(round.Seed, id[:]) {
			held++
		}
	}
	return held
}

// votes checks a vote, and what it decides.
func (c *checker) votes(s *coordinator.State, from coordinator.ClientID, a coordinator.Vote) {
	t := c.courts.of(a.Client)
	if t == nil || t.step != a.Step || !slices.Contains(t.jury, from) || s.Progress.Step > t.since+voteWithin ||
		!t.opened && s.Progress.Step <= t.since+openWithin {
		c.violate(FairlyTried, "%s votes on %s in step %d", c.world.nameOf(from), c.world.nameOf(a.Client), s.Progress.Step)
		return
	}
	if _, voted := t.votes[from]; voted {
		c.violate(FairlyTried, "%s votes twice on %s", c.world.nameOf(from), c.world.nameOf(a.Client))
	}
	t.votes[from] = a.Guilty
	guilty, innocent := 0, 0
	for _, says := range t.votes {
		if says {
			guilty++
		} else {
			innocent++
		}
	}
	until := s.Progress.Epoch + 1 + uint32(s.Config.EjectionEpochs)
	switch quorum := quorumOf(len(t.jury)); {
	case guilty >= quorum:
		c.sentence(t, t.accused, until)
	case innocent >= quorum && t.opened && t.fault != coordinator.FaultUnopened && t.fault != coordinator.FaultUnrevealed:
		c.sentence(t, t.accuser, until)
	case innocent < quorum:
		return
	}
	c.courts.end(t)
}

// sentence notes that a client is ejected, and checks that it deserves it.
func (c *checker) sentence(t *tried, id coordinator.ClientID, until uint32) {
	if c.world.machineOf(id).honest() {
		c.violate(NobodyFramed, "%s is ejected, accused by %s of %s, opened: %t", c.world.nameOf(id), c.world.nameOf(t.accuser), t.fault, t.opened)
	}
	c.courts.kept[id] = max(until, c.courts.kept[id])
}

// ejections checks that those are kept out, and as long, that a vote ejected, and that the trials are
// those that the checker knows.
func (c *checker) ejections(s *coordinator.State) {
	for _, e := range s.Authority.Ejections {
		if until, known := c.courts.kept[e.Client]; !known || until != e.Until {
			c.violate(FairlyTried, "%s is kept out until epoch %d, by the votes until %d", c.world.nameOf(e.Client), e.Until, until)
		}
	}
	for id, until := range c.courts.kept {
		member, ok := s.Member(id)
		if until <= s.Progress.Epoch {
			delete(c.courts.kept, id)
		} else if ok && member.State == coordinator.Healthy || s.IsPending(id) {
			c.violate(FairlyTried, "%s was ejected until epoch %d and takes part in %d", c.world.nameOf(id), until, s.Progress.Epoch)
		}
	}
	same := len(s.Epoch.Trials) == len(c.courts.trials)
	for i := range min(len(s.Epoch.Trials), len(c.courts.trials)) {
		got, want := &s.Epoch.Trials[i], c.courts.trials[i]
		same = same && got.Accused == want.accused && got.Accuser == want.accuser && got.Fault == want.fault && got.Step == want.step &&
			got.Since == want.since && (got.Opening != [32]byte{}) == want.opened && slices.Equal(got.Jury, want.jury)
	}
	if !same {
		c.violate(FairlyTried, "there are %d trials in step %d, or others than %d", len(s.Epoch.Trials), s.Progress.Step, len(c.courts.trials))
	}
}

// juriesDrawn works out who judges whom was accused in the round before one that begins.
func (c *checker) juriesDrawn(round *coordinator.Round) {
	n := uint32(len(round.Members))
	for _, t := range slices.Clone(c.courts.trials) {
		if len(t.jury) > 0 {
			continue
		}
		order := make([]coordinator.ClientID, n)
		for i, id := range round.Members {
			order[assign.Position(uint32(i), n, round.Seed, "jury")] = id
		}
		order = slices.DeleteFunc(order, func(id coordinator.ClientID) bool { return id == t.accused || id == t.accuser })
		t.jury = order[:min(len(order), mostJurors)]
		if len(t.jury) < 2 {
			c.courts.end(t)
		}
	}
}
