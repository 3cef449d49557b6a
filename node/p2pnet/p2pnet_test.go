package p2pnet_test

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/net/p2p/gossip"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/p2pnet"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// go-log starts this goroutine when its package is loaded, and never ends it.
		goleak.IgnoreAnyFunction("github.com/ipfs/go-log/v2/writer.(*MirrorWriter).logRoutine"))
}

const (
	run   = clienttest.RunID
	speed = 10 // seconds of the run in one second of the test
)

const bulk = 64 << 10 // size of a part of the model, large enough to be cut into ranges

func initial(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	return clienttest.Bulky(clienttest.Model(), bulk), nil
}

// newHost begins a run of three epochs with a fast clock. The function change may change its
// configuration.
func newHost(t *testing.T, change func(*coordinator.Config)) (*memory.Host, *stopwatch) {
	t.Helper()
	config := coordinator.Config{
		WarmupTime: 100_000, CooldownTime: 100_000, RoundsPerEpoch: 2, MaxRoundTrainTime: 100_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 10_000, GlobalBatchSizeStart: 6, GlobalBatchSizeEnd: 6, TotalSteps: 6,
		InitMinClients: 2, MinClients: 1,
	}
	if change != nil {
		change(&config)
	}
	watch := &stopwatch{}
	return clienttest.Host(t, config, watch.now), watch
}

// firstEpoch is the maximum time that the run's clock advances before the late client has requested
// a seat. It is enough to begin one epoch, but not two.
const firstEpoch = 15 * time.Second / speed

// joinLate makes a client join between the beginnings of the first and the second epoch, however
// slow the machine is. The run's clock stands still until the first members have seats, and runs
// for at most firstEpoch until the late client has requested a seat.
func joinLate(ctx context.Context, t *testing.T, host *memory.Host, watch *stopwatch, key identity.Key, join func()) {
	t.Helper()
	await := func(subject string, holds func(s *coordinator.State) bool) {
		for s := host.State(); !holds(&s); s = host.State() {
			if ctx.Err() != nil {
				t.Fatalf("%s: not in time", subject)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	await("the first members have seats", func(s *coordinator.State) bool {
		return len(s.Pending) >= int(s.Config.InitMinClients)
	})
	watch.run(firstEpoch)
	await("the run begins", func(s *coordinator.State) bool {
		return s.RunState != coordinator.WaitingForMembers || s.Progress.Epoch > 0 // the phase may be over between two checks
	})
	join()
	await("a late client asks for a seat", func(s *coordinator.State) bool {
		return s.IsPending(coordinator.ClientID(key.ID()))
	})
	watch.run(time.Hour)
}

// stopwatch is the clock of a run. It stands still until run is called.
type stopwatch struct {
	mu      sync.Mutex
	elapsed time.Duration // time on the watch at since
	since   time.Time
	limit   time.Duration // maximum of the time on the watch
}

// now returns the time of the run in milliseconds.
func (w *stopwatch) now() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 1_000_000_000 + uint64(w.passed()*speed/time.Millisecond)
}

// passed returns the time on the watch. The caller holds mu.
func (w *stopwatch) passed() time.Duration { return min(w.elapsed+time.Since(w.since), w.limit) }

// run lets the watch run for d more.
func (w *stopwatch) run(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.elapsed = w.passed()
	w.since, w.limit = time.Now(), w.elapsed+d
}

// TestRunOverSockets runs three clients, one of them late, over libp2p on the loopback interface.
func TestRunOverSockets(t *testing.T) {
	host, watch := newHost(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var tasks sync.WaitGroup
	tasks.Go(func() { host.Run(ctx, 20*time.Millisecond) })
	defer tasks.Wait()
	defer cancel()

	trainers := make([]*clienttest.Trainer, 3)
	logs := make([]string, 3)
	var clients sync.WaitGroup
	launch := func(i int) {
		key := p2ptest.Key("client " + strconv.Itoa(i))
		b, err := host.Attach(key)
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = filepath.Join(t.TempDir(), "events.jsonl")
		log, err := event.Open(logs[i])
		if err != nil {
			t.Fatal(err)
		}
		trainers[i] = &clienttest.Trainer{ID: key.ID(), Bulk: bulk}
		node, err := client.New(client.Options{
			Key: key, RunID: run, Backend: b, Data: clienttest.Data{}, Events: log,
			Network: p2pnet.New(p2ptest.Node(t, "client "+strconv.Itoa(i)), blob.NewStore(8<<20), run),
			NewTrainer: func(ctx context.Context, s checkpoint.Snapshot, _ env.Definition) (env.Trainer, error) {
				return trainers[i], trainers[i].Load(ctx, s)
			},
			Initial:           initial,
			RepublishInterval: 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			if err := node.Run(ctx); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}
			_ = b.Close()
		})
	}
	launch(0)
	launch(1)
	joinLate(ctx, t, host, watch, p2ptest.Key("client 2"), func() { launch(2) })
	clients.Wait()
	a, b, late := trainers[0].Weights(), trainers[1].Weights(), trainers[2].Weights()
	if !isTrained(trainers[0]) || b != a || late != a {
		t.Errorf("the models differ: %x %x %x", a, b, late)
	}
	checkLateJoiner(t, logs[2])
}

// isTrained reports whether a model differs from the initial model.
func isTrained(trainer *clienttest.Trainer) bool {
	first := &clienttest.Trainer{}
	return first.Load(context.Background(), clienttest.Model()) == nil && trainer.Weights() != first.Weights()
}

// checkLateJoiner checks that the client got its model from peers, and checks the byte counts.
func checkLateJoiner(t *testing.T, log string) {
	var ready event.Ready
	var wire event.Wire
	for e, err := range event.Read(log) {
		if err != nil {
			t.Fatal(err)
		}
		switch body := e.Body.(type) {
		case event.Ready:
			if ready.Source == "" {
				ready = body
			}
		case event.Wire:
			wire = body
		}
	}
	if ready.Source != "peers" || ready.Bytes < bulk {
		t.Errorf("the late client got its model from %+v", ready)
	}
	if wire.P2PReceived < bulk || wire.PayloadReceived == 0 || wire.ModelReceived != ready.Bytes {
		t.Errorf("bytes on the wire: %+v", wire)
	}
}

// TestAnnouncementsFitIntoGossip checks that gossip carries the largest announcement of a client.
func TestAnnouncementsFitIntoGossip(t *testing.T) {
	if gossip.MaxMessage != exchange.MaxAnnouncementSize || wire.MaxAnnouncementSize > gossip.MaxMessage {
		t.Errorf("gossip carries %d bytes, the client hears %d, an announcement may have %d",
			gossip.MaxMessage, exchange.MaxAnnouncementSize, wire.MaxAnnouncementSize)
	}
}
