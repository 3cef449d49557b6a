package p2pnet_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/backend/memory"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/client"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/p2pnet"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/p2p/blob"
	"github.com/psyche-go/psyche/p2p/p2ptest"
	"github.com/psyche-go/psyche/safetensors"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The library starts it when the package is loaded and never ends it.
		goleak.IgnoreAnyFunction("github.com/ipfs/go-log/v2/writer.(*MirrorWriter).logRoutine"))
}

const (
	run   = "wire-run"
	speed = 10 // seconds of the run in one second of the test
)

// counter is a trainer whose model is one number of 64 KiB, to be cut into ranges.
type counter struct {
	id    [32]byte
	value uint64
}

func (c *counter) snapshot() checkpoint.Snapshot {
	weights := make([]byte, 64<<10)
	binary.LittleEndian.PutUint64(weights, c.value)
	return checkpoint.Snapshot{
		Files:   []checkpoint.File{{Name: "config.json", Data: []byte(`{"architectures":["Counter"]}`)}},
		Tensors: []safetensors.Tensor{{Name: "w", DType: "I64", Shape: []int64{8 << 10}, Data: weights}},
	}
}

func (c *counter) Train(_ context.Context, step uint32, batch data.Batch) ([]byte, float64, error) {
	result := sha256.Sum256(append(c.id[:], byte(step), byte(batch.ID.Start)))
	return result[:], 1, nil
}

func (c *counter) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	if want := sha256.Sum256(append(trainer[:], byte(step), byte(batch.Start))); [32]byte(payload) != want {
		return client.ErrDesynchronised
	}
	return nil
}

func (c *counter) Apply(_ context.Context, step uint32, payloads [][]byte, _ bool) error {
	for _, p := range payloads {
		c.value = c.value*31 + uint64(step) + binary.LittleEndian.Uint64(p)
	}
	return nil
}

func (c *counter) Snapshot(context.Context) (checkpoint.Snapshot, error) { return c.snapshot(), nil }

func (c *counter) Load(_ context.Context, s checkpoint.Snapshot) error {
	c.value = binary.LittleEndian.Uint64(s.Tensors[0].Data)
	return nil
}

func (c *counter) ResetOptimizer(context.Context) error               { return nil }
func (c *counter) SetColdStart(context.Context, uint32, uint32) error { return nil }
func (c *counter) MaxResultSize() int                                 { return 64 }
func (c *counter) ApplyLag() uint32                                   { return 1 }

type noData struct{}

func (noData) Batch(_ context.Context, id assign.BatchID) (data.Batch, error) {
	return data.Batch{ID: id, Sequences: make([][]int32, id.Len())}, nil
}

// newHost begins a run whose clock is fast, of three epochs unless change says otherwise.
func newHost(t *testing.T, change func(*coordinator.Config)) *memory.Host {
	t.Helper()
	config := coordinator.Config{
		WarmupTime: 100_000, CooldownTime: 100_000, RoundsPerEpoch: 2, MaxRoundTrainTime: 100_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 10_000, GlobalBatchSizeStart: 6, GlobalBatchSizeEnd: 6, TotalSteps: 6,
		InitMinClients: 2, MinClients: 1,
	}
	if change != nil {
		change(&config)
	}
	begun := time.Now()
	host, err := memory.NewHost(memory.Options{
		Now: func() uint64 { return 1_000_000_000 + uint64(time.Since(begun)*speed/time.Millisecond) },
		Genesis: func(id coordinator.ClientID) (coordinator.State, error) {
			return coordinator.New(run, id, config, coordinator.Model{MaxSeqLen: 2, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// TestRunOverSockets lets three clients, one of which joins late, finish a run over
// libp2p on the loopback interface.
func TestRunOverSockets(t *testing.T) {
	host := newHost(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var tasks sync.WaitGroup
	tasks.Go(func() { host.Run(ctx, 20*time.Millisecond) })
	defer tasks.Wait()
	defer cancel()

	trainers := make([]*counter, 3)
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
		trainers[i] = &counter{id: key.ID()}
		node, err := client.New(client.Options{
			Key: key, RunID: run, Backend: b, Data: noData{}, Events: log,
			Network: p2pnet.New(p2ptest.Node(t, "client "+strconv.Itoa(i)), blob.NewStore(8<<20), run),
			NewTrainer: func(ctx context.Context, s checkpoint.Snapshot, _ coordinator.Model) (env.Trainer, error) {
				return trainers[i], trainers[i].Load(ctx, s)
			},
			Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) {
				return (&counter{value: 5}).snapshot(), nil
			},
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
	for s := host.State(); s.RunState == coordinator.WaitingForMembers; s = host.State() {
		if ctx.Err() != nil {
			t.Fatal("the run did not begin")
		}
		time.Sleep(10 * time.Millisecond)
	}
	launch(2)
	clients.Wait()
	if trainers[0].value == 5 || trainers[1].value != trainers[0].value || trainers[2].value != trainers[0].value {
		t.Errorf("the models differ: %x %x %x", trainers[0].value, trainers[1].value, trainers[2].value)
	}
	checkLateJoiner(t, logs[2])
}

// checkLateJoiner checks that the client got its model from peers, and the byte counts.
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
	if ready.Source != "peers" || ready.Bytes < 64<<10 {
		t.Errorf("the late client got its model so: %+v", ready)
	}
	if wire.P2PReceived < 64<<10 || wire.PayloadReceived == 0 || wire.ModelReceived != ready.Bytes {
		t.Errorf("bytes on the wire: %+v", wire)
	}
}
