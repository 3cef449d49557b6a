package cheat_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/memnet"
	"github.com/psyche-go/psyche/proof/e2e/cheat"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

const toyModel = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":128,"hidden_size":32,
"intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":32,
"tie_word_embeddings":true}`

// tokens are sequences that contain information about the next token.
type tokens struct{}

func (tokens) Batch(_ context.Context, id assign.BatchID) (data.Batch, error) {
	b := data.Batch{ID: id}
	for i := id.Start; i < id.End; i++ {
		sequence := make([]int32, 17)
		for j := range sequence {
			sequence[j] = int32((i*7 + uint64(j*j)*(i%5+1)) % 128)
		}
		b.Sequences = append(b.Sequences, sequence)
	}
	return b, nil
}

func snapshot(t *testing.T) checkpoint.Snapshot {
	t.Helper()
	tensors, err := model.Init([]byte(toyModel), 1)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(toyModel)}}, Tensors: tensors}
}

// member is a client with a real trainer.
type member struct {
	id   identity.ID
	node *client.Node
	done chan struct{}
	err  error

	eventsPath string
}

// launch starts client n of a run.
func launch(ctx context.Context, t *testing.T, hub *memnet.Hub, attach func(identity.Key) (env.Backend, error), n int, attack cheat.Attack, optimizer config.Optimizer, compute torch.DType) *member {
	key := clienttest.Key(n)
	backend, err := attach(key)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{id: key.ID(), done: make(chan struct{}), eventsPath: filepath.Join(t.TempDir(), "events.jsonl")}
	events, err := event.Open(m.eventsPath)
	if err != nil {
		t.Fatal(err)
	}
	var made interface {
		cheat.Honest
		io.Closer
	}
	o := client.Options{
		Key: key, RunID: clienttest.RunID, Events: events, Backend: backend, Network: hub.Attach(m.id), Data: tokens{}, FinalWait: -1,
		Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) { return snapshot(t), nil },
		NewTrainer: func(ctx context.Context, s checkpoint.Snapshot, run env.Definition) (env.Trainer, error) {
			o := train.Options{
				Model: s, MicroBatch: 2, Threads: 1, RunID: clienttest.RunID, TrainerID: m.id, Audited: run.Audited,
				Compute: model.Options{Compute: compute}, Optimizer: optimizer,
				LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 2e-3}},
			}
			// With steps of some milliseconds, a member that waits for a processor would be late
			// for its round.
			cheats := &cheat.Trainer{ID: m.id, Attack: attack, Pace: 40 * time.Millisecond}
			if optimizer.LocalSteps == nil {
				t, err := train.New(ctx, o)
				made, cheats.Honest = t, t
				return cheats, err
			}
			t, err := train.NewLocal(ctx, o)
			made, cheats.Honest, cheats.Levels = t, t, int(optimizer.LocalSteps.ValueBits)
			return cheats, err
		},
	}
	if os.Getenv("PSYCHE_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if m.node, err = client.New(o); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(m.done)
		m.err = errors.Join(m.node.Run(ctx), events.Close())
		if made != nil {
			m.err = errors.Join(m.err, made.Close())
		}
	}()
	return m
}

// TestTwoCheatsAreEjected has eight members with a real, small model. Two of them cheat, each in a
// different way. Juries must eject both cheats and no other member, and the other members must end
// with one model. One honest member computes in bf16 if the machine can, the other members compute
// in f32.
func TestTwoCheatsAreEjected(t *testing.T) {
	other := torch.F32
	if torchtest.BF16(t) {
		other = torch.BF16
	}
	for name, attacks := range map[string][2]cheat.Attack{
		"turned sign and half a batch": {cheat.TurnedSign, cheat.HalfBatch},
		"a copy and noise":             {cheat.Copy, cheat.Noise},
		"an old and another batch":     {cheat.OldBatch, cheat.AnotherBatch},
	} {
		t.Run(name, func(t *testing.T) { ejectBoth(t, 200, attacks, distro, other) })
	}
}

var distro = config.Optimizer{Distro: &config.Distro{
	CompressionDecay: 0.9, CompressionTopK: 8, CompressionChunk: 16, Quantize1Bit: true, WeightDecay: 0.01, ClipGradNorm: 1,
}}

// localSteps are three steps per round, with one sequence each.
var localSteps = config.Optimizer{LocalSteps: &config.LocalSteps{
	InnerSteps: 3, Betas: [2]float64{0.9, 0.99}, Eps: 1e-8, WeightDecay: 0.01, ClipGradNorm: 1,
	OuterLR: 1, CompressionTopK: 16, CompressionChunk: 16, ValueBits: 2, ErrorDecay: 0.95,
}}

// TestCheatsOfLocalStepsAreEjected is TestTwoCheatsAreEjected for a run of local steps. One cheat
// is honest in all steps of a round except one. The other cheat copies results.
func TestCheatsOfLocalStepsAreEjected(t *testing.T) {
	ejectBoth(t, 200, [2]cheat.Attack{cheat.OneStep, cheat.Copy}, localSteps, torch.F32)
}

// TestHonestLocalSteps checks that none of eight members that make local steps is accused, whatever
// else the machine does, and that the members audit each other.
func TestHonestLocalSteps(t *testing.T) {
	outcomes := map[string]int{}
	for _, m := range ejectBoth(t, 60, [2]cheat.Attack{}, localSteps, torch.F32) {
		text, err := os.ReadFile(m.eventsPath)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			e, err := event.Decode(bytes.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			switch body := e.Body.(type) {
			case event.Audit:
				if outcomes[body.Outcome]++; body.Outcome == "faulty" || body.Outcome == "silent" {
					t.Errorf("%s reports about an honest member: %+v", m.id.Short(), body)
				}
			case event.Accused:
				t.Errorf("%s accused an honest member: %+v", m.id.Short(), body)
			}
		}
	}
	if outcomes["passed"] < 10 {
		t.Errorf("audits: %v, want some passed audits", outcomes)
	}
	t.Logf("audits: %v", outcomes)
}

// ejectBoth has two cheats among eight members, except for empty attacks. It returns the other
// members after the rounds of the run. One of these members computes in a different type.
func ejectBoth(t *testing.T, rounds uint32, attacks [2]cheat.Attack, optimizer config.Optimizer, other torch.DType) (honest []*member) {
	const members = 8
	c := clienttest.Config(members)
	c.VerificationPercent, c.EjectionEpochs, c.WitnessNodes = 30, 1, 0
	c.RoundsPerEpoch, c.TotalSteps, c.GlobalBatchSizeStart, c.GlobalBatchSizeEnd = rounds, rounds, 24, 24
	c.RoundWitnessTime, c.WaitingForMembersExtraTime = 500, 100
	host := clienttest.Host(t, c, func() uint64 { return uint64(time.Now().UnixMilli()) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	var running sync.WaitGroup
	running.Go(func() { host.Run(ctx, 20*time.Millisecond) })
	t.Cleanup(func() { cancel(); running.Wait() })
	hub := &memnet.Hub{}
	attach := func(key identity.Key) (env.Backend, error) { return host.Attach(key) }
	var cheats []*member
	for i := range members {
		switch {
		case i < 2 && attacks[i] != cheat.None:
			cheats = append(cheats, launch(ctx, t, hub, attach, i, attacks[i], optimizer, torch.F32))
		case i == 2:
			honest = append(honest, launch(ctx, t, hub, attach, i, cheat.None, optimizer, other))
		default:
			honest = append(honest, launch(ctx, t, hub, attach, i, cheat.None, optimizer, torch.F32))
		}
	}
	for _, m := range append(slices.Clone(honest), cheats...) {
		<-m.done
	}
	state := host.State()
	for i, m := range cheats {
		at := slices.IndexFunc(state.Authority.Ejections, func(e coordinator.Ejection) bool { return e.Client == coordinator.ClientID(m.id) })
		if at < 0 || state.Authority.Ejections[at].Reason != coordinator.FoundGuilty {
			t.Errorf("attack %v was not found: ejections %+v", attacks[i], state.Authority.Ejections)
		}
	}
	if len(state.Authority.Ejections) != len(cheats) {
		t.Errorf("ejected: %+v", state.Authority.Ejections)
	}
	for _, m := range honest {
		digest, step, ok := m.node.Model()
		if m.err != nil || !ok || digest != state.Model.Checkpoint.Digest || step != state.Progress.Step-1 {
			t.Errorf("%s: %v; has a model: %v, of step %d", m.id.Short(), m.err, ok, step)
		}
	}
	return honest
}
