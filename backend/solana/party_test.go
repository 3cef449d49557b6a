package solana

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/backend/backendtest"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/solana/transaction"
)

var (
	slotTime = flag.Duration("slot", 100*time.Millisecond, "how long a slot of the chain takes in tests with faults; 400ms on public chains")
	rounds   = flag.Int("rounds", 3, "rounds in tests with faults")
)

// party is clients that take part in a run as if they trained.
type party struct {
	t       *testing.T
	chain   *chain
	run     transaction.PublicKey
	players []*player
	ctx     context.Context
	playing sync.WaitGroup
	undone  int // how many transactions may have been rolled back
}

// player does what the run expects of it.
type player struct {
	*Client
	id coordinator.ClientID

	mu     sync.Mutex
	newest *coordinator.State
	seen   chan struct{}        // closed with the next update
	check  func(backend.Update) // every update; nil: nothing
	doing  map[string]bool      // what is being submitted
	codes  map[coordinator.Code]int
}

// newParty begins a run of n clients on the chain.
func newParty(t *testing.T, c *chain, n int, check func(backend.Update)) *party {
	t.Helper()
	config := coordinator.Config{
		WarmupTime: 60_000, CooldownTime: 20_000, RoundsPerEpoch: 4, MaxRoundTrainTime: 10_000, RoundWitnessTime: 4000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: 10_000,
		InitMinClients: uint16(n), MinClients: 1,
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &party{t: t, chain: c, ctx: ctx}
	p.run = c.create(coordinator.Genesis{
		RunID: "party", Config: config, Model: coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}},
	})
	t.Cleanup(func() {
		cancel()
		for _, player := range p.players {
			if err := player.Close(); err != nil {
				t.Error(err)
			}
		}
		p.playing.Wait()
	})
	for i := range n {
		client, err := c.join(ctx, backendtest.Key(byte(i+1)), p.run)
		if err != nil {
			t.Fatal(err)
		}
		one := &player{
			Client: client, id: coordinator.ClientID(client.key), seen: make(chan struct{}), check: check,
			doing: make(map[string]bool), codes: make(map[coordinator.Code]int),
		}
		p.players = append(p.players, one)
		p.playing.Go(func() { one.play(ctx, &p.playing) })
	}
	return p
}

// play acts on every state.
func (p *player) play(ctx context.Context, playing *sync.WaitGroup) {
	for u := range p.Updates() {
		p.mu.Lock()
		p.newest = u.State
		close(p.seen)
		p.seen = make(chan struct{})
		p.mu.Unlock()
		if p.check != nil {
			p.check(u)
		}
		a, name := p.wanted(u.State)
		p.mu.Lock()
		busy := a == nil || p.doing[name]
		if !busy {
			p.doing[name] = true
		}
		p.mu.Unlock()
		if !busy {
			playing.Go(func() { p.act(ctx, a, name) })
		}
	}
}

// act submits an action until it is accepted or refused.
func (p *player) act(ctx context.Context, a coordinator.Action, name string) {
	var err error
	for range 3 {
		if err = p.Submit(ctx, a); !errors.Is(err, backend.ErrDisconnected) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.doing, name)
	if code, ok := errors.AsType[coordinator.Code](err); ok {
		p.codes[code]++
	}
}

// wanted returns what the state expects of the player.
func (p *player) wanted(s *coordinator.State) (coordinator.Action, string) {
	member, isMember := s.Member(p.id)
	healthy := isMember && member.State == coordinator.Healthy
	switch {
	case !healthy && index(ids(s.Pending), p.id) < 0:
		return coordinator.Join{Epoch: s.Progress.Epoch}, fmt.Sprint("join ", s.Progress.Epoch)
	case s.RunState == coordinator.Warmup && healthy && index(s.Epoch.Ready, p.id) < 0:
		return coordinator.Ready{Epoch: s.Progress.Epoch}, fmt.Sprint("ready ", s.Progress.Epoch)
	case (s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness) && healthy:
		return proofOf(s, p.id), fmt.Sprint("witness ", s.Progress.Step)
	case s.RunState == coordinator.Cooldown && healthy:
		for _, r := range s.Epoch.Reports {
			if r.Client == p.id {
				return nil, ""
			}
		}
		return coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: [32]byte{byte(s.Progress.Step)}}, fmt.Sprint("report ", s.Progress.Step)
	}
	return nil, ""
}

func ids(clients []coordinator.Client) (all []coordinator.ClientID) {
	for i := range clients {
		all = append(all, clients[i].ID)
	}
	return all
}

// proofOf is a witness's that has the results of all.
func proofOf(s *coordinator.State, id coordinator.ClientID) coordinator.Action {
	round := s.CurrentRound()
	member, ok := round.MemberIndex(id)
	if !ok {
		return nil
	}
	for _, w := range round.Witnesses {
		if int(w.Member) == member {
			return nil
		}
	}
	a := coordinator.WitnessRound{Step: round.Step, CommitmentsRoot: [32]byte{1}, Replica: [32]byte{2}}
	for _, assigned := range round.Assignments(s.Config) {
		id := round.Members[assigned.Member]
		a.Participants.Add(round.Seed, id[:])
		a.Commitments.Add(round.Seed, id[:])
	}
	return a
}

// await waits until the first player sees what done wants.
func (p *party) await(what string, patience time.Duration, done func(s *coordinator.State) bool) *coordinator.State {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	first := p.players[0]
	for {
		first.mu.Lock()
		state, seen := first.newest, first.seen
		first.mu.Unlock()
		if state != nil && done(state) {
			return state
		}
		select {
		case <-seen:
		case <-deadline.C:
			p.t.Fatalf("no %s within %s: %v", what, patience, state)
		}
	}
}

// awaitRounds waits for that many more rounds.
func (p *party) awaitRounds(n int) {
	p.t.Helper()
	p.await("first round", time.Minute, func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
	first := p.await("state", time.Second, func(*coordinator.State) bool { return true }).Progress.Step
	p.await("progress", time.Minute, func(s *coordinator.State) bool { return s.Progress.Step >= first+uint32(n) })
}

// sum returns what all players paid.
func (p *party) sum() (all Costs) {
	for _, player := range p.players {
		c := player.Costs()
		all.Sent += c.Sent
		all.Landed += c.Landed
		all.Lamports += c.Lamports
		all.Ticks += c.Ticks
		all.OutOfTurn += c.OutOfTurn
	}
	return all
}
