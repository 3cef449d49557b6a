package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/proof/bench/momenta"
)

// oldCommand audits older steps, as jurors do: it reconstructs their weights from the current ones.
type oldCommand struct {
	Model     string  `default:"proof/bench/parity/model-small.json" type:"existingfile" help:"config.json of the model."`
	Text      string  `type:"path" help:"Folder of the .go files to train on. Default: the standard library."`
	Steps     uint32  `default:"60" help:"Training steps."`
	Most      uint32  `default:"12" help:"Steps applied before the last audit of a step."`
	Sequences int     `default:"4" help:"Sequences of a batch."`
	Length    int     `default:"64" help:"Tokens of a sequence."`
	LR        float64 `default:"0.001" help:"Learning rate."`
	BF16      bool    `name:"bf16" help:"Compute in bf16."`
	Seed      uint64  `default:"1" help:"Seed of the batches."`
}

// past is a trained step with the data for its audit.
type past struct {
	step     uint32
	batch    data.Batch
	payload  []byte
	from, to *momenta.State
}

func (c *oldCommand) Run(ctx context.Context) (err error) {
	text, err := readText(c.Text)
	if err != nil {
		return err
	}
	trainer, err := newTrainer(ctx, c.Model, options{lr: c.LR, threads: 1, micro: c.Sequences, bf16: c.BF16, signs: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trainer.Close()) }()
	cut, err := momenta.New(trainer.Shapes(), cuts(momentumDecay))
	if err != nil {
		return err
	}
	if c.Most < 1 || c.Steps < c.Most {
		return fmt.Errorf("--most %d of %d steps: want 1 or more, and as many steps", c.Most, c.Steps)
	}
	random, state := rand.New(rand.NewPCG(c.Seed, 0)), cut.Begin()
	var steps []*past // newest first
	errs := make([][]float64, c.Most+1)
	worst, stopped := make([]float64, c.Most+1), make([]int, c.Most+1)
	for step := uint32(1); step <= c.Steps; step++ {
		p := &past{step: step, from: state, batch: data.Batch{ID: assign.BatchID{End: uint64(c.Sequences)}, Sequences: cutText(text, random, c.Sequences, c.Length)}}
		reference, err := trainer.Recompute(ctx, p.recomputation(trainer, nil), p.batch)
		if err != nil {
			return err
		}
		if p.to, err = cut.Advance(state, step, cut.Tensors(reference.Updates, nil), nil); err != nil {
			return err
		}
		state = p.to
		if p.payload, err = cut.Payload(p.to, 0, 0, uint64(c.Sequences)); err != nil {
			return err
		}
		if err := trainer.Apply(ctx, step, [][]byte{p.payload}, false); err != nil {
			return err
		}
		steps = append([]*past{p}, steps[:min(len(steps), int(c.Most)-1)]...)
		for i, old := range steps {
			report, err := old.audit(ctx, trainer, cut, steps[:i+1])
			if err != nil {
				return err
			}
			errs[i+1] = append(errs[i+1], report.Error)
			for _, f := range report.Chunks {
				worst[i+1] = max(worst[i+1], f.Error)
			}
			if report.Judge(trainer.Precisions()[0].Limits()) != audit.Passed {
				stopped[i+1]++
			}
		}
	}
	fmt.Printf("%v, %d steps of %d × %d tokens, seed %d\n\n| applied since | audits | error: median, largest | of a chunk, largest | stopped |\n|---|---|---|---|---|\n",
		trainer.Precisions()[0], c.Steps, c.Sequences, c.Length, c.Seed)
	for k := uint32(1); k <= c.Most; k++ {
		slices.Sort(errs[k])
		fmt.Printf("| %d | %d | %.2g, %.2g | %.2g | %d |\n", k, len(errs[k]), errs[k][len(errs[k])/2], errs[k][len(errs[k])-1], worst[k], stopped[k])
	}
	return nil
}

// recomputation returns the recomputation of all chunks of the step, with the steps applied since
// and the step itself, newest first.
func (p *past) recomputation(trainer *train.Trainer, since []*past) audit.Recomputation {
	x := audit.Recomputation{Step: p.step, Weights: p.step - 1, Chunks: momenta.All(trainer.Shapes()), Precision: trainer.Precisions()[0], Trainer: momenta.Key(0)}
	for _, s := range since {
		x.Applied = append(x.Applied, audit.Applied{Step: s.step, Payloads: [][]byte{s.payload}})
	}
	return x
}

func (p *past) audit(ctx context.Context, trainer *train.Trainer, cut *momenta.Cutting, since []*past) (audit.Report, error) {
	reference, err := trainer.Recompute(ctx, p.recomputation(trainer, since), p.batch)
	if err != nil {
		return audit.Report{}, err
	}
	drawn := audit.Chunks([32]byte{byte(len(since))}, p.step, momenta.Key(0), cut.Shapes, audit.DefaultChunks, nil)
	claim, err := cut.Claim(p.from, p.to, momenta.Key(0), drawn)
	if err != nil {
		return audit.Report{}, err
	}
	return momenta.Reference(reference, momenta.Key(0), drawn).Check(claim), nil
}
