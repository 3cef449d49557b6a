package programtest

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
)

// TestTrialsOfMany lets 256 members have all the trials that there can be, with hardly any, some, half
// and all but one of them verifiers, and wants the dearest of what follows not to be too dear: a
// round whose juries have to be drawn while others end, and whose verifiers were all idle; an
// accusation of a fellow verifier; a vote that ejects a client which is everywhere, when all lists
// are full.
func TestTrialsOfMany(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and more with the race detector, which has nothing to find in C")
	}
	for _, percent := range []uint8{1, 20, 50, 100} {
		d := newDeployed(loadProgram(t))
		c := trialCrowd(newPair(d), percent)
		begun := c.r.s.Clone()
		for _, trials := range []struct{ ending, unopened int }{{0, 0}, {4, 0}, {0, 7}, {3, 4}, {coordinator.MaxTrials, 0}} {
			u := units{}
			d.note = u.note
			c.change(func(s *coordinator.State) { *s = begun.Clone() })
			c.endOfTrials(trials.ending, trials.unopened)
			if c.err != nil {
				t.Fatal(c.err)
			}
			t.Logf("%d %% verifiers, %d trials end, in %d nobody opened", percent, trials.ending, trials.unopened)
			u.check(t)
		}
	}
	d, u := newDeployed(loadProgram(t)), units{}
	c := trialCrowd(newPair(d), 50)
	d.note = u.note
	c.accuseFellow()
	c.dearVote()
	if c.err != nil {
		t.Fatal(c.err)
	}
	u.check(t)
}

// check wants nothing to be too dear.
func (u units) check(t *testing.T) {
	t.Helper()
	for name, taken := range u {
		t.Logf("%8d units: %s", taken, name)
		if taken > unitLimit {
			t.Errorf("%s takes %d units, want at most %d", name, taken, unitLimit)
		}
	}
}

// trialCrowd is a run of 256 members in its eighth round.
func trialCrowd(r *pair, percent uint8) *crowd {
	c := &crowd{r: r, now: 100 * second}
	config := crowdConfig
	config.VerificationPercent, config.RoundsPerEpoch = percent, 20
	config.GlobalBatchSizeStart = uint32(max(1, coordinator.MaxClients-assign.VerifierCount(coordinator.MaxClients, int(percent))-1)) // so that batches are drawn
	if _, err := r.genesis(coordinator.Genesis{RunID: "jury", Host: clientID(100_000), Config: config, Model: crowdModel}); err != nil {
		c.fail("%w", err)
		return c
	}
	c.fill()
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	for i := range coordinator.MaxClients {
		c.must(clientID(i), coordinator.Ready{})
	}
	c.tick(second, coordinator.RoundTrain)
	for range 7 {
		c.witness()
		c.judgeAll()
		c.tick(5*second, coordinator.RoundTrain)
	}
	c.witness()
	return c
}

// witness has just a quorum of the witnesses prove all of a round.
func (c *crowd) witness() {
	r := c.r.s.CurrentRound()
	here := slices.DeleteFunc(r.ElectedWitnesses(c.r.s.Config), func(member int) bool { return !isHealthy(&c.r.s, r.Members[member]) })
	for _, member := range here[:r.WitnessesNeeded] {
		c.must(r.Members[member], c.proof(0))
	}
	c.tick(50*second, coordinator.RoundWitness)
}

// judgeAll says that all verifiers have judged, without their actions.
func (c *crowd) judgeAll() {
	c.change(func(s *coordinator.State) {
		for i := range s.Epoch.Rounds {
			judge(&s.Epoch.Rounds[i], s.Config)
		}
	})
}

func judge(r *coordinator.Round, config coordinator.Config) {
	if r.Height == 0 {
		return
	}
	for _, member := range assign.Verifiers(r.BatchSeed, len(r.Members), int(config.VerificationPercent)) {
		r.Sealed[member/8] |= 1 << (member % 8)
	}
	r.Judged = r.Sealed
}

// change loads a state that was changed, and still can be.
func (c *crowd) change(by func(*coordinator.State)) {
	s := c.r.s.Clone()
	by(&s)
	if err := s.Check(); err != nil {
		c.fail("%w", err)
		return
	}
	if err := c.r.load(s); err != nil {
		c.fail("%w", err)
	}
}

// endOfTrials ends some trials without a verdict, sees of some that the accused is there but did not
// open, and draws the juries of the others.
func (c *crowd) endOfTrials(ending, unopened int) {
	c.change(func(s *coordinator.State) {
		step := s.Progress.Step
		for i := range coordinator.MaxTrials {
			trial := coordinator.Trial{Accused: clientID(2 * i), Accuser: clientID(2*i + 1), Step: step, Since: step, Fault: coordinator.FaultResult}
			switch {
			case i < ending:
				trial.Step, trial.Since, trial.Opening = step-6, step-6, clientID(1)
			case i < ending+unopened:
				trial.Step, trial.Since = step-2, step-2
			}
			if trial.Since < step {
				for juror := range coordinator.MaxJury { // whom each search finds last
					trial.Jury = append(trial.Jury, clientID(coordinator.MaxClients-1-i-coordinator.MaxJury*(i%6)-juror))
				}
			}
			s.Epoch.Trials = append(s.Epoch.Trials, trial)
		}
		for i := range s.Epoch.Clients {
			if ending == coordinator.MaxTrials { // who is found late again is dropped, as long as there is room
				s.Epoch.Clients[i].Lateness = coordinator.Lateness(2 * (i % 2))
			}
		}
	})
	c.tick(5*second, coordinator.RoundTrain)
}

// accuseFellow finds two verifiers of one trainer, and lets one accuse the other.
func (c *crowd) accuseFellow() {
	c.judgeAll()
	c.tick(5*second, coordinator.RoundTrain)
	s := &c.r.s
	step := s.Progress.Step - 1
	for _, id := range s.RoundOfStep(step).Members {
		audit, ok := s.AuditOf(step, id)
		if !ok {
			continue
		}
		if fellows := s.Auditors(step, audit.Trainer); len(fellows) > 1 && fellows[0] == id {
			c.must(id, coordinator.Accuse{Step: step, Client: fellows[1], Fault: coordinator.FaultPrints})
			return
		}
	}
	c.fail("no trainer has two verifiers")
}

// dearVote ejects a client that left and waits again, when everybody else has left or waits as well.
func (c *crowd) dearVote() {
	c.change(func(s *coordinator.State) {
		g, step := newGenerator(1, 0), s.Progress.Step
		accused := s.Epoch.Clients[len(s.Epoch.Clients)-1]
		s.Epoch.Clients = s.Epoch.Clients[:len(s.Epoch.Clients)-1]
		for i := range coordinator.MaxClients - 1 {
			for list, state := range map[*[]coordinator.Client]coordinator.ClientState{&s.Epoch.Exited: coordinator.Withdrawn, &s.Pending: coordinator.Healthy, &s.Departed: coordinator.Withdrawn} {
				x := g.stranger(s, 1000*int(state)+i, state)
				x.ProbationUntil = 1
				*list = append(*list, x)
			}
			s.Authority.Ejections = append(s.Authority.Ejections, coordinator.Ejection{Client: clientID(900_000 + i), Until: s.Progress.Epoch + 1})
		}
		s.Departed = append(s.Departed, g.stranger(s, 5000, coordinator.Withdrawn))
		s.Authority.Ejections = append(s.Authority.Ejections, coordinator.Ejection{Client: clientID(900_256), Until: s.Progress.Epoch + 1})
		s.Pending = append(s.Pending, coordinator.Client{ID: accused.ID, ProbationUntil: 1})
		accused.State = coordinator.Withdrawn
		s.Epoch.Exited = append(s.Epoch.Exited, accused)
		trial := coordinator.Trial{Accused: accused.ID, Accuser: clientID(0), Step: step - 2, Since: step - 1, Fault: coordinator.FaultResult, Opening: clientID(1), Guilty: 1<<21 - 1}
		for i := range coordinator.MaxJury {
			trial.Jury = append(trial.Jury, s.Epoch.Clients[len(s.Epoch.Clients)-1-i].ID)
		}
		s.Epoch.Trials = []coordinator.Trial{trial}
	})
	trial := &c.r.s.Epoch.Trials[0]
	c.must(trial.Jury[21], coordinator.Vote{Step: trial.Step, Client: trial.Accused, Guilty: true})
	if len(c.r.s.Epoch.Trials) > 0 {
		c.fail("the jury does not decide")
	}
}
