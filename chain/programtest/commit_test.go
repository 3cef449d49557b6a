package programtest

import (
	"errors"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// counted plays a round that counts: all its witnesses hold all results.
func (c *crowd) counted(next coordinator.RunState) {
	round := c.r.s.CurrentRound()
	proof := c.proof(0)
	for _, member := range round.ElectedWitnesses(c.r.s.Config) {
		if isHealthy(&c.r.s, round.Members[member]) {
			c.must(round.Members[member], proof)
		}
	}
	c.tick(second, coordinator.RoundWitness)
	c.tick(5*second, next)
}

// uncounted plays a round without proofs, which ends the epoch.
func (c *crowd) uncounted() {
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown)
}

// report makes clients report a model that contains every step up to the given one.
func (c *crowd) report(step uint32, digest coordinator.ClientID, clients ...int) {
	for _, i := range clients {
		c.must(clientID(i), coordinator.ReportCheckpoint{Step: step + 1, Digest: digest})
	}
}

// intermediateCheckpoints has two intermediate checkpoints in an epoch whose last model is not
// reported. The run continues from the second and forgets the first. A client that returned later
// does not hold the second.
func intermediateCheckpoints(r *pair) error {
	c := begun(r, 5, false)
	for i := range 4 {
		c.must(clientID(i), coordinator.Ready{Reveal: secret})
	}
	c.tick(30*second, coordinator.RoundTrain)
	c.want(coordinator.ErrWrongStep, clientID(0), coordinator.ReportCheckpoint{Step: 1, Digest: clientID(101)})
	c.want(coordinator.ErrWrongStep, clientID(0), coordinator.ReportCheckpoint{Step: 2, Digest: clientID(101)})
	c.counted(coordinator.RoundTrain)
	c.report(1, clientID(101), 0, 1, 2, 3, 4)
	c.want(coordinator.ErrDuplicate, clientID(4), coordinator.ReportCheckpoint{Step: 2, Digest: clientID(101)})
	c.counted(coordinator.RoundTrain)
	c.report(2, clientID(99), 4)
	c.report(2, clientID(102), 0, 1, 2)
	if c.r.s.Epoch.Commit.Step != 1 {
		c.fail("three of five are enough: %s", c.r.s.String())
	}
	c.report(2, clientID(102), 3)
	if c.r.s.Epoch.Commit.Step != 2 {
		c.fail("four of five are not enough: %s", c.r.s.String())
	}
	c.must(clientID(3), coordinator.Withdraw{Client: clientID(3)})
	c.counted(coordinator.RoundTrain)
	c.must(clientID(3), coordinator.Return{})
	c.counted(coordinator.RoundTrain)
	c.uncounted()
	c.want(coordinator.ErrWrongStep, clientID(0), coordinator.ReportCheckpoint{Step: 5, Digest: clientID(104)})
	c.tick(20*second, coordinator.WaitingForMembers)
	s := &c.r.s
	if s.Model.Checkpoint.Step != 2 || s.Model.Checkpoint.Digest != clientID(102) || len(s.Earlier) != 0 {
		c.fail("the run goes on from %s", s.String())
	}
	for _, client := range s.Pending {
		if client.HoldsModel != slices.Contains([]coordinator.ClientID{clientID(0), clientID(1), clientID(2)}, client.ID) || client.OptimizerSince != 0 {
			c.fail("of the intermediate checkpoint: %s", s.String())
		}
	}
	return c.err
}

// holdsTheFirst has a member that reports only the first of two intermediate checkpoints. The run
// then forgets the first one and that the member holds it. It does not forget that the member holds
// the checkpoint before.
func holdsTheFirst(r *pair) error {
	c := begun(r, 4, false)
	for i := range 4 {
		c.must(clientID(i), coordinator.Ready{Reveal: secret})
	}
	c.tick(30*second, coordinator.RoundTrain)
	c.counted(coordinator.RoundTrain)
	s := c.r.s.Clone()
	checkpoint := &s.Model.Checkpoint
	checkpoint.Kind, checkpoint.Origin, checkpoint.Digest = coordinator.CheckpointP2P, checkpoint.Kind, clientID(100)
	s.Epoch.StartStep, s.Progress.Step, s.Epoch.Rounds[0].Step, s.Epoch.Rounds[1].Step = 7, 8, 7, 8
	checkpoint.Step = 6
	if err := c.r.load(s); err != nil {
		return err
	}
	c.must(clientID(9), coordinator.Join{Holds: clientID(100)})
	c.report(7, clientID(107), 0, 1, 2, 3)
	c.counted(coordinator.RoundTrain)
	c.report(8, clientID(108), 0, 1, 2)
	c.counted(coordinator.RoundTrain)
	c.uncounted()
	c.report(10, clientID(110), 0, 1, 2)
	c.tick(20*second, coordinator.WaitingForMembers)
	if last := c.r.s.Pending[4]; last.HoldsModel || last.HoldsEarlier != 6 {
		c.fail("who waited holds something else: %s", c.r.s.String())
	}
	if last := c.r.s.Pending[3]; last.HoldsModel || last.HoldsEarlier != 6 || c.r.s.Pending[0].HoldsEarlier != 8 || len(c.r.s.Earlier) != 2 {
		c.fail("holds something else: %s", c.r.s.String())
	}
	return c.err
}

// fewAreLeft first has two of five members agree, against three reports of members that were
// dropped. Then it has two of six members agree with two members that left before.
func fewAreLeft(r *pair) error {
	for exited := range 2 {
		c := begun(r, 5+exited, false)
		c.tick(30*second, coordinator.RoundTrain)
		c.uncounted()
		s := c.r.s.Clone()
		e := &s.Epoch
		for i := range e.Clients {
			e.Clients[i].Active = true
			e.Clients[i].Report = coordinator.Recorded{Step: 1, Digest: clientID(100 + min(i/2, 1))}
			if i >= 2 {
				e.Clients[i].State = coordinator.Dropped
			}
		}
		if exited > 0 {
			e.Exited = append(e.Exited, e.Clients[:2]...)
			e.Clients = e.Clients[2:]
			e.Exited[0].State, e.Exited[1].State = coordinator.Withdrawn, coordinator.Withdrawn
			e.Clients[0].State = coordinator.Withdrawn
			e.Clients[1].State, e.Clients[1].Report = coordinator.Healthy, e.Exited[0].Report
		}
		if err := errors.Join(s.Check(), c.r.load(s)); err != nil {
			return err
		}
		c.tick(20*second, coordinator.WaitingForMembers)
		if c.err != nil || c.r.s.Model.Checkpoint.Digest != clientID(100) {
			c.fail("the run goes on from %s", c.r.s.String())
			return c.err
		}
	}
	return nil
}

// endsAtAnIntermediateCheckpoint ends a run whose last model is not reported. The steps that its model does not
// contain are a rollback gap.
func endsAtAnIntermediateCheckpoint(r *pair) error {
	c := begun(r, 3, false)
	c.tick(30*second, coordinator.RoundTrain)
	c.counted(coordinator.RoundTrain)
	s := c.r.s.Clone()
	s.Config.TotalSteps, s.PendingPause = 3, true
	if err := c.r.load(s); err != nil {
		return err
	}
	c.report(1, clientID(101), 0, 1)
	c.must(clientID(2), coordinator.Withdraw{Client: clientID(2)})
	c.counted(coordinator.Cooldown)
	s = c.r.s.Clone()
	s.Config.TotalSteps = 2
	if err := c.r.load(s); err != nil {
		return err
	}
	c.tick(20*second, coordinator.Finished)
	if c.r.s.Model.Checkpoint.Step != 1 || !slices.Equal(c.r.s.RollbackGaps, []coordinator.RollbackGap{{First: 2, Last: 2}}) || c.r.s.PendingPause {
		c.fail("the run ends with %s", c.r.s.String())
	}
	return c.err
}

// heldByAMember begins an epoch whose members hold two earlier models. The newer of them has
// priority over an older upload.
func heldByAMember(r *pair) error {
	c := &crowd{r: r, now: 100 * second}
	genesis := coordinator.Genesis{RunID: "script", Host: clientID(0), Config: crowdConfig, Model: crowdModel, Progress: coordinator.Progress{Step: 8}}
	if _, err := r.genesis(genesis); err != nil {
		return err
	}
	s := c.r.s.Clone()
	checkpoint := &s.Model.Checkpoint
	checkpoint.Kind, checkpoint.Origin, checkpoint.Step, checkpoint.Digest = coordinator.CheckpointP2P, checkpoint.Kind, 7, clientID(107)
	for _, step := range []uint32{2, 3, 5, 6} {
		s.Earlier = append(s.Earlier, coordinator.Recorded{Step: step, Digest: clientID(100 + int(step))})
	}
	s.Uploads = append(s.Uploads, coordinator.Upload{Reporter: clientID(0), Step: 3, Digest: clientID(103), Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}})
	if err := c.r.load(s); err != nil {
		return err
	}
	c.must(clientID(0), coordinator.Join{Holds: clientID(105)})
	c.must(clientID(1), coordinator.Join{Holds: clientID(102)})
	c.must(clientID(2), coordinator.Join{Holds: clientID(107)})
	c.must(clientID(2), coordinator.Join{Holds: clientID(103)})
	c.want(coordinator.ErrDuplicate, clientID(2), coordinator.Join{Holds: clientID(103)})
	c.must(clientID(2), coordinator.Join{Holds: clientID(102)})
	c.tick(0, coordinator.WaitingForMembers)
	uploads := r.s.Uploads
	c.change(func(s *coordinator.State) { s.Uploads = nil })
	c.tick(30*second, coordinator.WaitingForMembers) // for unknown clients, of a model that was not uploaded
	before := r.s.Clone()
	c.must(clientID(3), coordinator.Join{Holds: clientID(107)})
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(30*second, coordinator.Warmup) // with one of them that claims to hold the model
	if err := c.r.load(before); err != nil {
		return err
	}
	c.change(func(s *coordinator.State) { s.Pending[1].ProbationUntil, s.Uploads = 8, uploads })
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(30*second, coordinator.Warmup)
	if m := c.r.s.Epoch.Clients; c.r.s.Model.Checkpoint.Digest != clientID(105) || len(c.r.s.Earlier) != 2 || !m[0].HoldsModel || m[1].HoldsModel {
		c.fail("the run goes on from %s", c.r.s.String())
	}
	return c.err
}

// abandoned has five of seven members leave. The epoch ends once they have been away for the number
// of stored rounds, and continues if one of them returns in time. None of the members that left has
// the model of its intermediate checkpoint, so the next epoch waits for the holders.
func abandoned(r *pair) error {
	for _, returns := range []bool{false, true} {
		c := begun(r, 7, false)
		s := c.r.s.Clone()
		s.Config.MinClients, s.Config.InitMinClients, s.Config.RoundsPerEpoch, s.Config.EpochTime = 1, 1, 20, 0
		if err := c.r.load(s); err != nil {
			return err
		}
		c.tick(30*second, coordinator.RoundTrain)
		c.counted(coordinator.RoundTrain)
		c.report(1, clientID(101), 0, 1, 2, 3, 4)
		round, proof := c.r.s.CurrentRound(), c.proof(0)
		for _, member := range round.ElectedWitnesses(c.r.s.Config) {
			c.must(round.Members[member], proof)
		}
		c.tick(second, coordinator.RoundWitness)
		for i := 2; i < 7; i++ {
			c.must(clientID(i), coordinator.Withdraw{Client: clientID(i)})
		}
		c.tick(5*second, coordinator.RoundTrain)
		for range coordinator.StoredRounds - 1 {
			c.counted(coordinator.RoundTrain)
		}
		next := coordinator.Cooldown
		if returns {
			c.must(clientID(6), coordinator.Return{})
			next = coordinator.RoundTrain
		}
		c.counted(next)
		if !returns {
			c.tick(20*second, coordinator.WaitingForMembers)
			if c.r.s.Model.Checkpoint.Step != 1 {
				c.fail("the run goes on from %s", c.r.s.String())
			}
			c.must(clientID(0), coordinator.Withdraw{Client: clientID(0)})
			c.must(clientID(1), coordinator.Withdraw{Client: clientID(1)})
			c.must(clientID(6), coordinator.Join{Epoch: c.r.s.Progress.Epoch})
			c.must(clientID(9), coordinator.Join{Epoch: c.r.s.Progress.Epoch, Holds: clientID(101)}) // an unknown client
			c.tick(second, coordinator.WaitingForMembers)
			c.tick(29*second, coordinator.WaitingForMembers)
			c.tick(second, coordinator.Warmup)
		}
		if c.err != nil {
			return c.err
		}
	}
	return nil
}
