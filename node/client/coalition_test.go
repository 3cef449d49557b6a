package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// falseModel is the digest of the model that the coalition wants the run to continue from.
var falseModel = [32]byte{6, 6, 6}

// coalition has fewer than a third of the members. They behave correctly until enough of
// them are elected as witnesses, and then attack together.
type coalition struct {
	w       *world
	ids     []identity.ID
	clients []*memory.Client
	wants   func(s *coordinator.State, elected int) bool // reports whether enough colluding witnesses are elected
	prove   func(r *coordinator.Round) coordinator.WitnessRound

	mu       sync.Mutex
	attacked []uint32 // steps
}

// colluder is a backend that passes an honest client's actions on until the first attack. After
// that the coalition acts for the client.
type colluder struct {
	*memory.Client
	coalition *coalition
}

func (g *colluder) Submit(ctx context.Context, a coordinator.Action) error {
	if g.coalition.begun() {
		return errTakenOver
	}
	if _, ok := a.(coordinator.WitnessRound); ok {
		if s := g.coalition.w.host.State(); g.coalition.strong(&s) {
			return errTakenOver
		}
	}
	return g.Client.Submit(ctx, a)
}

var errTakenOver = errors.New("the coalition acts for this member")

// begun reports whether the coalition has attacked.
func (g *coalition) begun() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.attacked) > 0
}

// begunBefore reports whether the coalition attacked before a step.
func (g *coalition) begunBefore(step uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.attacked) > 0 && g.attacked[0] < step
}

// strong reports whether the running round has enough colluding witnesses.
func (g *coalition) strong(s *coordinator.State) bool {
	r := s.CurrentRound()
	if r == nil || s.Progress.Step < 3 {
		return false
	}
	elected := 0
	for _, member := range r.ElectedWitnesses(s.Config) {
		if slices.Contains(g.ids, identity.ID(r.Members[member])) {
			elected++
		}
	}
	return g.wants(s, elected)
}

// rule acts for the whole coalition until ctx ends.
func (g *coalition) rule(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		s := g.w.host.State()
		switch s.RunState {
		case coordinator.Warmup:
			if g.begun() {
				g.all(ctx, coordinator.Ready{Epoch: s.Progress.Epoch})
			}
		case coordinator.RoundTrain:
			if g.strong(&s) && !slices.Contains(g.attacked, s.Progress.Step) {
				g.mu.Lock()
				g.attacked = append(g.attacked, s.Progress.Step)
				g.mu.Unlock()
				g.all(ctx, g.prove(s.CurrentRound()))
			}
		case coordinator.Cooldown:
			if !g.begun() {
				continue
			}
			g.all(ctx, coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: falseModel})
		}
		if accused := slices.DeleteFunc(s.Accusable(), func(id coordinator.ClientID) bool { return slices.Contains(g.ids, identity.ID(id)) }); len(accused) > 0 {
			g.all(ctx, coordinator.HealthCheck{Step: s.Progress.Step - 1, Clients: accused})
		}
	}
}

func (g *coalition) all(ctx context.Context, a coordinator.Action) {
	for _, c := range g.clients {
		_ = c.Submit(ctx, a)
	}
}

// begin starts honest and colluding clients.
func (g *coalition) begin(honest, bad int) (good, all []*member) {
	quick := func(o *options) { o.trainer.Duration = 100 * time.Millisecond }
	for i := range honest {
		good = append(good, g.w.launch(i, quick))
	}
	all = slices.Clone(good)
	for i := range bad {
		g.ids = append(g.ids, clienttest.Key(100+i).ID())
		all = append(all, g.w.launch(100+i, func(o *options) {
			quick(o)
			c := o.Backend.(*memory.Client)
			g.clients = append(g.clients, c)
			o.Backend = &colluder{c, g}
		}))
	}
	return good, all
}

// end stops all clients and checks that no honest member ever had the false model.
func (g *coalition) end(good, everybody []*member) {
	s := g.w.host.State()
	for _, m := range everybody {
		m.cancel()
	}
	for _, m := range everybody {
		<-m.done
	}
	if s.Model.Checkpoint.Digest == falseModel {
		g.w.t.Error("the run continues from the coalition's model")
	}
	dropped := 0
	for _, c := range s.Epoch.Exited {
		if c.State == coordinator.Dropped && !slices.Contains(g.ids, identity.ID(c.ID)) {
			dropped++
		}
	}
	lost := 0
	for _, m := range good {
		lost += len(all[event.Desynchronised](m))
	}
	g.w.t.Logf("attacks in steps %v; in step %d of epoch %d %d honest members were dropped in this epoch; %d were desynchronised at some time",
		g.attacked, s.Progress.Step, s.Progress.Epoch, dropped, lost)
	if limit := s.Seats() / 3; dropped > limit {
		g.w.t.Errorf("%d honest members were dropped in an epoch of %d, want at most %d", dropped, s.Seats(), limit)
	}
}

// TestCoalitionCannotEvict checks a coalition of 12 of 40 members. Whenever more than W−q of them
// are witnesses, they list only each other, accuse all other members, and report a false model.
func TestCoalitionCannotEvict(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a minute with the race detector")
	}
	const honest, bad = 28, 12
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(honest + bad)
		config.MinClients, config.RoundsPerEpoch, config.TotalSteps = 2, 12, 100
		config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 80, 80
		g := &coalition{w: newWorld(t, config)}
		g.wants = func(s *coordinator.State, elected int) bool {
			r := s.CurrentRound()
			return elected > int(r.WitnessesElected)-int(r.WitnessesNeeded)
		}
		g.prove = func(r *coordinator.Round) coordinator.WitnessRound {
			keys := bloom.NewKeys(r.Seed)
			proof := coordinator.WitnessRound{Step: r.Step}
			for _, id := range g.ids {
				proof.Participants.AddPositions(keys.Positions(id[:]))
			}
			return proof
		}
		good, everybody := g.begin(honest, bad)
		ctx, cancel := context.WithCancel(g.w.ctx)
		g.w.tasks.Go(func() { g.rule(ctx) })
		g.w.until("two epochs, and the end of one with an attack", func(s *coordinator.State) bool {
			attacked := g.begunBefore(s.Epoch.StartStep) || s.Progress.Epoch >= 7 // the election of witnesses is random
			return s.Progress.Epoch >= 2 && s.RunState == coordinator.RoundTrain && attacked
		})
		cancel()
		if len(g.attacked) == 0 {
			t.Error("the coalition never had enough witnesses, so nothing was tested")
		}
		g.end(good, everybody)
	})
}

// TestCoalitionCannotCapture checks a coalition of 2 of 22 members that are two of three witnesses
// in one round of 77. They sign a meaningless root and replica. All honest members then leave
// because they have no list with that root, and the coalition reports a false model.
func TestCoalitionCannotCapture(t *testing.T) {
	const honest, bad = 20, 2
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(honest + bad)
		config.MinClients, config.WitnessNodes, config.RoundsPerEpoch, config.TotalSteps = 3, 3, 2000, 2000
		config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 44, 44
		g := &coalition{w: newWorld(t, config)}
		g.wants = func(s *coordinator.State, elected int) bool { return elected >= assign.Quorum(3) }
		g.prove = func(r *coordinator.Round) coordinator.WitnessRound {
			return coordinator.WitnessRound{Step: r.Step, Replica: falseModel, CommitmentsRoot: falseModel}
		}
		good, everybody := g.begin(honest, bad)
		ctx, cancel := context.WithCancel(g.w.ctx)
		g.w.tasks.Go(func() { g.rule(ctx) })
		g.w.until("an attack", func(*coordinator.State) bool { return g.begun() })
		g.w.until("the next epoch trains", func(s *coordinator.State) bool { return s.Progress.Epoch >= 1 && s.RunState == coordinator.RoundTrain })
		cancel()
		g.end(good, everybody)
	})
}
