package programtest

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// endsOfTime lets a run begin at time 0, which also means that a time is not set, and continue at
// the largest time, after which no wait ends.
func endsOfTime(r *pair) error {
	genesis := coordinator.Genesis{RunID: "times", Host: clientID(0), Config: crowdConfig, Model: crowdModel}
	if _, err := r.genesis(genesis); err != nil {
		return err
	}
	for i := range 3 {
		if _, err := r.apply(clientID(i), 1, encode(coordinator.Join{})); err != nil {
			return err
		}
	}
	for _, now := range []uint64{0, 0, 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 100, 100 + 30*second, 1<<64 - 1, 1<<64 - 1} {
		if _, err := r.tick(now, now); err != nil {
			return err
		}
	}
	return nil
}

// begun returns a run of a few clients in Warmup.
func begun(r *pair, clients int, permissioned bool) *crowd {
	c := &crowd{r: r, now: 100 * second}
	genesis := coordinator.Genesis{RunID: "script", Host: clientID(0), Config: crowdConfig, Model: crowdModel, Permissioned: permissioned}
	if _, err := r.genesis(genesis); err != nil {
		c.fail("%w", err)
	}
	for i := range clients {
		if permissioned {
			c.must(clientID(0), coordinator.Authorize{Grantee: clientID(i), Allowed: true})
		}
		c.must(clientID(i), coordinator.Join{Commitment: sha256.Sum256(secret[:])})
	}
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	return c
}

// ejectedAndBarred ejects a member in Warmup, ends its authorization, and pauses the run. The
// ejection must remain.
func ejectedAndBarred(r *pair) error {
	c := begun(r, 4, true)
	c.must(clientID(0), coordinator.Eject{Client: clientID(2)})
	c.must(clientID(0), coordinator.Authorize{Grantee: clientID(2)})
	c.must(clientID(0), coordinator.Authorize{Grantee: clientID(3)})
	c.must(clientID(0), coordinator.SetPaused{Paused: true})
	c.tick(0, coordinator.Paused)
	return c.err
}

// grantEnded ends an authorization. Its two pending delegates must leave with it.
func grantEnded(r *pair) error {
	c := begun(r, 3, true)
	grantee, delegates := clientID(50), []coordinator.ClientID{clientID(60), clientID(61), clientID(62), clientID(63)}
	c.must(clientID(0), coordinator.Authorize{Grantee: grantee, Allowed: true})
	c.must(grantee, coordinator.SetDelegates{Number: 4, Delegates: delegates})
	for _, id := range []coordinator.ClientID{delegates[0], delegates[3]} {
		c.must(id, coordinator.Join{})
	}
	c.must(clientID(0), coordinator.Authorize{Grantee: grantee})
	if len(r.s.Pending) > 0 {
		c.fail("%d of those whose admission ended wait", len(r.s.Pending))
	}
	return c.err
}

// admittedAgain admits a client by a grant, ends its admission while it is a member, and admits it
// again. It must remain a member, without the mark that would end its membership.
func admittedAgain(r *pair) error {
	c := begun(r, 3, true)
	admit := coordinator.Admit{Grant: clientID(70), Client: clientID(60), Allowed: true}
	c.want(coordinator.ErrNotAuthorised, clientID(0), admit)
	c.must(admit.Client, admit)
	c.must(admit.Client, coordinator.Join{})
	c.must(clientID(0), coordinator.SetPaused{Paused: true})
	c.tick(0, coordinator.Paused)
	c.must(clientID(0), coordinator.SetPaused{})
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(second, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	for _, admit.Allowed = range []bool{false, true} {
		c.must(admit.Client, admit)
		c.want(coordinator.ErrDuplicate, admit.Client, admit)
	}
	c.must(clientID(0), coordinator.SetPaused{Paused: true})
	c.tick(0, coordinator.Paused)
	if c.err == nil && !c.r.s.IsPending(admit.Client) {
		c.fail("the client that was admitted again left: %s", c.r.s.String())
	}
	return c.err
}

// reportedAndLeft makes four of five members report the same model, and three of them leave. Their
// reports still count against the fifth member's report.
func reportedAndLeft(r *pair) error {
	c := begun(r, 5, false)
	c.tick(30*second, coordinator.RoundTrain)
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown) // no witness sent a proof
	for i := range 5 {
		c.must(clientID(i), coordinator.ReportCheckpoint{Step: 2, Digest: clientID(100 + i/4)})
	}
	for i := range 3 {
		c.must(clientID(i), coordinator.Withdraw{Client: clientID(i)})
	}
	c.tick(0, coordinator.WaitingForMembers)
	if r.s.Model.Checkpoint.Digest != clientID(100) {
		c.fail("the run goes on from %s", r.s.String())
	}
	return c.err
}

// accusedWithoutQuorum accuses members of a round in which two of four witnesses sent proofs, and
// hold nothing. Without a quorum this proves nothing.
func accusedWithoutQuorum(r *pair) error {
	c := begun(r, 4, false)
	c.tick(30*second, coordinator.RoundTrain)
	for i := range 2 {
		c.must(clientID(i), coordinator.WitnessRound{Step: 1})
	}
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown)
	for i := range 4 {
		c.want(coordinator.ErrFalseAccusation, clientID(0), coordinator.HealthCheck{Step: 1, Clients: []coordinator.ClientID{clientID(i)}})
	}
	return c.err
}

// fiveUploads reports one more upload of a checkpoint than there is room for.
func fiveUploads(r *pair) error {
	c := begun(r, 5, false)
	c.tick(30*second, coordinator.RoundTrain)
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown)
	for i := range 5 {
		c.must(clientID(i), coordinator.ReportCheckpoint{Step: 2, Digest: clientID(100)})
	}
	c.tick(0, coordinator.WaitingForMembers)
	a := coordinator.ReportUpload{Step: 1, Digest: clientID(100), Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}}
	for i := range coordinator.MaxUploads {
		c.must(clientID(i), a)
	}
	c.want(coordinator.ErrFull, clientID(4), a)
	c.want(coordinator.ErrDuplicate, clientID(0), a)
	for _, last := range []string{"/", ":", "`", "g", "00"} { // characters other than the digits of a commit, and one digit too many
		a.Place = coordinator.Location{Kind: coordinator.CheckpointHub, Repo: "a/b", Revision: commit[1:] + last}
		c.want(coordinator.ErrInvalidAction, clientID(0), a)
	}
	return c.err
}

// backToUpload begins an epoch without a member that holds the model. The run continues from the
// newest uploaded model, and forgets the older ones.
func backToUpload(r *pair) error {
	c := &crowd{r: r, now: 100 * second}
	genesis := coordinator.Genesis{RunID: "script", Host: clientID(0), Config: crowdConfig, Model: crowdModel, Progress: coordinator.Progress{Step: 8}}
	if _, err := r.genesis(genesis); err != nil {
		return err
	}
	for i := range 3 {
		c.must(clientID(i), coordinator.Join{})
	}
	c.tick(0, coordinator.WaitingForMembers)
	s := r.s.Clone()
	checkpoint := &s.Model.Checkpoint
	checkpoint.Kind, checkpoint.Origin, checkpoint.Step, checkpoint.Digest = coordinator.CheckpointP2P, checkpoint.Kind, 7, clientID(107)
	for _, step := range []uint32{0, 3, 5} {
		s.Earlier = append(s.Earlier, coordinator.Recorded{Step: step, Digest: clientID(100 + int(step))})
	}
	for i, r := range s.Earlier[:2] {
		s.Uploads = append(s.Uploads, coordinator.Upload{Reporter: clientID(i), Step: r.Step, Digest: r.Digest, Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}})
	}
	if err := errors.Join(s.Check(), c.r.load(s)); err != nil {
		return err
	}
	c.tick(30*second, coordinator.Warmup)
	if r.s.Model.Checkpoint.Digest != clientID(103) || len(r.s.Earlier) != 1 {
		c.fail("the run goes on from %s", r.s.String())
	}
	return c.err
}

// awaitedModel has a member without the model of a long run wait. Among the newcomers that wait
// too, one claims to hold an earlier model, and there are uploads that failed several times. The
// wait grows with the number of steps that would be lost.
func awaitedModel(r *pair) error {
	c := &crowd{r: r, now: 100 * second}
	genesis := coordinator.Genesis{RunID: "script", Host: clientID(0), Config: crowdConfig, Model: crowdModel, Progress: coordinator.Progress{Step: 1001}}
	genesis.Config.TotalSteps = 1 << 31
	if _, err := r.genesis(genesis); err != nil {
		return err
	}
	c.change(func(s *coordinator.State) {
		checkpoint := &s.Model.Checkpoint
		checkpoint.Kind, checkpoint.Origin, checkpoint.Step, checkpoint.Digest = coordinator.CheckpointP2P, checkpoint.Kind, 1000, clientID(107)
		s.Earlier = []coordinator.Recorded{{Step: 500, Digest: clientID(105)}, {Step: 900, Digest: clientID(106)}}
		s.OriginStep = 101
	})
	for i := range 3 {
		c.must(clientID(i), coordinator.Join{})
	}
	c.must(clientID(3), coordinator.Join{Holds: clientID(106)})
	c.change(func(s *coordinator.State) { s.Pending[0].ProbationUntil = 8 })
	c.tick(0, coordinator.WaitingForMembers)
	base := r.s.Clone()
	upload := func(step uint32, digest int, tries uint8) coordinator.Upload {
		return coordinator.Upload{Reporter: clientID(9), Step: step, Digest: clientID(digest), Tries: tries, Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}}
	}
	for i, change := range []func(s *coordinator.State){
		func(*coordinator.State) {},
		func(s *coordinator.State) { s.OriginStep = 1001 },
		func(s *coordinator.State) { s.Pending[3].ProbationUntil = 8 },
		func(s *coordinator.State) { s.Uploads = []coordinator.Upload{upload(500, 105, 2)} },
		func(s *coordinator.State) {
			s.Uploads = []coordinator.Upload{upload(500, 105, coordinator.MaxUploadTries)}
		},
		func(s *coordinator.State) { s.Uploads = []coordinator.Upload{upload(1000, 107, 0)} },
		func(s *coordinator.State) { s.Config.MaxRoundTrainTime = 3600 * second },
		func(s *coordinator.State) { s.Config.MaxRoundTrainTime = 200 * 24 * 3600 * second },
		func(s *coordinator.State) {
			s.Config.MaxRoundTrainTime, s.OriginStep = 200*24*3600*second, 996
		},
	} {
		before := base.Clone()
		before.MinimumSince = 0
		change(&before)
		if err := errors.Join(before.Check(), c.r.load(before)); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		c.tick(0, coordinator.WaitingForMembers)
		c.tick((r.s.PhaseTime()-1)/second*second, coordinator.WaitingForMembers) // a chain's clock shows whole seconds
		c.tick(second, coordinator.Warmup)
	}
	return c.err
}

// accusedTooLate accuses members of a round after the next round has ended.
func accusedTooLate(r *pair) error {
	c := begun(r, 4, false)
	c.tick(30*second, coordinator.RoundTrain)
	for step := range uint32(2) {
		round := c.r.s.CurrentRound()
		a := coordinator.WitnessRound{Step: step + 1}
		for i := range 3 {
			a.Participants.Add(round.Seed, round.Members[i][:])
		}
		for i := range 3 {
			c.must(clientID(i), a)
		}
		c.tick(50*second, coordinator.RoundWitness)
		c.tick(5*second, coordinator.RoundTrain)
	}
	accused := []coordinator.ClientID{clientID(3)}
	c.want(coordinator.ErrWrongStep, clientID(0), coordinator.HealthCheck{Step: 1, Clients: accused})
	c.want(coordinator.ErrWrongStep, clientID(0), coordinator.HealthCheck{Step: 3, Clients: accused})
	c.must(clientID(0), coordinator.HealthCheck{Step: 2, Clients: accused})
	return c.err
}

// oneOfTwoIsLate checks a run of two members. A third of two members still allows one late member.
func oneOfTwoIsLate(r *pair) error {
	c := begun(r, 2, false)
	c.tick(30*second, coordinator.RoundTrain)
	round := c.r.s.CurrentRound()
	a := coordinator.WitnessRound{Step: 1}
	a.Participants.Add(round.Seed, round.Members[0][:])
	for _, id := range round.Members {
		c.must(id, a)
	}
	late := round.Members[1]
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(second, coordinator.RoundTrain)
	c.must(round.Members[0], coordinator.HealthCheck{Step: 1, Clients: []coordinator.ClientID{late}})
	if member, ok := c.r.s.Member(late); !ok || member.Lateness != coordinator.FoundLate {
		c.fail("not late: %s", c.r.s.String())
	}
	return c.err
}

// slowWitnesses has two slow witnesses of four. RoundWitness waits for them while there is no
// quorum without them.
func slowWitnesses(r *pair) error {
	c := begun(r, 4, false)
	c.tick(30*second, coordinator.RoundTrain)
	s := c.r.s.Clone()
	s.Epoch.Clients[2].Lateness, s.Epoch.Clients[3].Lateness = coordinator.Slow, coordinator.Slow
	if err := c.r.load(s); err != nil {
		return err
	}
	round := c.r.s.CurrentRound()
	a := coordinator.WitnessRound{Step: 1}
	for _, id := range round.Members {
		a.Participants.Add(round.Seed, id[:])
	}
	c.must(round.Members[0], a)
	c.must(round.Members[1], a)
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(second, coordinator.RoundWitness)
	c.must(round.Members[2], a)
	c.tick(second, coordinator.RoundTrain)
	return c.err
}

// capsOfFindings checks the limits of findings. Of seven members, four were late before. At most
// two can be dropped in a round, or become slow in an epoch, however often they are accused.
func capsOfFindings(r *pair) error {
	for name, denies := range map[string]int{"all deny, and drop": 7, "too few deny: slow": 3} {
		if err := capped(r, 7, denies, 2); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return capped(r, 2, 2, 1) // a third of two still allows one
}

// capped accuses all members with a batch, twice, of a round whose first member denied the results
// of all members. All are already late, and only a limited number are punished.
func capped(r *pair, members, denies, most int) error {
	c := begun(r, members, false)
	c.tick(30*second, coordinator.RoundTrain)
	round := c.r.s.CurrentRound()
	for i, id := range round.Members {
		a := coordinator.WitnessRound{Step: 1}
		for _, held := range round.Members {
			if i >= denies {
				a.Participants.Add(round.Seed, held[:])
			}
		}
		c.must(id, a)
	}
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(second, coordinator.RoundTrain)
	s := c.r.s.Clone()
	for i := range s.Epoch.Clients {
		s.Epoch.Clients[i].Lateness = coordinator.Late
	}
	if err := c.r.load(s); err != nil {
		return err
	}
	accused, accuser := c.r.s.Accusable(), coordinator.ClientID{}
	c.must(accused[0], coordinator.HealthCheck{Step: 1, Clients: accused})
	changed := 0
	for i := range c.r.s.Epoch.Clients {
		switch m := &c.r.s.Epoch.Clients[i]; {
		case m.State != coordinator.Healthy, m.Lateness == coordinator.Slow:
			changed++
		default:
			accuser = m.ID
		}
	}
	if changed != most {
		c.fail("%d of %d members were dropped or are slow, want %d", changed, len(accused), most)
	}
	c.want(coordinator.ErrDuplicate, accuser, coordinator.HealthCheck{Step: 1, Clients: accused})
	return c.err
}

// falseReveals makes members reveal wrong values. One has committed to nothing, and one departed
// before and departs again.
func falseReveals(r *pair) error {
	c := begun(r, 3, false)
	next := sha256.Sum256(secret[:])
	s := c.r.s.Clone()
	s.Epoch.Clients[1].Commitment = [32]byte{}
	s.Pending = append(s.Pending, coordinator.Client{ID: clientID(9)})
	s.Departed = append(s.Departed, coordinator.Client{ID: clientID(9), State: coordinator.Withdrawn}, coordinator.Client{ID: clientID(8), State: coordinator.Withdrawn})
	if err := c.r.load(s); err != nil {
		return err
	}
	for i, wrong := range [][32]byte{next, secret, {}} {
		c.want(coordinator.ErrInvalidAction, clientID(i), coordinator.Ready{Reveal: wrong, Next: next})
	}
	c.must(clientID(1), coordinator.Ready{Next: next})
	c.must(clientID(0), coordinator.Ready{Reveal: secret})
	c.must(clientID(2), coordinator.Ready{Reveal: secret, Next: next})
	c.must(clientID(9), coordinator.Withdraw{Client: clientID(9)})
	c.must(clientID(9), coordinator.Join{Commitment: next})
	c.want(coordinator.ErrDuplicate, clientID(9), coordinator.Join{Commitment: next})
	c.must(clientID(9), coordinator.Join{Commitment: secret})
	return c.err
}
