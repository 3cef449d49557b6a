package check

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Limits of trials.
const (
	trialRounds    = 6
	trialTime      = 60_000 // milliseconds
	mostTrials     = 8
	mostTrialsOf   = 2
	mostJurors     = 96
	mostComplaints = 3
)

// count returns the numbers of guilty and innocent votes.
func (t *tried) count() (guilty, innocent int) {
	for _, says := range t.votes {
		if says {
			guilty++
		} else {
			innocent++
		}
	}
	return guilty, innocent
}

// running reports whether members take part in an epoch.
func running(s coordinator.RunState) bool {
	return s == coordinator.RoundTrain || s == coordinator.RoundWitness || s == coordinator.Cooldown
}

// of returns the trial of a result, or nil.
func (c *courts) of(accused coordinator.ClientID, step uint32) *tried {
	for _, t := range c.trials {
		if t.accused == accused && t.step == step {
			return t
		}
	}
	return nil
}

func (c *courts) end(ended *tried) {
	c.trials = slices.DeleteFunc(c.trials, func(t *tried) bool { return t == ended })
}

// complain ends a trial without a verdict. The complaint counts in the running epoch if its accuser
// returns to its seat, and in the accuser's next epoch if it is pending.
func (c *courts) complain(t *tried) {
	c.complaints[t.accuser]++
	if w, waits := c.waiting[t.accuser]; waits {
		w.complaints++
		c.waiting[t.accuser] = w
	}
	c.end(t)
}

// courtAction checks an accepted action of trials, and that only a deciding vote ejects a client.
func (c *Checker) courtAction(s *coordinator.State, from coordinator.ClientID, a coordinator.Action) {
	switch a := a.(type) {
	case coordinator.Join:
		c.rejoins(s, from)
	case coordinator.Accuse:
		c.accuses(s, from, a)
	case coordinator.Vote:
		c.votes(s, from, a)
	}
	c.ejections(s)
}

// accuses checks an accusation, and records it.
func (c *Checker) accuses(s *coordinator.State, from coordinator.ClientID, a coordinator.Accuse) {
	accuser, accused := c.NameOf(from), c.NameOf(a.Client)
	open, of, slots := 0, 0, uint8(0)
	for _, t := range c.courts.trials {
		if t.accuser == from || t.accused == a.Client && t.step == a.Step {
			open++
		}
		if t.accused == a.Client {
			of++
		}
		slots |= 1 << t.slot
	}
	slot := uint8(0)
	for slots>>slot&1 == 1 {
		slot++
	}
	member, ok := s.Member(from)
	fresh := s.Config.ProbationSteps > 0 && c.probation[from] > s.Progress.Step
	switch {
	case !running(s.RunState) || a.Step == 0 || a.Step >= s.Progress.Step:
		c.Violate(FairlyTried, "%s accuses %s of its result of step %d in %v of step %d", accuser, accused, a.Step, s.RunState, s.Progress.Step)
	case !ok || member.State != coordinator.Healthy || fresh || from == a.Client || c.courts.complaints[from] >= mostComplaints:
		c.Violate(FairlyTried, "%s may not accuse %s; the accuser is a member: %t, on probation: %t, with %d complaints", accuser, accused, ok, fresh, c.courts.complaints[from])
	case open > 0 || of >= mostTrialsOf || len(c.courts.trials) >= mostTrials || s.Progress.Epoch < c.courts.kept[a.Client]:
		c.Violate(FairlyTried, "%s accuses %s for step %d; the accused has %d open trials; one for this step, or by this accuser: %t; open trials in total: %d; accused is ejected: %t",
			accuser, accused, a.Step, of, open > 0, len(c.courts.trials), s.Progress.Epoch < c.courts.kept[a.Client])
	case c.honest(from) && c.honest(a.Client):
		c.Violate(HonestSafe, "%s accuses %s in step %d, fault %s of step %d", accuser, accused, s.Progress.Step, a.Fault, a.Step)
	}
	c.courts.trials = append(c.courts.trials, &tried{
		slot: slot, accused: a.Client, accuser: from, fault: a.Fault, step: a.Step, since: s.Progress.Step, sinceTime: s.StateStart,
		votes: make(map[coordinator.ClientID]bool),
	})
}

// votes checks a vote and its effect.
func (c *Checker) votes(s *coordinator.State, from coordinator.ClientID, a coordinator.Vote) {
	juror, accused := c.NameOf(from), c.NameOf(a.Client)
	t := c.courts.of(a.Client, a.Step)
	if t == nil || !slices.Contains(t.jury, from) {
		c.Violate(FairlyTried, "%s votes on %s in step %d, but is not on a jury for that trial", juror, accused, s.Progress.Step)
		return
	}
	if _, voted := t.votes[from]; voted {
		c.Violate(FairlyTried, "%s votes twice on %s", juror, accused)
	}
	if a.Guilty && c.honest(from) && c.honest(a.Client) {
		c.Violate(HonestSafe, "%s finds %s guilty, fault %s of step %d", juror, accused, t.fault, t.step)
	}
	t.votes[from] = a.Guilty
	until := s.Progress.Epoch + 1 + uint32(s.Config.EjectionEpochs)
	guilty, innocent := t.count()
	switch {
	case 20*guilty >= 11*len(t.jury):
		c.courts.end(t)
		c.sentence(t, t.accused, until)
	case 20*innocent < 11*len(t.jury):
	case t.fault == coordinator.FaultResult:
		c.courts.end(t)
		c.sentence(t, t.accuser, until)
	default:
		c.courts.complain(t)
	}
}

// sentence records the ejection of a client, and checks that it is justified.
func (c *Checker) sentence(t *tried, id coordinator.ClientID, until uint32) {
	if c.honest(id) {
		c.Violate(NobodyFramed, "%s is ejected: %s accused %s, fault %s of step %d", c.NameOf(id), c.NameOf(t.accuser), c.NameOf(t.accused), t.fault, t.step)
	}
	c.Convicted[t.fault]++
	if c.host.State().Progress.Epoch >= c.courts.kept[id] { // otherwise it is already out
		c.courts.kept[id] = until
	}
}

// ejections checks that exactly the ejected clients are excluded, for the right duration, and that
// the state's trials match the Checker's.
func (c *Checker) ejections(s *coordinator.State) {
	for _, e := range s.Authority.Ejections {
		if until, known := c.courts.kept[e.Client]; !known || until != e.Until {
			c.Violate(FairlyTried, "%s is ejected until epoch %d, but the votes require epoch %d", c.NameOf(e.Client), e.Until, until)
		}
	}
	for id, until := range c.courts.kept {
		member, ok := s.Member(id)
		if until <= s.Progress.Epoch {
			delete(c.courts.kept, id)
		} else if ok && member.State == coordinator.Healthy || s.IsPending(id) {
			c.Violate(FairlyTried, "%s is ejected until epoch %d, but takes part in epoch %d", c.NameOf(id), until, s.Progress.Epoch)
		}
	}
	same := len(s.Trials) == len(c.courts.trials)
	for i := range min(len(s.Trials), len(c.courts.trials)) {
		got, want := &s.Trials[i], c.courts.trials[i]
		guilty, innocent := want.count()
		same = same && *got == coordinator.Trial{
			Slot: want.slot, Accused: want.accused, Accuser: want.accuser, Step: want.step, Fault: want.fault,
			Since: want.since, SinceTime: want.sinceTime, Jurors: uint8(len(want.jury)), Guilty: uint8(guilty), Innocent: uint8(innocent),
		}
	}
	if !same {
		c.Violate(FairlyTried, "the state's %d trials in step %d do not match the %d expected trials", len(s.Trials), s.Progress.Step, len(c.courts.trials))
	}
	c.jurorsNoted(s)
	c.waitersNoted(s)
}

// rejoins resets the record of a pending client whose new Join gives up the model that it held. The
// client then starts to wait again, without complaints.
func (c *Checker) rejoins(s *coordinator.State, from coordinator.ClientID) {
	w, waited := c.courts.waiting[from]
	if i := slices.IndexFunc(s.Pending, func(m coordinator.Client) bool { return m.ID == from }); waited && w.holds && i >= 0 && !s.Pending[i].HoldsModel {
		c.courts.waiting[from] = waiter{}
	}
}

// waitersNoted checks the complaints of pending clients. A client that becomes pending has none,
// whether it joins or was a member until the end of the epoch.
func (c *Checker) waitersNoted(s *coordinator.State) {
	for i := range s.Pending {
		m := &s.Pending[i]
		want := c.courts.waiting[m.ID].complaints
		if int(m.Complaints) != want {
			c.Violate(FairlyTried, "%s is pending with %d complaints, want %d", c.NameOf(m.ID), m.Complaints, want)
		}
		c.courts.waiting[m.ID] = waiter{want, m.HoldsModel}
	}
	if len(c.courts.waiting) > len(s.Pending) {
		maps.DeleteFunc(c.courts.waiting, func(id coordinator.ClientID, _ waiter) bool { return !s.IsPending(id) })
	}
}

// jurorsNoted checks the votes and complaints of an epoch's members.
func (c *Checker) jurorsNoted(s *coordinator.State) {
	var of [mostTrials]*tried
	for _, t := range c.courts.trials {
		of[t.slot] = t
	}
	for i := range s.Epoch.Clients {
		m := &s.Epoch.Clients[i]
		if int(m.Complaints) != c.courts.complaints[m.ID] {
			c.Violate(FairlyTried, "%s has %d complaints, want %d", c.NameOf(m.ID), m.Complaints, c.courts.complaints[m.ID])
		}
		for slot := 0; m.Juror|m.Voted != 0 && slot < mostTrials; slot++ {
			is, voted := m.Juror>>slot&1 == 1, m.Voted>>slot&1 == 1
			t := of[slot]
			if !is && !voted {
				continue
			}
			if t == nil || !slices.Contains(t.jury, m.ID) {
				c.Violate(FairlyTried, "%s is a juror of trial slot %d, but was not drawn for it", c.NameOf(m.ID), slot)
				continue
			}
			if _, did := t.votes[m.ID]; did != voted {
				c.Violate(FairlyTried, "%s has voted on %s: %t, but the state contains %t", c.NameOf(m.ID), c.NameOf(t.accused), did, voted)
			}
		}
	}
}

// juriesDrawn computes the juries of accusations before a starting round.
func (c *Checker) juriesDrawn(round *coordinator.Round) {
	n := uint32(len(round.Members))
	for _, t := range slices.Clone(c.courts.trials) {
		if t.jury != nil {
			continue
		}
		order := make([]coordinator.ClientID, n)
		for i, id := range round.Members {
			order[assign.Position(uint32(i), n, round.Seed, "jury")] = id
		}
		order = slices.DeleteFunc(order, func(id coordinator.ClientID) bool { return id == t.accused || id == t.accuser })
		t.jury = order[:min(len(order), mostJurors)]
		if len(t.jury) < 2 {
			c.courts.complain(t)
		}
	}
}

// courtsTick adjusts the times of trials if the clock was set back.
func (c *Checker) courtsTick(now uint64) {
	for _, t := range c.courts.trials {
		t.sinceTime = min(t.sinceTime, now)
	}
}

// courtsOver ends the trials whose time is over at the end of a round.
func (c *Checker) courtsOver(config coordinator.Config, before stateMark, now uint64) {
	rounds := uint32(trialRounds)
	if percent := uint32(config.VerificationPercent); config.SharesBySpeed && percent > 0 {
		rounds = min(2000/percent, 80)
	}
	for _, t := range slices.Clone(c.courts.trials) {
		if before.step >= t.since+rounds && now >= t.sinceTime+trialTime {
			c.courts.complain(t)
		}
	}
}

// courtsBegin checks that the members of a starting epoch have exactly the complaints that they
// received while they were pending.
func (c *Checker) courtsBegin(s *coordinator.State) {
	clear(c.courts.complaints)
	for i := range s.Epoch.Clients {
		m := &s.Epoch.Clients[i]
		want := c.courts.waiting[m.ID].complaints
		if int(m.Complaints) != want {
			c.Violate(FairlyTried, "%s begins an epoch with %d complaints, want %d", c.NameOf(m.ID), m.Complaints, want)
		}
		c.courts.complaints[m.ID] = want
	}
}

// reveals checks a witness's reveal: the value that it had committed to, which is its new
// commitment.
func (c *Checker) reveals(s *coordinator.State, from coordinator.ClientID, a coordinator.WitnessRound) {
	if a.Reveal != ([32]byte{}) {
		if sha256.Sum256(a.Reveal[:]) != c.secrets.committed[from] {
			c.Violate(AuditsRight, "%s revealed %x in step %d, which does not match its commitment", c.NameOf(from), a.Reveal[:4], a.Step)
		}
		part := sha256.Sum256(slices.Concat([]byte("psyche/reveal/v1"), from[:], a.Reveal[:]))
		for i := range part {
			c.challenges.running[i] ^= part[i]
		}
		c.secrets.committed[from] = a.Reveal
	}
	if seed, over := s.AuditSeed(a.Step); over {
		c.Violate(AuditsRight, "the audit seed of step %d is known before the step is over: %x", a.Step, seed[:4])
	}
}

// challenged checks the audit seeds of an epoch's rounds at the end of a round.
func (c *Checker) challenged(s *coordinator.State, step uint32) {
	c.challenges.seeds[step] = sha256.Sum256(slices.Concat([]byte("psyche/audit/seed/v1"), s.SeedChain[:], c.challenges.running[:]))
	c.challenges.running = [32]byte{}
	for i := range s.Epoch.Rounds {
		of := s.Epoch.Rounds[i].Step
		seed, over := s.AuditSeed(of)
		if want := c.challenges.seeds[of]; over != (of < s.Progress.Step) || over && seed != want {
			c.Violate(AuditsRight, "after step %d the audit seed of step %d is %x, but the reveals result in %x", step, of, seed[:4], want[:4])
		}
	}
}

// blameless checks that the end of a round does not make any member late or drop it. Only findings
// of witnesses may do this, and only a new term makes a member less late.
func (c *Checker) blameless(s *coordinator.State, before stateMark) {
	newTerm := s.RunState == coordinator.RoundTrain && s.CurrentRound().Height%termRounds == 0
	for i := range before.members {
		m := &before.members[i]
		if m.State != coordinator.Healthy {
			continue
		}
		late := m.Lateness
		if late == coordinator.FoundLate {
			late = coordinator.Late
		}
		if newTerm {
			late = coordinator.OnTime
		}
		if now, stays := s.Member(m.ID); !stays || now.Lateness != late {
			c.Violate(NotFramed, "the end of a round changed the status of %s, which was healthy in step %d; still a member: %t", c.NameOf(m.ID), before.step, stays)
		}
	}
}
