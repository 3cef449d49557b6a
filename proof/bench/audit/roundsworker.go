package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/config"
)

// roundsWorkerCommand is a trainer of local steps with the libraries of its environment.
type roundsWorkerCommand struct {
	Model   string
	Threads int
	BF16    bool `name:"bf16"`
	Data    int
	LR      float64
	Final   float64
	Rounds  uint32
	Inner   uint32
	Muon    bool
	Beta1   float64 `name:"beta1"`
	Micro   int
	ID      uint8 `name:"id"`
}

// roundRequest requests the shapes, training a round and opening it, dropping it, an audit, or
// applying results.
type roundRequest struct {
	Op       string
	Step     uint32
	Slot     int // index of the batch in the round
	Batch    [][]int32
	Chunks   []uint32
	Claims   []roundClaim
	Trainer  [32]byte
	Payloads [][]byte
}

// roundClaim is a trainer's claim about a round.
type roundClaim struct {
	Payload []byte
	Opening audit.Opening
	Root    [32]byte // of the result that it continues from
}

type roundAnswer struct {
	Error   string
	Shapes  audit.Shapes
	Payload []byte
	Header  codec.Header
	Opening audit.Opening
	Reports []audit.Report
	Shaken  []audit.Report // of claims that do not match; else the same
}

func (a roundAnswer) claim(root [32]byte) roundClaim { return roundClaim{a.Payload, a.Opening, root} }

func roundAsk(t *roundTrainer, r roundRequest) (a roundAnswer, err error) {
	if err := errors.Join(t.out.Encode(r), t.in.Decode(&a)); err != nil {
		return a, fmt.Errorf("stack %s: %w", t.name, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("stack %s: %s", t.name, a.Error)
	}
	return a, nil
}

func (c *roundsWorkerCommand) Run(ctx context.Context) error {
	text, err := os.ReadFile(c.Model)
	if err != nil {
		return err
	}
	tensors, err := model.Init(text, 1)
	if err != nil {
		return err
	}
	compute := model.Options{}
	if c.BF16 {
		compute.Compute = torch.BF16
	}
	optimizer := &config.LocalSteps{
		InnerSteps: uint16(c.Inner), Betas: [2]float64{c.Beta1, 0.99}, Eps: 1e-8, WeightDecay: 0.1, ClipGradNorm: 1,
		OuterLR: 1, CompressionTopK: 32, CompressionChunk: 32, ValueBits: 2, ErrorDecay: 0.95,
	}
	if c.Muon {
		optimizer.InnerOptimizer = config.Muon
	}
	t, err := train.NewLocal(ctx, train.Options{
		Model:      checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: text}}, Tensors: tensors},
		Optimizer:  config.Optimizer{LocalSteps: optimizer},
		LRSchedule: config.LRSchedule{Cosine: &config.CosineLR{BaseLR: c.LR, WarmupSteps: 10, TotalSteps: c.Rounds, FinalLR: c.Final}},
		Compute:    compute, MicroBatch: max(c.Micro, 1), Threads: c.Threads, Parallel: train.Parallelism{Data: c.Data},
		RunID: runID, TrainerID: [32]byte{c.ID}, Audited: true,
	})
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }()
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	for {
		var r roundRequest
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		a, err := r.serve(ctx, t)
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}

func (r roundRequest) serve(ctx context.Context, t *train.Trainer) (a roundAnswer, err error) {
	n := uint64(len(r.Batch))
	batch := data.Batch{ID: assign.BatchID{Start: uint64(r.Slot) * n, End: uint64(r.Slot+1) * n}, Sequences: r.Batch}
	switch r.Op {
	case "shapes":
		a.Shapes = t.Shapes()
	case "train":
		if a.Payload, _, err = t.Train(ctx, r.Step, batch, nil); err != nil {
			return a, err
		}
		if a.Header, _, err = t.Decode(a.Payload); err == nil {
			a.Opening, err = t.Open(r.Step, r.Chunks)
		}
	case "drop":
		err = t.SetAttested(r.Step, false)
	case "apply":
		err = t.Apply(ctx, r.Step, r.Payloads, nil, true)
	case "audit":
		return r.audit(ctx, t, batch)
	}
	return a, err
}

func (r roundRequest) audit(ctx context.Context, t *train.Trainer, batch data.Batch) (a roundAnswer, err error) {
	x := audit.Recomputation{Step: r.Step, Trainer: r.Trainer, Weights: r.Step - 1, Chunks: r.Chunks, Precision: t.Precisions()[0]}
	reference, err := t.Recompute(ctx, x, batch)
	if err != nil {
		return a, err
	}
	x.Shaken = true
	var shaken *audit.Reference
	for _, c := range r.Claims {
		claim := audit.Claim{Opening: c.Opening, PreviousRoot: c.Root}
		if claim.Header, claim.Result, err = t.Decode(c.Payload); err != nil {
			return a, err
		}
		report := reference.Check(claim)
		a.Reports = append(a.Reports, report)
		if report.Judge(reference.Limits) != audit.Passed {
			if shaken == nil {
				if shaken, err = t.Recompute(ctx, x, batch); err != nil {
					return a, err
				}
			}
			report = shaken.Check(claim)
		}
		a.Shaken = append(a.Shaken, report)
	}
	return a, nil
}
