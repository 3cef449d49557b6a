package programtest

import (
	"bytes"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// crowd is a run with the maximum number of clients, grantees and delegates. A script controls it.
type crowd struct {
	r     *pair
	nonce uint64
	now   uint64
	err   error // the first error
}

func (c *crowd) fail(format string, arguments ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, arguments...)
	}
}

// want sends an action and checks its result.
func (c *crowd) want(code coordinator.Code, from coordinator.ClientID, a coordinator.Action) {
	c.nonce++
	got, err := c.r.apply(from, c.nonce, encode(a))
	if err != nil {
		c.fail("%w", err)
	}
	if got != code {
		c.fail("%T: %d, want %d", a, got, code)
	}
}

func (c *crowd) must(from coordinator.ClientID, a coordinator.Action) { c.want(0, from, a) }

// tick advances the time and checks the state of the run afterwards.
func (c *crowd) tick(passed uint64, want coordinator.RunState) {
	c.now += passed
	if _, err := c.r.tick(c.now, c.now*7919); err != nil {
		c.fail("%w", err)
	}
	if c.r.s.RunState != want {
		c.fail("%s, want %s", c.r.s.RunState, want)
	}
}

var crowdConfig = coordinator.Config{
	WarmupTime: 30 * second, CooldownTime: 20 * second, RoundsPerEpoch: 6, MaxRoundTrainTime: 50 * second, RoundWitnessTime: 5 * second,
	WaitingForMembersExtraTime: 3 * second, GlobalBatchSizeWarmupTokens: 1 << 40, GlobalBatchSizeStart: 200, GlobalBatchSizeEnd: 1000,
	TotalSteps: 1000, InitMinClients: 2, MinClients: 2, VerificationPercent: 20, EjectionEpochs: 1,
}

var crowdModel = coordinator.Model{
	MaxSeqLen: 16, ColdStartWarmupSteps: 2, Definition: bytes.Repeat([]byte("d"), coordinator.MaxDefinitionSize),
	Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: "repo", Revision: "main"},
}

func permissionlessCrowd(r *pair) error { return runCrowd(r, false) }
func permissionedCrowd(r *pair) error   { return runCrowd(r, true) }

func runCrowd(r *pair, permissioned bool) error {
	c := &crowd{r: r, now: 100 * second}
	genesis := coordinator.Genesis{RunID: "crowd", Host: clientID(100_000), Config: crowdConfig, Model: crowdModel, Permissioned: permissioned}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return fmt.Errorf("genesis %d: %w", int(code), err)
	}
	if permissioned {
		c.authorize()
	}
	if c.firstEpoch(permissioned); c.err == nil {
		c.secondEpoch()
	}
	return c.err
}

// authorize fills the list of authorizations. The clients are delegates.
func (c *crowd) authorize() {
	host := c.r.s.Host
	for i := range coordinator.MaxAuthorizations {
		c.must(host, coordinator.Authorize{Grantee: clientID(1000 + i), Allowed: true})
	}
	c.want(coordinator.ErrFull, host, coordinator.Authorize{Grantee: clientID(0), Allowed: true})
	for i := range coordinator.MaxAuthorizations {
		c.must(clientID(1000+i), coordinator.SetDelegates{Number: uint32(i + 1), Delegates: []coordinator.ClientID{
			clientID(2000 + i), clientID(3000 + i), clientID(4000 + i), clientID(255 - i),
		}})
	}
}

// firstEpoch fills the lists of members, witnesses, rounds and reports.
func (c *crowd) firstEpoch(permissioned bool) {
	c.fill()
	if permissioned {
		c.loseOne()
	}
	if permissioned { // all pending clients are authorized
		c.must(clientID(1003), coordinator.SetDelegates{Number: 4, Delegates: []coordinator.ClientID{clientID(2003), clientID(3003), clientID(5000), clientID(252)}})
		c.want(coordinator.ErrFull, clientID(5000), coordinator.Join{})
	} else { // each replaces a different client, and is then replaced by it
		c.must(clientID(5000), coordinator.Join{})
		for i := range coordinator.MaxClients {
			if !c.r.s.IsPending(clientID(i)) {
				c.must(clientID(5000), coordinator.Withdraw{Client: clientID(5000)})
				c.must(clientID(i), coordinator.Join{})
			}
		}
	}
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(second, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	for i := range coordinator.MaxClients { // the reverse order of the members
		c.must(clientID(255-i), coordinator.Ready{})
	}
	if c.tick(second, coordinator.RoundTrain); c.err != nil {
		return
	}
	for round := range crowdConfig.RoundsPerEpoch {
		r := c.r.s.CurrentRound()
		for _, member := range r.ElectedWitnesses(c.r.s.Config) {
			c.must(r.Members[member], c.proof(0))
		}
		c.tick(second, coordinator.RoundWitness)
		next := coordinator.RoundTrain
		if round == crowdConfig.RoundsPerEpoch-1 {
			next = coordinator.Cooldown
		}
		c.tick(0, next) // all have sent proofs
		if permissioned && round == 0 {
			c.loseMember()
		}
	}
	for i := range coordinator.MaxClients {
		digest := [32]byte(clientID(50_000))
		if i%3 == 0 && permissioned {
			digest = clientID(50_001 + i)
		}
		c.must(clientID(255-i), coordinator.ReportCheckpoint{Step: c.r.s.Progress.Step, Digest: digest})
	}
	c.tick(second, coordinator.WaitingForMembers)
}

func (c *crowd) fill() {
	for i := range coordinator.MaxClients {
		c.must(clientID(i), coordinator.Join{})
	}
}

// loseOne withdraws a client's authorization and restores it.
func (c *crowd) loseOne() {
	grantee := clientID(1000)
	delegates := []coordinator.ClientID{clientID(9000), clientID(3000), clientID(4000), clientID(9001)}
	c.must(grantee, coordinator.SetDelegates{Number: 1, Delegates: delegates})
	if c.r.s.IsPending(clientID(255)) {
		c.fail("who is admitted no longer waits")
	}
	delegates[3] = clientID(255)
	c.must(grantee, coordinator.SetDelegates{Number: 1, Delegates: delegates})
	c.must(clientID(255), coordinator.Join{})
}

// loseMember withdraws a member's authorization and restores it before it has an effect.
func (c *crowd) loseMember() {
	grantee := clientID(1001)
	delegates := []coordinator.ClientID{clientID(9000), clientID(3001), clientID(4001), clientID(9001)}
	c.must(grantee, coordinator.SetDelegates{Number: 2, Delegates: delegates})
	delegates[3] = clientID(254)
	c.must(grantee, coordinator.SetDelegates{Number: 2, Delegates: delegates})
}

// proof returns a witness's proof without the result of every nth trainer.
func (c *crowd) proof(nth int) coordinator.WitnessRound {
	r := c.r.s.CurrentRound()
	a := coordinator.WitnessRound{Step: r.Step, CommitmentsRoot: clientID(1), Replica: clientID(2), Claim: coordinator.Claim{Loss: 2345, Speed: 1200}}
	for i, assigned := range r.Assignments(c.r.s.Config) {
		if nth > 0 && i%nth == 0 {
			continue
		}
		item := clientID(assigned.Member)
		a.Participants.Add(r.Seed, r.Members[assigned.Member][:])
		a.Commitments.Add(r.Seed, item[:])
	}
	return a
}

// secondEpoch plays a round with missing trainers and accusations. Members leave until no quorum is
// left, then all leave.
func (c *crowd) secondEpoch() {
	s := &c.r.s
	c.tick(second, coordinator.WaitingForMembers)
	c.tick(4*second, coordinator.Warmup)
	for i := range coordinator.MaxClients {
		c.must(clientID(i), coordinator.Ready{Epoch: 1})
	}
	if c.tick(second, coordinator.RoundTrain); c.err != nil {
		return
	}
	r := s.CurrentRound()
	for _, member := range r.ElectedWitnesses(s.Config)[:25] {
		c.must(r.Members[member], c.proof(4))
	}
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.RoundTrain)
	c.accuse()
	few := 30
	if _, ok := c.r.c.(chooses); ok {
		few = 3 // with different draws, more of the members that left could be witnesses
	}
	for i, id := range s.CurrentRound().Members {
		if isHealthy(s, id) {
			c.must(id, coordinator.Withdraw{Client: id})
		}
		if i == few {
			c.tick(second, coordinator.RoundTrain)
		}
	}
	c.tick(second, coordinator.RoundWitness)
	c.tick(0, coordinator.Cooldown)
	if !s.Authority.Permissioned { // one member comes back, and the same number of new clients join; some do not stay
		c.must(clientID(0), coordinator.Join{Epoch: 1})
		for i := 1; i < coordinator.MaxClients; i++ {
			c.must(clientID(20_000+i), coordinator.Join{Epoch: 1})
		}
		for i := range 20 {
			c.must(s.Host, coordinator.Withdraw{Client: clientID(20_001 + i)})
		}
	}
	c.tick(0, coordinator.WaitingForMembers)
	if !s.Authority.Permissioned {
		c.tick(second, coordinator.WaitingForMembers)
		c.tick(crowdConfig.WarmupTime, coordinator.Warmup) // none of them holds the model
	}
}

func (c *crowd) accuse() {
	s := &c.r.s
	accusable := s.Accusable()
	if len(accusable) < 20 {
		c.fail("%d to accuse", len(accusable))
		return
	}
	var from coordinator.ClientID
	for _, client := range s.Epoch.Clients {
		named := false
		for _, id := range accusable {
			named = named || id == client.ID
		}
		if !named {
			from = client.ID
		}
	}
	step := s.Progress.Step - 1
	twice := append(accusable[:3:3], accusable[0])
	c.want(coordinator.ErrInvalidAction, from, coordinator.HealthCheck{Step: step, Clients: twice})
	c.must(from, coordinator.HealthCheck{Step: step, Clients: accusable[10:]})
	c.must(from, coordinator.HealthCheck{Step: step, Clients: accusable})
	c.want(coordinator.ErrDuplicate, from, coordinator.HealthCheck{Step: step, Clients: accusable})
}
