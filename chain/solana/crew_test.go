package solana

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/memnet"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/event"
)

var (
	slotTime = flag.Duration("slot", 100*time.Millisecond, "how long a slot of the chain takes in tests with faults; 400ms on public chains")
	steps    = flag.Int("steps", 6, "rounds of the runs in tests with faults")
	members  = flag.Int("members", 3, "clients of the runs in tests with faults")
)

// training is the duration of each training of a crew.
const training = 200 * time.Millisecond

// crew is a run on the chain with complete clients: each is a client.Node with a trainer.
type crew struct {
	t     *testing.T
	chain *chain
	run   transaction.PublicKey
	hands []*hand

	watch   chan struct{} // closed and replaced at every update of the first client
	mu      sync.Mutex
	newest  *coordinator.State // newest state of the first client
	working sync.WaitGroup
}

// hand is one client of a crew.
type hand struct {
	*Client
	events string
	done   chan struct{}
	err    error
}

// newCrew begins a run of complete clients. It passes each update of any client to check, if that
// is not nil.
func newCrew(t *testing.T, c *chain, check func(backend.Update)) *crew {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds, because a chain's clock counts whole seconds")
	}
	n := *members
	config := coordinator.Config{
		WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 3, MaxRoundTrainTime: 15_000, RoundWitnessTime: 4000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 12, GlobalBatchSizeEnd: 12, TotalSteps: uint32(*steps),
		InitMinClients: uint16(n), MinClients: 1,
	}
	w := &crew{t: t, chain: c, watch: make(chan struct{})}
	w.run = c.create(coordinator.Genesis{
		RunID: "crew", Config: config, Model: coordinator.Model{MaxSeqLen: 2, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		w.working.Wait()
	})
	w.faultAll(localnet.Faults{})
	hub, dir := &memnet.Hub{}, t.TempDir()
	for i := range n {
		w.hands = append(w.hands, w.hire(ctx, hub, dir, i, check))
	}
	return w
}

// hire starts client i.
func (w *crew) hire(ctx context.Context, hub *memnet.Hub, dir string, i int, check func(backend.Update)) *hand {
	w.t.Helper()
	key := backendtest.Key(byte(i + 1))
	joined, err := w.chain.join(ctx, key, w.run)
	if err != nil {
		w.t.Fatal(err)
	}
	h := &hand{Client: joined, events: filepath.Join(dir, fmt.Sprint(i, ".jsonl")), done: make(chan struct{})}
	log, err := event.Open(h.events)
	if err != nil {
		w.t.Fatal(err)
	}
	network := hub.Attach(key.ID())
	node, err := client.New(client.Options{
		Key: key, RunID: "crew", Network: network, Data: clienttest.Data{}, Events: log, Logger: slog.New(slog.DiscardHandler),
		Backend: &observed{Client: joined, updates: w.observe(joined, i == 0, check)},
		Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) { return dummy.Model(), nil },
		NewTrainer: func(_ context.Context, s checkpoint.Snapshot, _ env.Definition) (env.Trainer, error) {
			return dummy.New(dummy.Options{Model: s, RunID: "crew", TrainerID: key.ID(), Delay: training})
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.working.Go(func() {
		defer close(h.done)
		h.err = node.Run(ctx)
		network.Close()
		if err := errors.Join(joined.Close(), log.Close()); err != nil {
			w.t.Error(err)
		}
	})
	return h
}

// observed is a client whose updates the test observes.
type observed struct {
	*Client
	updates <-chan backend.Update
}

func (o *observed) Updates() <-chan backend.Update { return o.updates }

// observe forwards the updates of a client. A newer update replaces an update that was not
// received.
func (w *crew) observe(c *Client, first bool, check func(backend.Update)) <-chan backend.Update {
	passed := make(chan backend.Update, 1)
	w.working.Go(func() {
		defer close(passed)
		for u := range c.Updates() {
			if check != nil {
				check(u)
			}
			if first {
				state := u.State.Clone()
				w.mu.Lock()
				w.newest = &state
				close(w.watch)
				w.watch = make(chan struct{})
				w.mu.Unlock()
			}
			select {
			case <-passed:
			default:
			}
			passed <- u
		}
	})
	return passed
}

// fault sets the faults of an endpoint, in addition to the delay of a public chain.
func (w *crew) fault(i int, f localnet.Faults) {
	f.Delay = *slotTime / 4
	w.chain.nodes[i].SetFaults(f)
}

// faultAll sets the faults of all endpoints at once.
func (w *crew) faultAll(f localnet.Faults) {
	for i := range w.chain.nodes {
		w.fault(i, f)
	}
}

// until waits until the first client has a state for which holds returns true.
func (w *crew) until(subject string, holds func(s *coordinator.State) bool) *coordinator.State {
	w.t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		w.mu.Lock()
		state, changed := w.newest, w.watch
		w.mu.Unlock()
		if state != nil && holds(state) {
			return state
		}
		select {
		case <-changed:
		case <-deadline.C:
			w.t.Fatalf("no %s: %v", subject, state)
		}
	}
}

// inPhase waits for a phase of a round after the given step.
func (w *crew) inPhase(phase coordinator.RunState, after uint32) uint32 {
	w.t.Helper()
	return w.until(fmt.Sprint(phase, " after step ", after), func(s *coordinator.State) bool {
		return s.RunState == phase && s.Progress.Step > after
	}).Progress.Step
}
