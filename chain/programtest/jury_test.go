package programtest

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestTrialsOfMany gives 256 members the maximum number of trials. About 1, 20, 50 and 100 % of the
// members do not train. The test checks the cost of the most expensive instructions: a tick that
// ends a round, ends trials and draws juries while all lists are full; an accusation; and a vote
// that ejects a client that is in every list. The most expensive tick has 256 members, 20 % of them
// not training, all other lists of clients full, as many silent witnesses as a quorum allows, seven
// trials that end undecided, and one whose jury is drawn.
func TestTrialsOfMany(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and more with the race detector, which has nothing to find in C")
	}
	for _, percent := range []uint8{1, 20, 50, 100} {
		d := newDeployed(loadProgram(t))
		c := trialCrowd(newPair(d), percent)
		begun := c.r.s.Clone()
		for _, ending := range []int{0, 1, 4, coordinator.MaxTrials - 1, coordinator.MaxTrials} {
			u := units{}
			d.note = u.note
			c.change(func(s *coordinator.State) { *s = begun.Clone() })
			c.endOfTrials(ending)
			if c.err != nil {
				t.Fatal(c.err)
			}
			t.Logf("%d %% do not train, %d trials end, %d juries are drawn", percent, ending, coordinator.MaxTrials-ending)
			u.check(t)
		}
	}
	d, u := newDeployed(loadProgram(t)), units{}
	c := trialCrowd(newPair(d), 50)
	d.note = u.note
	c.dearVote()
	c.dearAccusation()
	if c.err != nil {
		t.Fatal(c.err)
	}
	u.check(t)
}

// check checks that no instruction exceeds unitLimit.
func (u units) check(t *testing.T) {
	t.Helper()
	for name, taken := range u {
		t.Logf("%8d units: %s", taken, name)
		if taken > unitLimit {
			t.Errorf("%s takes %d units, want at most %d", name, taken, unitLimit)
		}
	}
}

// trialCrowd returns a run of 256 members in its eighth round.
func trialCrowd(r *pair, percent uint8) *crowd {
	c := &crowd{r: r, now: 100 * second}
	config := crowdConfig
	config.VerificationPercent, config.RoundsPerEpoch = percent, 20
	config.GlobalBatchSizeStart = uint32(max(1, coordinator.MaxClients-coordinator.MaxClients*int(percent)/100-1)) // so that batches are drawn
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
		c.tick(5*second, coordinator.RoundTrain)
	}
	c.witness()
	return c
}

// witness makes a minimal quorum of the witnesses prove all results of a round.
func (c *crowd) witness() { c.witnessAfter(50 * second) }

func (c *crowd) witnessAfter(passed uint64) {
	if c.err != nil {
		return
	}
	r := c.r.s.CurrentRound()
	here := slices.DeleteFunc(r.ElectedWitnesses(c.r.s.Config), func(member int) bool { return !isHealthy(&c.r.s, r.Members[member]) })
	for _, member := range here[:r.WitnessesNeeded] {
		c.must(r.Members[member], c.proof(0))
	}
	c.tick(passed, coordinator.RoundWitness)
}

// change loads a modified state, which must be valid.
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

// crowdOut fills the lists of exited and of pending clients, and of ejections.
func crowdOut(s *coordinator.State) {
	g := newGenerator(1, 0)
	for l, list := range []*[]coordinator.Client{&s.Epoch.Exited, &s.Pending, &s.Departed} {
		for i := range coordinator.MaxClients {
			x := g.stranger(s, 1000*l+i, []coordinator.ClientState{coordinator.Withdrawn, coordinator.Healthy, coordinator.Withdrawn}[l])
			x.ProbationUntil = 1
			*list = append(*list, x)
		}
	}
	for i := range coordinator.MaxEjections {
		s.Authority.Ejections = append(s.Authority.Ejections, coordinator.Ejection{Client: clientID(900_000 + i), Until: s.Progress.Epoch + 1})
	}
}

// openTrials opens the maximum number of trials. Each search finds the accused and the accusers
// last. The first trials end with the running round, the others wait for their jury.
func openTrials(s *coordinator.State, over int) {
	step := s.Progress.Step
	for i := range coordinator.MaxTrials {
		trial := coordinator.Trial{
			Slot: uint8(i), Accused: clientID(coordinator.MaxClients - 1 - 2*i), Accuser: clientID(coordinator.MaxClients - 2 - 2*i),
			Step: 1, Since: step, SinceTime: s.StateStart - 60*second, Fault: coordinator.FaultResult,
		}
		if i < over {
			trial.Since, trial.Jurors = step-6, coordinator.MaxJury
		}
		s.Trials = append(s.Trials, trial)
	}
}

// endOfTrials ends some trials undecided and draws the juries of the others.
func (c *crowd) endOfTrials(ending int) {
	c.change(func(s *coordinator.State) {
		crowdOut(s)
		openTrials(s, ending)
	})
	c.tick(60*second, coordinator.RoundTrain)
}

// dearVote ejects a client that left and waits again, while all other clients have left or wait as
// well.
func (c *crowd) dearVote() {
	var accused coordinator.Client
	c.change(func(s *coordinator.State) {
		crowdOut(s)
		last := len(s.Epoch.Clients) - 1
		accused = s.Epoch.Clients[last]
		s.Epoch.Clients = s.Epoch.Clients[:last]
		s.Pending[coordinator.MaxClients-1] = coordinator.Client{ID: accused.ID, ProbationUntil: 1}
		accused.State = coordinator.Withdrawn
		s.Epoch.Exited[coordinator.MaxClients-1] = accused
		openTrials(s, 1)
		trial := &s.Trials[0]
		trial.Accused, trial.Guilty = accused.ID, 52
		for i := range coordinator.MaxJury {
			juror := &s.Epoch.Clients[last-1-i]
			juror.Juror = 1
			if i >= coordinator.MaxJury-52 {
				juror.Voted = 1
			}
		}
	})
	juror := c.r.s.Epoch.Clients[len(c.r.s.Epoch.Clients)-1].ID
	c.must(juror, coordinator.Vote{Step: 1, Client: accused.ID, Guilty: true})
	if c.r.s.Trial(accused.ID, 1) != nil {
		c.fail("the jury does not decide")
	}
}

// dearAccusation accuses a departed client, when there is room for one more trial.
func (c *crowd) dearAccusation() {
	c.must(clientID(0), coordinator.Accuse{Step: 7, Client: c.r.s.Departed[len(c.r.s.Departed)-2].ID, Fault: coordinator.FaultSilent})
}
