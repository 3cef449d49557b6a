package programtest

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// barredAtTheEnd ends a member's authorization at the end of an epoch with several rounds. The
// round in which the member left must be recorded.
func barredAtTheEnd(r *pair) error {
	c := begun(r, 4, true)
	c.tick(30*second, coordinator.RoundTrain)
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown) // no witness sent a proof
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

// showLife marks members as active in the epoch.
func showLife(s *coordinator.State) {
	for i := range s.Epoch.Clients {
		s.Epoch.Clients[i].Active = true
	}
}

// probationAbolished removes probation from the rules while a member is on it.
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

// crowdedOut ends an epoch whose members, together with pending clients whose probation is over,
// leave no room for a pending newcomer.
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
			if i < newcomers { // before all others
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

// outlivedTrial has two clients accused in the last round of an epoch. Juries are drawn in the next
// epoch, whose members vote, and so do clients that wait for the epoch after it. An authority
// ejects one of the accused before its jury finds it guilty anyway. The other accused is pending
// then, near the largest epoch number.
func outlivedTrial(r *pair) error {
	c := begun(r, 22, false)
	c.change(func(s *coordinator.State) {
		s.Config.RoundsPerEpoch, s.Config.EjectionEpochs = 2, 1<<16-1
		s.Config.TotalSteps, s.Progress.Epoch, s.Progress.Step, s.Epoch.StartStep = 1<<32-2, 1<<32-1000, 1<<32-999, 1<<32-999
	})
	c.rounds(2)
	step := r.s.Progress.Step - 1
	for i := range 2 {
		c.must(clientID(10+i), coordinator.Accuse{Step: step, Client: clientID(i), Fault: coordinator.Fault(1 + i)})
	}
	c.want(coordinator.ErrNotElected, clientID(5), coordinator.Vote{Step: step, Client: clientID(1)})
	c.tick(60*second, coordinator.WaitingForMembers)
	c.tick(60*second, coordinator.WaitingForMembers)
	c.tick(60*second, coordinator.Warmup)
	c.rounds(2)
	if c.err != nil || len(r.s.Trials) != 2 || r.s.Trials[0].Jurors != 20 {
		c.fail("trials: %+v", r.s.Trials)
		return c.err
	}
	c.must(clientID(0), coordinator.Eject{Client: clientID(0)})
	jurors := jurorsOf(&r.s, 0)
	for _, juror := range jurors[:10] {
		c.must(juror, coordinator.Vote{Step: step, Client: clientID(0), Guilty: true})
		c.want(coordinator.ErrDuplicate, juror, coordinator.Vote{Step: step, Client: clientID(0), Guilty: true})
	}
	c.tick(60*second, coordinator.WaitingForMembers)
	for trial, votes := range []int{10, 0} { // eleven twentieths
		for _, juror := range jurorsOf(&r.s, uint8(trial)) {
			if votes < 11 && (trial > 0 || !slices.Contains(jurors[:10], juror)) {
				c.must(juror, coordinator.Vote{Step: step, Client: clientID(trial), Guilty: true})
				votes++
			}
		}
	}
	if ejections := r.s.Authority.Ejections; len(r.s.Trials) > 0 || len(ejections) != 2 || ejections[1].Until != 1<<32-1 {
		c.fail("trials %+v, ejected: %+v", r.s.Trials, ejections)
	}
	if r.s.IsPending(clientID(1)) || len(jurorsOf(&r.s, 0)) > 0 || len(jurorsOf(&r.s, 1)) > 0 {
		c.fail("waits, or votes still: %s", r.s.String())
	}
	return c.err
}

// rounds plays a Warmup and the given number of rounds up to the end of their epoch.
func (c *crowd) rounds(count int) {
	s := &c.r.s
	for i := range s.Epoch.Clients {
		id := s.Epoch.Clients[i].ID
		c.must(id, readyOf(s, id, linkAt(2)))
	}
	c.tick(second, coordinator.RoundTrain)
	for i := 1; i < count && c.err == nil; i++ {
		c.witness()
		c.tick(5*second, coordinator.RoundTrain)
	}
	if c.err == nil {
		c.witness()
		c.tick(5*second, coordinator.Cooldown)
	}
	for i := range s.Epoch.Clients {
		c.must(s.Epoch.Clients[i].ID, coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: clientID(int(s.Progress.Step))})
	}
}

// endlessComplaints has a member accuse others without success until it may not accuse any more,
// and tries too many trials of one client, of one result, and by one accuser.
func endlessComplaints(r *pair) error {
	c := begun(r, 14, false)
	c.change(func(s *coordinator.State) { s.Config.RoundsPerEpoch = 100 })
	for i := range 14 {
		c.must(clientID(i), readyOf(&r.s, clientID(i), linkAt(2)))
	}
	c.tick(second, coordinator.RoundTrain)
	c.want(coordinator.ErrInvalidAction, clientID(1), coordinator.Accuse{Step: 0, Client: clientID(0), Fault: 1})
	c.want(coordinator.ErrWrongStep, clientID(1), coordinator.Accuse{Step: 1, Client: clientID(0), Fault: 1})
	for range 3 {
		c.witness()
		c.tick(5*second, coordinator.RoundTrain)
	}
	accuse := func(of int, step uint32) coordinator.Accuse {
		return coordinator.Accuse{Step: step, Client: clientID(of), Fault: coordinator.FaultSilent}
	}
	for complaint := range coordinator.MaxComplaints {
		c.must(clientID(0), accuse(1+complaint, 1))
		c.want(coordinator.ErrDuplicate, clientID(0), accuse(6, 1))
		for range coordinator.TrialRounds {
			c.witnessAfter(3 * second)
			c.tick(5*second, coordinator.RoundTrain)
		}
		c.witnessAfter(7*second - uint64(complaint%2))
		c.tick(5*second, coordinator.RoundTrain) // a minute after the accusation, or a millisecond less
		if want := complaint % 2; len(r.s.Trials) != want {
			c.fail("%d trials, want %d", len(r.s.Trials), want)
		}
		if complaint%2 == 1 {
			c.witness()
			c.tick(5*second, coordinator.RoundTrain)
		}
	}
	c.want(coordinator.ErrNotElected, clientID(0), accuse(6, 1))
	c.must(clientID(1), accuse(13, 1))
	c.want(coordinator.ErrDuplicate, clientID(2), accuse(13, 1))
	c.must(clientID(2), accuse(13, 2))
	c.want(coordinator.ErrDuplicate, clientID(3), accuse(13, 3))
	for i := 3; i < 9; i++ {
		c.must(clientID(i), accuse(i+1, 1))
	}
	c.want(coordinator.ErrFull, clientID(9), accuse(1, 1))
	c.tick(second, coordinator.RoundTrain)
	return c.err
}

// longTrial has an undecided trial of the greatest length, in a run with shares by speed.
func longTrial(r *pair) error {
	c := begun(r, 5, false)
	c.change(func(s *coordinator.State) {
		s.Config.RoundsPerEpoch, s.Config.SharesBySpeed, s.Config.VerificationPercent = 200, true, 24
	})
	for i := range 5 {
		c.must(clientID(i), readyOf(&r.s, clientID(i), linkAt(2)))
	}
	c.tick(second, coordinator.RoundTrain)
	c.witness()
	c.tick(5*second, coordinator.RoundTrain)
	c.must(clientID(0), coordinator.Accuse{Step: 1, Client: clientID(1), Fault: coordinator.FaultSilent})
	for range r.s.Config.TrialRounds() {
		c.witnessAfter(3 * second)
		c.tick(5*second, coordinator.RoundTrain)
	}
	if len(r.s.Trials) != 1 {
		c.fail("%d trials, want 1", len(r.s.Trials))
	}
	c.witness()
	c.tick(5*second, coordinator.RoundTrain)
	if len(r.s.Trials) != 0 {
		c.fail("%d trials, want none", len(r.s.Trials))
	}
	return c.err
}

// returnedOften has members that returned once or more, with and without audits, and are dropped
// while they are on probation. They continue like a member that never returned.
func returnedOften(r *pair) error {
	for percent := range uint8(2) {
		c := begun(r, 8, false)
		c.change(func(s *coordinator.State) {
			s.Config.ProbationSteps, s.Config.RoundsPerEpoch, s.Config.VerificationPercent = 9, 100, 20*percent
			for i := range s.Epoch.Clients {
				s.Epoch.Clients[i].ProbationUntil = 1
			}
		})
		c.tick(30*second, coordinator.RoundTrain)
		for i := range 3 {
			for range i + 1 {
				c.must(clientID(i), coordinator.Withdraw{Client: clientID(i)})
				c.witness()
				c.tick(5*second, coordinator.RoundTrain)
				c.must(clientID(i), coordinator.Return{Epoch: r.s.Progress.Epoch})
			}
		}
		c.change(func(s *coordinator.State) {
			for i := range s.Epoch.Clients {
				client := &s.Epoch.Clients[i]
				client.State, client.ProbationUntil = coordinator.Dropped, max(client.ProbationUntil, s.Epoch.StartStep+9)
			}
		})
		for i := range 4 {
			c.must(clientID(i), coordinator.Join{Epoch: r.s.Progress.Epoch})
			waiting := r.s.Pending[len(r.s.Pending)-1]
			if waiting.ProbationUntil != r.s.Epoch.StartStep+9 {
				c.fail("with %d %% of audits one that returned %d times and was dropped waits as %+v", 20*percent, (i+1)%4, waiting)
			}
		}
		if c.err != nil {
			return c.err
		}
	}
	return nil
}
