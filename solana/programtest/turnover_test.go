package programtest

import (
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// barredAtTheEnd ends a member's authorization while an epoch ends that is some rounds old: it is
// noted in which round the member left.
func barredAtTheEnd(r *pair) error {
	c := begun(r, 4, true)
	c.tick(30*second, coordinator.RoundTrain)
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown) // nobody witnessed
	c.change(func(s *coordinator.State) {
		s.Progress.Step += 3
		s.Epoch.Rounds[0].Step, s.Epoch.Rounds[0].Height = s.Progress.Step-1, 3
		showLife(s)
	})
	c.must(clientID(0), coordinator.Authorize{Grantee: clientID(3)})
	c.tick(20*second, coordinator.WaitingForMembers)
	if left := r.s.Departed; len(left) > 0 || len(r.s.Epoch.Exited) != 1 {
		c.fail("%d departed, exited: %+v", len(left), r.s.Epoch.Exited)
	}
	return c.err
}

// showLife makes members such as have said something in the epoch.
func showLife(s *coordinator.State) {
	for i := range s.Epoch.Clients {
		s.Epoch.Clients[i].Active = true
	}
}

// probationAbolished takes probation out of the rules while a member is on it.
func probationAbolished(r *pair) error {
	c := begun(r, 4, false)
	c.change(func(s *coordinator.State) {
		s.Config.ProbationSteps = 0
		for i := range s.Epoch.Clients {
			s.Epoch.Clients[i].ProbationUntil = s.Progress.Step + uint32(i%2)*10
		}
	})
	c.tick(30*second, coordinator.RoundTrain)
	if warming := r.s.Epoch.Rounds[0].Warming; warming != (coordinator.MemberSet{}) {
		c.fail("on probation: %v", warming)
	}
	return c.err
}

// crowdedOut ends an epoch whose members, and others that have their probation behind them, leave no
// newcomer a place among those that wait.
func crowdedOut(r *pair) error {
	const members, newcomers = 10, 6
	c := begun(r, members, false)
	c.tick(30*second, coordinator.RoundTrain)
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown)
	c.change(func(s *coordinator.State) {
		s.Config.ProbationSteps = 2
		for i := range s.Epoch.Clients {
			s.Epoch.Clients[i].ProbationUntil = 1
		}
		showLife(s)
		for i := range coordinator.MaxClients {
			waiting := coordinator.Client{ID: clientID(1000 + i), ProbationUntil: 1}
			if i < newcomers { // in front of all
				waiting.ProbationUntil = 0
			}
			s.Pending = append(s.Pending, waiting)
		}
	})
	c.tick(20*second, coordinator.WaitingForMembers)
	newcomer := func(client coordinator.Client) bool { return client.ProbationUntil == 0 }
	if len(r.s.Pending) != coordinator.MaxClients || slices.ContainsFunc(r.s.Pending, newcomer) {
		c.fail("%d wait, with newcomers: %t", len(r.s.Pending), slices.ContainsFunc(r.s.Pending, newcomer))
	}
	return c.err
}

// goneOnTrial lets an accused leave before it has opened: it does not come back into the epoch.
func goneOnTrial(r *pair) error {
	c := begun(r, 16, false)
	c.change(func(s *coordinator.State) { s.Config.VerificationPercent, s.Config.RoundsPerEpoch = 40, 100 })
	c.accusations()
	if c.err != nil {
		return c.err
	}
	accused := r.s.Epoch.Trials[0].Accused
	c.must(accused, coordinator.Withdraw{Client: accused})
	for range coordinator.OpenRounds {
		c.witness()
		c.tick(60*second, coordinator.RoundTrain)
	}
	if left := slices.IndexFunc(r.s.Epoch.Exited, func(e coordinator.Client) bool { return e.ID == accused }); left < 0 || r.s.Epoch.Exited[left].Returns != coordinator.MaxReturns {
		c.fail("exited: %+v", r.s.Epoch.Exited)
	}
	return c.err
}

// accusations goes through the first rounds, in the second of which members accuse others, until there
// are juries.
func (c *crowd) accusations() {
	for i := range c.r.s.Epoch.Clients {
		c.must(clientID(i), coordinator.Ready{Epoch: c.r.s.Progress.Epoch, Reveal: secret})
	}
	if c.tick(second, coordinator.RoundTrain); c.err != nil {
		return
	}
	c.witness()
	c.tick(5*second, coordinator.RoundTrain)
	c.judgeAll()
	c.try(1)
	c.witness()
	c.tick(5*second, coordinator.RoundTrain)
	if len(c.r.s.Epoch.Trials) < 2 {
		c.fail("%d trials", len(c.r.s.Epoch.Trials))
	}
}

// ejectedOnTrial ejects somebody by the authority's word while a jury has it on trial, which finds it
// guilty all the same; juries find another one guilty, who waits for an epoch after, near the last
// epoch that there can be.
func ejectedOnTrial(r *pair) error {
	c := begun(r, 16, false)
	c.change(func(s *coordinator.State) {
		s.Config.VerificationPercent, s.Config.EjectionEpochs = 40, 1<<16-1
		s.Config.TotalSteps, s.Progress.Epoch, s.Progress.Step, s.Epoch.StartStep = 1<<32-2, 1<<32-1000, 1<<32-999, 1<<32-999
	})
	if c.accusations(); c.err != nil {
		return c.err
	}
	for i, trial := range r.s.Clone().Epoch.Trials[:2] {
		if i == 0 {
			c.must(clientID(0), coordinator.Eject{Client: trial.Accused})
			c.change(func(s *coordinator.State) { s.Epoch.Trials[0].Opening = clientID(1) })
		} else {
			c.must(trial.Accused, coordinator.Open{Step: trial.Step, Blob: clientID(1)})
			c.must(trial.Accused, coordinator.Join{Epoch: r.s.Progress.Epoch}) // it leaves, and waits for the next epoch
		}
		for _, juror := range trial.Jury {
			if r.s.Trial(trial.Accused) != nil && isHealthy(&r.s, juror) {
				c.must(juror, coordinator.Vote{Step: trial.Step, Client: trial.Accused, Guilty: true})
			}
		}
	}
	if ejections := r.s.Authority.Ejections; len(ejections) != 2 || ejections[1].Until != 1<<32-1 {
		c.fail("ejected: %+v", ejections)
	}
	if len(r.s.Pending) != 0 {
		c.fail("wait for the next epoch: %+v", r.s.Pending)
	}
	return c.err
}
