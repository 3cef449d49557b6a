package main

import (
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/proof/bench/momenta"
	"github.com/psyche-go/psyche/record/config"
)

// workerCommand is a trainer with the libraries of its environment. It answers requests on its
// standard input until the end of the input.
type workerCommand struct {
	Model   string
	Threads int
	BF16    bool `name:"bf16"`
	Data    int
	LR      float64
	Decay   float64
	Micro   int
}

// request requests the update of a batch from the current weights or, with payloads, to apply a
// step.
type request struct {
	Step     uint32
	Batch    [][]int32
	Payloads [][]byte
	Held     [][]int32 // sequences whose loss is requested
}

// answer is the update of every chunk.
type answer struct {
	Error   string
	Shapes  audit.Shapes
	Updates [][]float32
	Usual   []float64
	Longest float64
	Most    float64
	Loss    float64
}

func (c *workerCommand) Run(ctx context.Context) error {
	trainer, err := newTrainer(ctx, c.Model, options{lr: c.LR, decay: c.Decay, threads: c.Threads, bf16: c.BF16, data: c.Data, micro: c.Micro, signs: true})
	if err != nil {
		return err
	}
	defer func() { _ = trainer.Close() }()
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	for {
		var r request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		a, err := r.serve(ctx, trainer)
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}

func (r request) serve(ctx context.Context, t *train.Trainer) (a answer, err error) {
	a.Shapes = t.Shapes()
	if len(r.Payloads) > 0 {
		return a, t.Apply(ctx, r.Step, r.Payloads, nil, false)
	}
	if len(r.Held) > 0 {
		a.Loss, err = t.Evaluate(ctx, r.Held)
		return a, err
	}
	if len(r.Batch) == 0 {
		return a, nil
	}
	reference, err := t.Recompute(ctx, audit.Recomputation{
		Step: r.Step, Weights: r.Step - 1, Chunks: momenta.All(a.Shapes), Precision: t.Precisions()[0],
	}, data.Batch{ID: assign.BatchID{End: uint64(len(r.Batch))}, Sequences: r.Batch})
	if err != nil {
		return a, err
	}
	a.Updates, a.Usual, a.Longest, a.Most = reference.Updates, reference.Usual, reference.Longest, reference.Most
	return a, nil
}

const runID = "bench"

// options are the differences between trainers of this program.
type options struct {
	lr, decay     float64 // if decay is 0: the decay of runs with many parameters
	threads, data int
	micro         int
	bf16, signs   bool
	audited       bool
	id            byte
}

// The optimizer of all runs here.
const (
	momentumDecay = 0.999
	topK          = 8
	chunkEdge     = 64
)

func newTrainer(ctx context.Context, path string, o options) (*train.Trainer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tensors, err := model.Init(text, 1)
	if err != nil {
		return nil, err
	}
	compute := model.Options{}
	if o.bf16 {
		compute.Compute = torch.BF16
	}
	return train.New(ctx, train.Options{
		Model: checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: text}}, Tensors: tensors},
		Optimizer: config.Optimizer{Distro: &config.Distro{
			ClipGradNorm: 1, CompressionDecay: cmp.Or(o.decay, momentumDecay), CompressionTopK: topK, CompressionChunk: chunkEdge, Quantize1Bit: o.signs,
		}},
		LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: o.lr, WarmupSteps: 10}},
		Compute:    compute,
		MicroBatch: max(o.micro, 1), Threads: o.threads, Parallel: train.Parallelism{Data: o.data},
		RunID: runID, TrainerID: [32]byte{o.id}, Audited: o.audited,
	})
}
