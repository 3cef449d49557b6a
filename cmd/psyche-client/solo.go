package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/cmd/internal/telemetry"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/event"
)

type soloCommand struct {
	Model      string `required:"" placeholder:"MODEL" help:"Hugging Face folder of the initial model, or OWNER/NAME on the Hub." group:"Model and data:"`
	DataPath   string `required:"" type:"path" placeholder:"PATH" help:"Token file, or folder of token files." group:"Model and data:"`
	TokenSize  int    `default:"0" enum:"0,2,4,8" help:"Bytes per token in the files: 2, 4 or 8. 0 reads the size from data.json, *.metadata or *.idx next to the files, or else uses 2 if the vocabulary fits (${default})." group:"Model and data:"`
	SeqLen     int    `aliases:"sequence-length" default:"256" help:"Tokens per sequence." group:"Model and data:"`
	Shuffle    uint64 `aliases:"seed" default:"0" placeholder:"SEED" help:"Seed for shuffling the sequences; 0 keeps the order of the files (${default})." group:"Model and data:"`
	TotalBatch int    `default:"24" help:"Sequences per step." group:"Steps:"`
	MicroBatch int    `default:"8" help:"Sequences in one pass through the model." group:"Steps:"`
	Steps      uint32 `aliases:"total-steps" default:"100" help:"Steps to train, including steps before a resume." group:"Steps:"`

	HeldOut          string `type:"path" placeholder:"PATH" help:"Token file or folder for measuring the loss without training on it, before and after the training (with --eval-every also in between). The event log also contains the loss." group:"Evaluation:"`
	HeldOutSequences uint64 `default:"${sample_sequences}" placeholder:"N" help:"Held-out sequences to use, spread evenly over the data; 0 means all (${default})." group:"Evaluation:"`
	EvalEvery        uint32 `default:"0" placeholder:"N" help:"Also measure --held-out every N steps; 0 measures only before and after (${default})." group:"Evaluation:"`

	Save      string      `aliases:"save-path" type:"path" placeholder:"DIR" help:"Folder for the model and the optimizer's state. A training in this folder is resumed. By default, nothing is saved." group:"Checkpoints:"`
	SaveEvery uint32      `default:"0" placeholder:"N" help:"Save every N steps and at the end; 0 saves only at the end (${default})." group:"Checkpoints:"`
	EventsDir string      `type:"path" placeholder:"DIR" help:"Folder for the event log, events.jsonl: every step's loss, learning rate, gradient norm, tokens and seconds. Default: the folder of --save with the suffix .events." group:"Logs and metrics of this machine:"`
	LogEvery  uint32      `default:"10" placeholder:"N" help:"Print the loss every N steps (${default})." group:"Logs and metrics of this machine:"`
	Threads   threadCount `placeholder:"N" help:"Threads of libtorch. 0 uses OMP_NUM_THREADS, or else one thread per CPU." group:"Computing:"`

	libraryFlags  `embed:"" group:"Computing:"`
	computeFlags  `embed:"" group:"Computing:"`
	parallelFlags `embed:"" group:"Computing:"`
	trackerFlags  `embed:"" group:"Trackers:"`
	Telemetry     telemetry.Flags `embed:"" group:"Trackers:"`
	soloOptimizer
	exampleFlags `embed:"" group:"Flags of the original Psyche:"`
}

// Help returns the text below the command's summary in --help.
func (c *soloCommand) Help() string {
	return `With --save, the same command line with more --steps continues where the training ended, also
after an interrupt or an error. The data, its order and --seq-len must stay the same. Other flags
may change; the command prints the changes. --model is read only for a new training.`
}

// learner is a trainer with either of the two optimizers.
type learner interface {
	Step(ctx context.Context, step uint32, batch data.Batch) (loss float64, err error)
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	Save(ctx context.Context, dir string, note func(s *train.OptimizerState)) error
	SetOptimizerState(ctx context.Context, s train.OptimizerState) error
	Elements() int64
	Close() error
}

// solo is a training in progress.
type solo struct {
	options   soloCommand
	terminal  terminal
	claim     *folderClaim // of --save; nil without it
	learner   learner
	explain   func(err error) error // adds advice to errors of failed allocations
	data      *local.Folder
	heldOut   local.Sample
	events    *event.Log
	sent      *telemetry.Telemetry
	trackers  feeds
	settings  string  // to save with the training
	step      uint32  // newest completed step
	dataIndex uint64  // first sequence that was not trained on
	loss      float64 // of step
	unsaved   bool    // steps were trained since the last attempt to save
	started   time.Time
	printed   time.Time // of the last line about a step
	trained   int       // tokens since started
	failure   error     // error that ended it
}

// Run trains until the last step, an interrupt or an error, and saves the training.
func (c *soloCommand) Run(ctx context.Context, t terminal, line *kong.Context) (err error) {
	if err := c.check(line); err != nil {
		return err
	}
	warnIdle(t.logger(), c.idle(line))
	s := &solo{options: *c, terminal: t}
	defer func() { s.failure = err; _ = s.close() }()
	done, err := s.open(ctx)
	if err != nil || done {
		return err
	}
	debug.FreeOSMemory() // memory of the model file: training allocates too little to trigger a collection
	if err = s.train(ctx); err == nil || s.options.Save == "" {
		return err
	}
	// A failed step has changed nothing, so the steps before it can be saved.
	saveErr := s.save(context.WithoutCancel(ctx))
	if saveErr != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %w", saveErr)
	}
	return errors.Join(err, saveErr)
}

// check validates the flags that need no files.
func (c *soloCommand) check(line *kong.Context) error {
	if c.Distro {
		c.Optimizer = "distro"
	}
	if c.TotalBatch < 1 || c.MicroBatch < 1 || c.Steps < 1 {
		return usageError{fmt.Errorf("--total-batch %d, --micro-batch %d, --steps %d: want at least 1", c.TotalBatch, c.MicroBatch, c.Steps)}
	}
	if err := c.checkParallelism(); err != nil {
		return err
	}
	if c.EvalEvery > 0 && c.HeldOut == "" {
		return usageError{errors.New("--eval-every needs --held-out")}
	}
	if c.LogEvery < 1 {
		return usageError{errors.New("--log-every is 0: want at least 1")}
	}
	if err := c.checkStart(); err != nil {
		return err
	}
	if err := c.checkFlags(); err != nil {
		return err
	}
	return c.checkDecay(c.Steps)
}

// open checks everything that can fail before the first step, so that the user sees an error at once.
// done reports whether no step is left.
func (s *solo) open(ctx context.Context) (done bool, err error) {
	c, logger := &s.options, s.terminal.logger()
	if c.Save == "" {
		s.printf("nothing will be saved: --save is not given\n")
	} else if s.claim, err = claimFolder(c.Save); err != nil {
		return false, fmt.Errorf("--save: %w", err)
	}
	initial, state, err := c.start(ctx, s.terminal)
	if err != nil {
		return false, err
	}
	if state != nil && state.Step >= c.Steps {
		s.printf("%s is already at step %d, and --steps is %d: nothing to do\n", c.Save, state.Step, c.Steps)
		return true, nil
	}
	description, err := describe(initial)
	if err != nil {
		return false, fmt.Errorf("%s: %w", c.Model, err)
	}
	if err := c.fitsDisk(description.Memory(), nil); err != nil {
		return false, err
	}
	if err := s.openData(ctx, description); err != nil {
		return false, err
	}
	warmup, err := s.resume(state)
	if err != nil {
		return false, err
	}
	if err := c.load(c.Threads, logger); err != nil {
		return false, err
	}
	devices, err := c.fittingDevices(description, logger)
	if err != nil {
		return false, err
	}
	compute, err := c.computing(ctx, devices, logger)
	if err != nil {
		return false, err
	}
	if logger, err = s.observe(ctx, description.VocabSize); err != nil {
		return false, err
	}
	training := c.training(description.Memory(), len(devices))
	training.Batch.TwoBytes = compute.Compute != torch.F32
	s.explain = func(err error) error { return fit.Explain(err, training, microBatchFlag, devices) }
	s.learner, err = c.learner(ctx, train.Options{
		Model: initial, Optimizer: c.optimizer(), LRSchedule: c.schedule(warmup, c.Steps), Compute: compute, MicroBatch: c.MicroBatch,
		Devices: devices, Parallel: c.parallelism(), Threads: int(c.Threads), RunID: "solo", Logger: logger,
		Trained: gradientEvents(s.events, logger), StatsEvery: c.statsEvery(),
	})
	if err != nil {
		return false, s.explain(err)
	}
	leaveLittle(4 * s.learner.Elements())
	return false, s.restore(ctx, state)
}

// restore continues a saved training, or starts a new one if state is nil.
func (s *solo) restore(ctx context.Context, state *train.OptimizerState) error {
	c := &s.options
	if state == nil {
		s.begin()
		return nil
	}
	if c.StartStep > 1 {
		s.terminal.logger().Warn("--start-step has no effect: the training is resumed", "folder", c.Save, "step", state.Step+1)
	}
	debug.FreeOSMemory() // memory of the model file, before the optimizer allocates its values
	if err := s.learner.SetOptimizerState(ctx, *state); err != nil {
		return fmt.Errorf("resume from %s: %w", c.Save, err)
	}
	s.step, s.dataIndex = state.Step, state.DataIndex
	return nil
}

func (c *soloCommand) learner(ctx context.Context, o train.Options) (learner, error) {
	if c.Optimizer == "adamw" {
		return asLearner(train.NewAdamW(ctx, o))
	}
	return asLearner(train.New(ctx, o))
}

// asLearner prevents a nil trainer from becoming a non-nil interface.
func asLearner[T learner](trainer T, err error) (learner, error) {
	if err != nil {
		return nil, err
	}
	return trainer, nil
}

// start returns the starting model: of a training saved in --save, with its optimizer state, or
// else of --model.
func (c *soloCommand) start(ctx context.Context, t terminal) (checkpoint.Snapshot, *train.OptimizerState, error) {
	if c.Save == "" {
		s, err := readModel(ctx, t, c.Model)
		return s, nil, err
	}
	path := filepath.Join(c.Save, train.OptimizerFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if entries, err := os.ReadDir(c.Save); err == nil && len(entries) > 0 {
			return checkpoint.Snapshot{}, nil, fmt.Errorf("--save %s is not empty and contains no training to resume (no %s); choose another folder", c.Save, train.OptimizerFile)
		}
		s, err := readModel(ctx, t, c.Model)
		return s, nil, err
	}
	if err := checkpoint.CheckTarget(c.Save); err != nil {
		return checkpoint.Snapshot{}, nil, fmt.Errorf("--save: %w", err)
	}
	state, err := train.ReadOptimizerState(path)
	if err != nil {
		return checkpoint.Snapshot{}, nil, fmt.Errorf("resume: %w", err)
	}
	if state.Optimizer != c.Optimizer {
		return checkpoint.Snapshot{}, nil, fmt.Errorf("--save %s contains a training with --optimizer %s, not %s; use the same optimizer, or start a new training from that model with --model %s and another --save",
			c.Save, state.Optimizer, c.Optimizer, c.Save)
	}
	s, err := readFolder(t, c.Save)
	return s, &state, err
}

// resume compares the requested settings with the settings of a saved training, and returns the
// number of warmup steps.
func (s *solo) resume(state *train.OptimizerState) (warmup uint32, err error) {
	c := &s.options
	saved, err := savedSettings(state)
	if err != nil {
		return 0, fmt.Errorf("resume from %s: %w", c.Save, err)
	}
	warmup = c.warmup(savedWarmup(saved), c.Steps)
	all := c.settings(s.data, warmup)
	if s.settings, err = encodeSettings(all); err != nil || state == nil {
		return warmup, err
	}
	changed, err := compareSettings(c.Save, saved, all)
	if err != nil {
		return 0, err
	}
	s.printf("resumed from %s at step %d; --model is not read again\n", c.Save, state.Step)
	if saved == nil {
		s.terminal.logger().Warn("the folder does not contain the settings of the training: make sure that data, --seq-len and --shuffle are the same", "folder", c.Save)
	}
	if changed != "" {
		s.printf("changed: %s\n", changed)
	}
	return warmup, nil
}

func (s *solo) close() error {
	var errs []error
	if s.learner != nil {
		errs = append(errs, s.learner.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.Close())
	}
	if s.claim != nil {
		errs = append(errs, s.claim.release())
	}
	errs = append(errs, s.trackers.close())
	if s.events != nil {
		errs = append(errs, endEventLog(s.events, s.failure))
	}
	if s.sent != nil {
		s.sent.Close()
	}
	return errors.Join(errs...)
}

func (s *solo) train(ctx context.Context) error {
	if s.options.Save != "" || s.events != nil {
		signals.Hold(ctx)
	}
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
		s.printStep(loss, time.Now())
		if s.options.SaveEvery > 0 && s.step%s.options.SaveEvery == 0 && s.step < s.options.Steps {
			if err := s.save(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		if s.options.EvalEvery > 0 && s.step%s.options.EvalEvery == 0 && s.step < s.options.Steps {
			if err := s.printHeldOut(ctx); err != nil {
				return err
			}
		}
	}
	// Save before the evaluation, so that an error there costs no step.
	if err := s.save(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return s.printHeldOut(ctx)
}

// printPause is the maximum time without a line about a step, if a step is not longer.
const printPause = 10 * time.Second

// printStep prints a step if a line is due: every --log-every steps, after the first and the last step, and after
// printPause. The time left includes evaluations and checkpoints at the rate so far.
func (s *solo) printStep(loss float64, now time.Time) {
	each := s.options.TotalBatch * s.options.SeqLen
	first := s.trained == each
	if !first && s.step%s.options.LogEvery != 0 && s.step != s.options.Steps && now.Sub(s.printed) < printPause {
		return
	}
	s.printed = now
	left, took := "", now.Sub(s.started)
	if steps := s.trained / each; s.step < s.options.Steps && !first {
		left = "  " + meter.Span(time.Duration(float64(took)/float64(steps)*float64(s.options.Steps-s.step))) + " left"
	}
	s.printf("step %d/%d  loss %.4f  %.0f tokens/s%s\n", s.step, s.options.Steps, loss, float64(s.trained)/took.Seconds(), left)
}

// next trains one step.
func (s *solo) next(ctx context.Context) (float64, error) {
	id := assign.BatchID{Start: s.dataIndex, End: s.dataIndex + uint64(s.options.TotalBatch)}
	sequences, err := s.data.Sequences(ctx, id)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	loss, err := s.learner.Step(ctx, s.step+1, data.Batch{ID: id, Sequences: sequences})
	if err != nil {
		return 0, s.explain(err)
	}
	s.step++
	s.loss = loss
	s.events.Note(s.terminal.logger(), event.Trained{
		Step: s.step, Batch: event.Batch{id.Start, id.End}, Loss: event.Loss(loss), Tokens: s.options.TotalBatch * s.options.SeqLen,
		Seconds: time.Since(begun).Seconds(), Memory: sysmemory.Peak(),
	})
	s.dataIndex = id.End
	s.unsaved = true
	s.trained += s.options.TotalBatch * s.options.SeqLen
	return loss, nil
}

func (s *solo) printHeldOut(ctx context.Context) error {
	if len(s.heldOut.Sequences) == 0 {
		return nil
	}
	begun := time.Now()
	loss, err := s.learner.Evaluate(ctx, s.heldOut.Sequences)
	if err != nil {
		return err
	}
	s.events.Note(s.terminal.logger(), event.EvaluatedLoss(s.step, loss, len(s.heldOut.Sequences), time.Since(begun)))
	s.printf("step %d  held-out loss %.4f\n", s.step, loss)
	return nil
}

// save saves the model and the optimizer state of the same step together. It does not retry a step
// that was saved, or whose save failed.
func (s *solo) save(ctx context.Context) error {
	if s.options.Save == "" || !s.unsaved {
		return nil
	}
	s.unsaved = false
	err := s.learner.Save(ctx, s.options.Save, func(state *train.OptimizerState) {
		state.DataIndex, state.Settings = s.dataIndex, s.settings
	})
	if err != nil {
		return diskspace.Explain(err, "an earlier checkpoint in the folder stays complete; remove other files, and run the command again to resume from it")
	}
	s.writeCard(ctx)
	s.printf("saved step %d to %s\n", s.step, s.options.Save)
	return nil
}

// printf writes progress. It ignores errors, so that a closed terminal does not end a training.
func (s *solo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.terminal.Out, format, args...)
}
