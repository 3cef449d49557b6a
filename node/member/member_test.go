package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/config"
)

const toyConfig = `{"architectures":["LlamaForCausalLM"],"vocab_size":256,"hidden_size":16,"intermediate_size":32,
"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":32,"eos_token_id":0}`

func requireTorch(t *testing.T) {
	t.Helper()
	err := torch.Load(torch.Options{Threads: 1})
	if torch.Missing(err) && os.Getenv("PSYCHE_REQUIRE_TORCH") != "1" {
		t.Skipf("needs libtorch: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func toyModel(t *testing.T) checkpoint.Snapshot {
	t.Helper()
	tensors, err := model.Init([]byte(toyConfig), 1)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(toyConfig)}}, Tensors: tensors}
}

// definition returns the definition of a run with sequences of seqLen tokens that starts from a
// checkpoint.
func definition(t *testing.T, seqLen int, from string, audited bool) env.Definition {
	t.Helper()
	text := fmt.Sprintf(`run_id = "run"
[config]
init_min_clients = 1
min_clients = 1
warmup_time = 60
rounds_per_epoch = 4
max_round_train_time = 30
round_witness_time = 1
cooldown_time = 30
global_batch_size_start = 2
global_batch_size_end = 2
global_batch_size_warmup_tokens = 0
witness_nodes = 0
verification_percent = 0
total_steps = 8
[model.LLM]
architecture = "HfLlama"
data_type = "Pretraining"
max_seq_len = %d
data_location = "Dummy"
%s
[model.LLM.lr_schedule.Constant]
base_lr = 1.0e-3
warmup_steps = 0
warmup_init_lr = 0.0
[model.LLM.optimizer.Distro]
compression_decay = 0.9
compression_topk = 8
compression_chunk = 32
quantize_1bit = true
clip_grad_norm = 1.0
`, seqLen, from)
	run, err := config.ParseState("state.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	state, err := run.CoordinatorState(coordinator.ClientID{1})
	if err != nil {
		t.Fatal(err)
	}
	return env.Definition{Model: state.Model, Audited: audited}
}

// localDefinition returns the definition of a run whose members make two steps in a round.
func localDefinition(t *testing.T, change ...func(l *config.LocalSteps)) env.Definition {
	t.Helper()
	d := definition(t, 32, ofTheHub, false)
	run, err := config.DecodeModel(d.Definition)
	if err != nil {
		t.Fatal(err)
	}
	run.Optimizer = config.Optimizer{LocalSteps: &config.LocalSteps{
		InnerSteps: 2, Betas: [2]float64{0.9, 0.99}, Eps: 1e-8, OuterLR: 1,
		CompressionTopK: 8, CompressionChunk: 16, ValueBits: 2, ErrorDecay: 1,
	}}
	for _, c := range change {
		c(run.Optimizer.LocalSteps)
	}
	if d.Definition, err = config.EncodeModel(run); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTrainerOfLocalSteps builds the trainer of a run without audits. It then continues with a
// second trainer from the model and optimizer of the first.
func TestTrainerOfLocalSteps(t *testing.T) {
	requireTorch(t)
	var o observer
	f := newFactory(t, &o)
	trainer, err := f.Build(t.Context(), toyModel(t), localDefinition(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, audits := trainer.(env.Auditor); audits {
		t.Error("a trainer without audits can be audited")
	}
	round(t, f, trainer, 1)
	round(t, f, trainer, 2)
	if o.used != 1 || o.step != 2 || o.busy != 0 || len(o.verified) != 2 {
		t.Errorf("notified: %+v", o)
	}
	path := filepath.Join(t.TempDir(), "optimizer")
	saveOptimizer(t, trainer, path)
	snapshot, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Build(t.Context(), snapshot, localDefinition(t))
	if err != nil || o.forgotten != 1 {
		t.Fatalf("built again: %v, %+v", err, o)
	}
	if err := again.(env.OptimizerSaver).LoadOptimizer(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	round(t, f, again, 3)
	audited := localDefinition(t, func(l *config.LocalSteps) { l.ErrorDecay = 0.95 })
	audited.Audited = true
	if trainer, err = f.Build(t.Context(), snapshot, audited); err != nil {
		t.Fatal(err)
	}
	if a, audits := trainer.(env.Auditor); !audits || !slices.Equal(a.Precisions(), []audit.Precision{audit.F32}) {
		t.Error("with audits it reports that it cannot be audited, or not in f32")
	}
	for name, change := range map[string]func(l *config.LocalSteps){
		"no error decay":    func(*config.LocalSteps) {},
		"an outer momentum": func(l *config.LocalSteps) { l.ErrorDecay, l.OuterMomentum = 0.95, 0.5 },
	} {
		refused := localDefinition(t, change)
		refused.Audited = true
		_, err := f.Build(t.Context(), snapshot, refused)
		golden.Message(t, name, err)
	}
}

const (
	ofTheHub = "[model.LLM.checkpoint.Hub]\nrepo_id = \"org/name\"\nrevision = \"0123456789012345678901234567890123456789\""
	ofDummy  = "[model.LLM.checkpoint.Dummy]\nrepo_id = \"\""
)

// observer counts the reports of a trainer.
type observer struct {
	used, forgotten, busy, calls int
	step                         uint32
	verified                     []string
}

func (o *observer) Use(_ eval.LM, s checkpoint.Snapshot) { o.used++; o.step = s.Step }
func (o *observer) Forget()                              { o.forgotten++ }
func (o *observer) Changed(step uint32)                  { o.step = step }

func (o *observer) Busy() (done func()) {
	o.busy++
	o.calls++
	return func() { o.busy-- }
}

func (o *observer) see(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) {
	o.verified = append(o.verified, fmt.Sprintf("%d bytes of step %d, batch %v, trainer %x", len(payload), step, batch, trainer[0]))
}

func newFactory(t *testing.T, o *observer) *Factory {
	t.Helper()
	f := NewFactory(Options{
		Train: train.Options{MicroBatch: 2, Threads: 1, RunID: "run", TrainerID: [32]byte{7}, Verified: o.see},
		OpenData: func(ctx context.Context, run config.Model, of model.Description) (data.Provider, error) {
			return data.New(ctx, run.DataLocations, data.Options{SeqLen: int(run.MaxSeqLen), VocabSize: max(of.VocabSize, 1)})
		},
		Measuring: o,
	})
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// batch reads a batch of the run.
func batch(t *testing.T, f *Factory) data.Batch {
	t.Helper()
	b, err := f.Data().Batch(t.Context(), assign.BatchID{Start: 0, End: 2})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// round trains a step and applies its result.
func round(t *testing.T, f *Factory, trainer env.Trainer, step uint32) {
	t.Helper()
	begun := 0
	payload, _, err := trainer.Train(t.Context(), step, batch(t, f), func(context.Context) error { begun++; return nil })
	if err != nil || begun != 1 {
		t.Fatalf("train: %v, the round began %d times", err, begun)
	}
	if err := trainer.Verify(payload, step, assign.BatchID{Start: 0, End: 2}, [32]byte{7}); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Verify(payload, step+1, assign.BatchID{Start: 0, End: 2}, [32]byte{7}); err == nil {
		t.Fatal("the result is also accepted for a different step")
	}
	if err := trainer.Apply(t.Context(), step, [][]byte{payload}, nil, true); err != nil {
		t.Fatal(err)
	}
}

// TestTrainerOfARun builds trainers as a node does, and trains with them.
func TestTrainerOfARun(t *testing.T) {
	requireTorch(t)
	var o observer
	f := newFactory(t, &o)
	first, err := f.Build(t.Context(), toyModel(t), definition(t, 32, ofTheHub, true))
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint32(2) {
		round(t, f, first, step+1)
	}
	if o.used != 1 || o.step != 2 || o.busy != 0 || o.calls != 4 || len(o.verified) != 2 || !strings.HasSuffix(o.verified[1], "of step 2, batch [0,2), trainer 7") {
		t.Errorf("notified: %+v", o)
	}
	reference, err := first.(env.Auditor).Recompute(t.Context(), audit.Recomputation{Step: 3, Weights: 2, Chunks: []uint32{0}}, batch(t, f))
	if err != nil || len(reference.Updates) != 1 || o.calls != 5 {
		t.Errorf("recompute: %v, %v, %d calls", err, reference, o.calls)
	}
	snapshot, err := first.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.Build(t.Context(), snapshot, definition(t, 16, ofTheHub, false))
	if err != nil || o.forgotten != 1 || o.used != 2 || len(batch(t, f).Sequences[0]) != 17 {
		t.Errorf("built again: %v, %+v", err, o)
	}
	if _, err := first.Snapshot(t.Context()); err == nil {
		t.Error("the previous trainer is still open")
	}
	round(t, f, second, 3)
}

const expertsConfig = `{"architectures":["MixtralForCausalLM"],"vocab_size":256,"hidden_size":16,"intermediate_size":32,
"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":2,"max_position_embeddings":32,"eos_token_id":0,
"num_local_experts":4,"num_experts_per_tok":2}`

// TestAuditedExpertsComputeInF32 checks that bf16 is refused, because tokens would be routed
// differently on different machines.
func TestAuditedExpertsComputeInF32(t *testing.T) {
	requireTorch(t)
	var o observer
	f := newFactory(t, &o)
	f.options.Computing = func(context.Context, model.Description) (model.Options, error) {
		return model.Options{Compute: torch.BF16}, nil
	}
	tensors, err := model.Init([]byte(expertsConfig), 1)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(expertsConfig)}}, Tensors: tensors}
	audited := definition(t, 32, ofTheHub, true)
	run, err := config.DecodeModel(audited.Definition)
	if err != nil {
		t.Fatal(err)
	}
	run.Architecture = config.HfAuto
	if audited.Definition, err = config.EncodeModel(run); err != nil {
		t.Fatal(err)
	}
	trainer, err := f.Build(t.Context(), snapshot, audited)
	if err != nil {
		t.Fatal(err)
	}
	if got := trainer.(env.Auditor).Precisions(); got[0] != audit.F32 {
		t.Errorf("the trainer computes in %v", got[0])
	}
	payload, _, err := trainer.Train(t.Context(), 1, batch(t, f), func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	id, key := assign.BatchID{Start: 0, End: 2}, [32]byte{7}
	if err := trainer.Verify(payload, 1, id, key); err != nil {
		t.Fatal(err)
	}
	const precision = 126 // offset of the number type in a result's header
	if payload[precision] != audit.F32.Code() {
		t.Fatalf("the header reports %d", payload[precision])
	}
	payload[precision] = audit.BF16.Code()
	if err := trainer.Verify(payload, 1, id, key); !errors.Is(err, train.ErrResult) || !strings.Contains(err.Error(), "bf16") {
		t.Errorf("a result in bf16: %v", err)
	}
}

// TestOptimizerIsKept checks that a second process continues where the first ended.
func TestOptimizerIsKept(t *testing.T) {
	requireTorch(t)
	path := filepath.Join(t.TempDir(), train.OptimizerFile)
	var payloads [2][]byte
	var model checkpoint.Snapshot
	for i := range payloads {
		f := newFactory(t, &observer{})
		if i == 0 {
			model = toyModel(t)
		}
		trainer, err := f.Build(t.Context(), model, definition(t, 32, ofTheHub, false))
		if err != nil {
			t.Fatal(err)
		}
		saver := trainer.(env.OptimizerSaver)
		if i == 0 {
			round(t, f, trainer, 1)
			if model, err = trainer.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			saveOptimizer(t, trainer, path)
		} else {
			err = saver.LoadOptimizer(t.Context(), path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if payloads[i], _, err = trainer.Train(t.Context(), 2, batch(t, f), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if string(payloads[0]) != string(payloads[1]) {
		t.Error("the second process has a different result")
	}
}

func saveOptimizer(t *testing.T, trainer env.Trainer, path string) {
	t.Helper()
	_, write, err := trainer.(env.OptimizerSaver).SaveOptimizer(t.Context(), 0)
	if err == nil {
		err = write(path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDummyOfARun builds the trainers of runs that test the network, which do not need libtorch.
func TestDummyOfARun(t *testing.T) {
	for _, audited := range []bool{false, true} {
		var o observer
		f := newFactory(t, &o)
		trainer, err := f.Build(t.Context(), dummy.Model(), definition(t, 32, ofDummy, audited))
		if err != nil {
			t.Fatal(err)
		}
		if _, audits := trainer.(env.Auditor); audits != audited || trainer.ApplyLag() != 1 {
			t.Errorf("audited %v: the trainer is %T", audited, trainer)
		}
		round(t, f, trainer, 1)
		if len(o.verified) != 1 || o.used != 0 {
			t.Errorf("audited %v: notified %+v", audited, o)
		}
	}
}

// TestModelIsRefused checks that an unsuitable model is refused before its data is opened, and that
// a model without data is not used.
func TestModelIsRefused(t *testing.T) {
	var o observer
	f := newFactory(t, &o)
	_, err := f.Build(t.Context(), toyModel(t), definition(t, 33, ofTheHub, false))
	golden.Message(t, "too short a model", err)
	if _, err := f.Data().Batch(t.Context(), assign.BatchID{Start: 0, End: 2}); err == nil {
		t.Error("its data is open")
	}
	gone := errors.New("no data")
	f.options.OpenData = func(context.Context, config.Model, model.Description) (data.Provider, error) { return nil, gone }
	if _, err := f.Build(t.Context(), toyModel(t), definition(t, 32, ofTheHub, false)); !errors.Is(err, gone) || o.used != 0 {
		t.Errorf("no data: %v", err)
	}
}
