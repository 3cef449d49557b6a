package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/data/local"
	"github.com/psyche-go/psyche/model"
	"github.com/psyche-go/psyche/train"
)

type soloCommand struct {
	Model      string `required:"" type:"existingdir" placeholder:"DIR" help:"Hugging Face folder of the model to start from."`
	DataPath   string `required:"" type:"path" placeholder:"PATH" help:"Folder of token files, or one token file."`
	TokenSize  int    `default:"2" enum:"2,4" help:"Bytes of a token in the files: ${enum}."`
	SeqLen     int    `default:"256" help:"Tokens of a sequence."`
	Shuffle    uint64 `default:"0" placeholder:"SEED" help:"Order of the sequences; 0: as in the files."`
	TotalBatch int    `default:"24" help:"Sequences of a step."`
	MicroBatch int    `default:"8" help:"Sequences that go through the model at once."`
	Steps      uint32 `default:"100" help:"Steps to train, those before a resume included."`

	HeldOut          string `type:"path" placeholder:"PATH" help:"Token file or folder that is only measured, before and after."`
	HeldOutSequences uint64 `default:"64" placeholder:"N" help:"Sequences of it to use; 0: all."`

	Save      string      `type:"path" placeholder:"DIR" help:"Folder for the model and the optimizer's state; a training that it holds is resumed."`
	SaveEvery uint32      `default:"0" placeholder:"N" help:"Save every N steps as well as at the end; 0: only then."`
	LogEvery  uint32      `default:"10" placeholder:"N" help:"Print the loss every N steps."`
	Threads   threadCount `placeholder:"N" help:"Threads of libtorch; 0: OMP_NUM_THREADS, else one for each CPU."`

	libraryFlags  `embed:""`
	computeFlags  `embed:""`
	parallelFlags `embed:""`
	soloOptimizer
}

// soloOptimizer are the flags of optimizer and learning rate.
type soloOptimizer struct {
	Optimizer    string  `default:"adamw" enum:"adamw,distro" help:"How gradients change the weights: ${enum}."`
	LR           float64 `default:"0.001" help:"Learning rate after the warmup."`
	LRSchedule   string  `default:"cosine" enum:"constant,linear,cosine" help:"How it falls after that: ${enum}."`
	FinalLR      float64 `default:"0.0001" help:"Learning rate at the last step, of linear and cosine."`
	WarmupSteps  *uint32 `placeholder:"N" help:"Steps in which it rises from 0. Default: a tenth of the steps, at most 10."`
	WeightDecay  float64 `default:"0" help:"Decoupled weight decay."`
	ClipGradNorm float64 `default:"1" help:"Largest norm of the gradient; 0: any."`

	Beta1 float64 `default:"0.9" help:"Of adamw: decay of the mean gradient."`
	Beta2 float64 `default:"0.95" help:"Of adamw: decay of the mean square."`
	Eps   float64 `default:"1e-8" help:"Of adamw: added to the root of the mean square."`

	CompressionDecay float64 `default:"0.999" help:"Of distro: decay of the momentum."`
	CompressionTopK  uint16  `name:"compression-topk" default:"8" help:"Of distro: coefficients kept of each chunk."`
	CompressionChunk uint16  `default:"64" help:"Of distro: largest side of a chunk."`
	Quantize1Bit     bool    `name:"quantize-1bit" default:"true" negatable:"" help:"Of distro: keep signs only."`
}

// learner is a trainer of either kind.
type learner interface {
	Step(ctx context.Context, step uint32, batch data.Batch) (loss float64, err error)
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	Snapshot(ctx context.Context) (checkpoint.Snapshot, error)
	OptimizerState(ctx context.Context) (train.OptimizerState, error)
	SetOptimizerState(ctx context.Context, s train.OptimizerState) error
	Elements() int64
	Close() error
}

func (o soloOptimizer) options(steps uint32) (config.Optimizer, config.LRSchedule) {
	var optimizer config.Optimizer
	if o.Optimizer == "adamw" {
		optimizer.AdamW = &config.AdamW{Betas: [2]float64{o.Beta1, o.Beta2}, Eps: o.Eps, WeightDecay: o.WeightDecay, ClipGradNorm: o.ClipGradNorm}
	} else {
		optimizer.Distro = &config.Distro{
			ClipGradNorm: o.ClipGradNorm, WeightDecay: o.WeightDecay, CompressionDecay: o.CompressionDecay,
			CompressionTopK: o.CompressionTopK, CompressionChunk: o.CompressionChunk, Quantize1Bit: o.Quantize1Bit,
		}
	}
	warmup := min(steps/10, 10)
	if o.WarmupSteps != nil {
		warmup = *o.WarmupSteps
	}
	var lr config.LRSchedule
	switch o.LRSchedule {
	case "constant":
		lr.Constant = &config.ConstantLR{BaseLR: o.LR, WarmupSteps: warmup}
	case "linear":
		lr.Linear = &config.LinearLR{BaseLR: o.LR, WarmupSteps: warmup, TotalSteps: steps, FinalLR: o.FinalLR}
	case "cosine":
		lr.Cosine = &config.CosineLR{BaseLR: o.LR, WarmupSteps: warmup, TotalSteps: steps, FinalLR: o.FinalLR}
	}
	return optimizer, lr
}

// solo is a training in progress.
type solo struct {
	options   soloCommand
	terminal  terminal
	learner   learner
	data      *local.Folder
	heldOut   [][]int32
	step      uint32 // newest finished one
	dataIndex uint64 // first sequence that was not trained on
	started   time.Time
	trained   int // tokens since started
}

// Run trains until the last step or an interrupt, and saves either way.
func (c *soloCommand) Run(ctx context.Context, t terminal) error {
	if c.TotalBatch < 1 || c.MicroBatch < 1 || c.Steps < 1 {
		return fmt.Errorf("--total-batch %d, --micro-batch %d, --steps %d: want at least 1", c.TotalBatch, c.MicroBatch, c.Steps)
	}
	if err := c.checkParallelism(); err != nil {
		return err
	}
	if c.LogEvery < 1 {
		return errors.New("--log-every is 0: want at least 1")
	}
	s, err := c.open(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	err = s.train(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	// An interrupted training is saved too: its steps are done.
	return errors.Join(s.save(context.WithoutCancel(ctx)), err)
}

// open checks everything before the first step: an error must not come after an hour.
func (c *soloCommand) open(ctx context.Context, t terminal) (*solo, error) {
	s := &solo{options: *c, terminal: t}
	initial, state, err := c.start()
	if err != nil {
		return nil, err
	}
	description, err := describe(initial)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Model, err)
	}
	if err := s.openData(ctx, description); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := c.load(c.Threads, t.logger()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	devices, err := c.trainingDevices(c.deviceFlags)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	compute, err := c.computing(ctx, devices, t.logger())
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	optimizer, lr := c.options(c.Steps)
	options := train.Options{
		Model: initial, Optimizer: optimizer, LRSchedule: lr, Compute: compute, MicroBatch: c.MicroBatch,
		Devices: devices, Parallel: c.parallelism(), Threads: int(c.Threads), RunID: "solo", Logger: t.logger(),
	}
	if c.Optimizer == "adamw" {
		s.learner, err = asLearner(train.NewAdamW(ctx, options))
	} else {
		s.learner, err = asLearner(train.New(ctx, options))
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	if state != nil {
		if err := s.learner.SetOptimizerState(ctx, *state); err != nil {
			return nil, errors.Join(fmt.Errorf("resume from %s: %w", c.Save, err), s.close())
		}
		s.step, s.dataIndex = state.Step, state.DataIndex
	}
	return s, nil
}

// asLearner keeps a nil trainer from becoming an interface that is not nil.
func asLearner[T learner](trainer T, err error) (learner, error) {
	if err != nil {
		return nil, err
	}
	return trainer, nil
}

// start returns the model to begin with: that of --save and its optimizer's state when a
// training was saved there, else that of --model.
func (c *soloCommand) start() (checkpoint.Snapshot, *train.OptimizerState, error) {
	if c.Save == "" {
		s, err := checkpoint.ReadDir(c.Model)
		return s, nil, err
	}
	path := filepath.Join(c.Save, train.OptimizerFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if entries, err := os.ReadDir(c.Save); err == nil && len(entries) > 0 {
			return checkpoint.Snapshot{}, nil, fmt.Errorf("--save %s is not empty and holds no training to resume (no %s); choose another folder", c.Save, train.OptimizerFile)
		}
		s, err := checkpoint.ReadDir(c.Model)
		return s, nil, err
	}
	state, err := train.ReadOptimizerState(path)
	if err != nil {
		return checkpoint.Snapshot{}, nil, fmt.Errorf("resume: %w", err)
	}
	if state.Optimizer != c.Optimizer {
		return checkpoint.Snapshot{}, nil, fmt.Errorf("--save %s holds a training with --optimizer %s, not %s", c.Save, state.Optimizer, c.Optimizer)
	}
	s, err := checkpoint.ReadDir(c.Save)
	return s, &state, err
}

func (s *solo) openData(ctx context.Context, description model.Description) error {
	c := s.options
	if c.SeqLen > description.MaxTokens {
		return fmt.Errorf("--seq-len %d: the model's max_position_embeddings is %d", c.SeqLen, description.MaxTokens)
	}
	options := local.Options{SeqLen: c.SeqLen, TokenSize: c.TokenSize, VocabSize: description.VocabSize}
	if c.HeldOut != "" {
		var err error
		if s.heldOut, err = readFirst(ctx, c.HeldOut, options, c.HeldOutSequences); err != nil {
			return err
		}
	}
	if c.Shuffle != 0 {
		options.Seed = new([32]byte)
		binary.LittleEndian.PutUint64(options.Seed[:], c.Shuffle)
	}
	var err error
	s.data, err = local.Open(c.DataPath, options)
	return err
}

func (s *solo) close() error {
	var errs []error
	if s.learner != nil {
		errs = append(errs, s.learner.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.Close())
	}
	return errors.Join(errs...)
}

func (s *solo) train(ctx context.Context) error {
	s.printf("%d parameters, %s, %d tokens a step, step %d of %d done\n",
		s.learner.Elements(), s.options.Optimizer, s.options.TotalBatch*s.options.SeqLen, s.step, s.options.Steps)
	if err := s.printHeldOut(ctx); err != nil {
		return err
	}
	s.started = time.Now()
	for s.step < s.options.Steps {
		loss, err := s.next(ctx)
		if err != nil {
			return err
		}
		if s.step%s.options.LogEvery == 0 || s.step == s.options.Steps || s.trained == s.options.TotalBatch*s.options.SeqLen {
			s.printf("step %d/%d  loss %.4f  %.0f tokens/s\n", s.step, s.options.Steps, loss, float64(s.trained)/time.Since(s.started).Seconds())
		}
		if s.options.SaveEvery > 0 && s.step%s.options.SaveEvery == 0 && s.step < s.options.Steps {
			if err := s.save(ctx); err != nil {
				return err
			}
		}
	}
	return s.printHeldOut(ctx)
}

// next trains one step.
func (s *solo) next(ctx context.Context) (float64, error) {
	id := assign.BatchID{Start: s.dataIndex, End: s.dataIndex + uint64(s.options.TotalBatch)}
	sequences, err := s.data.Sequences(ctx, id)
	if err != nil {
		return 0, err
	}
	loss, err := s.learner.Step(ctx, s.step+1, data.Batch{ID: id, Sequences: sequences})
	if err != nil {
		return 0, err
	}
	s.step++
	s.dataIndex = id.End
	s.trained += s.options.TotalBatch * s.options.SeqLen
	return loss, nil
}

func (s *solo) printHeldOut(ctx context.Context) error {
	if len(s.heldOut) == 0 {
		return nil
	}
	loss, err := s.learner.Evaluate(ctx, s.heldOut)
	if err != nil {
		return err
	}
	s.printf("step %d  held-out loss %.4f\n", s.step, loss)
	return nil
}

// save writes model and optimizer state together, so that they are of the same step.
func (s *solo) save(ctx context.Context) error {
	if s.options.Save == "" {
		return nil
	}
	snapshot, err := s.learner.Snapshot(ctx)
	if err != nil {
		return err
	}
	state, err := s.learner.OptimizerState(ctx)
	if err != nil {
		return err
	}
	state.DataIndex = s.dataIndex
	if err := checkpoint.WriteDir(s.options.Save, snapshot, checkpoint.Extra{Name: train.OptimizerFile, Write: state.Write}); err != nil {
		return err
	}
	s.printf("saved step %d to %s\n", s.step, s.options.Save)
	return nil
}

// printf writes progress; a closed terminal does not end a training.
func (s *solo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.terminal.Out, format, args...)
}
