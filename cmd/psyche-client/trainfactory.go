package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/innernet"
	"github.com/psyche-go/psyche/metrics"
	"github.com/psyche-go/psyche/model"
	"github.com/psyche-go/psyche/torch"
	"github.com/psyche-go/psyche/train"
	"github.com/psyche-go/psyche/train/dummy"
)

// trainerFactory builds what depends on the run's definition, which comes with the
// coordinator's state: the trainer, and the data it trains on.
type trainerFactory struct {
	command *trainCommand
	key     identity.Key
	logger  *slog.Logger
	host    func() identity.ID // key of the run's server
	run     func() [32]byte    // hash of the run
	devices []torch.Device     // that compute; none: the CPU
	events  *event.Log
	board   *metrics.Board
	seen    *resultWriter // may be nil
	library error         // why there is no libtorch; nil: there is

	measuring *measuring // may be nil

	data    runData
	trainer *train.Trainer // of build's newest call; used by one goroutine at a time; nil: none
}

// build makes the trainer of the run and opens its data. It closes those that it made
// before, if any.
func (f *trainerFactory) build(ctx context.Context, snapshot checkpoint.Snapshot, definition env.Definition) (env.Trainer, error) {
	run, err := config.DecodeModel(definition.Definition)
	if err != nil {
		return nil, fmt.Errorf("read the run's definition: %w", err)
	}
	if isDummy(definition.Model) {
		return f.buildDummy(ctx, snapshot, run, definition.Audited)
	}
	modelConfig, _ := snapshot.File("config.json")
	description, err := model.Describe(modelConfig)
	if err != nil {
		return nil, err
	}
	if err := checkModel(run, description); err != nil {
		return nil, err
	}
	if f.command.wantsDataPath(run) {
		return nil, fmt.Errorf("%w: its data: name a folder with --data-path", errLocalPath)
	}
	if err := f.openData(ctx, run, description); err != nil {
		return nil, err
	}
	if err := f.closeTrainer(); err != nil {
		return nil, err
	}
	compute, err := f.command.computing(ctx, f.devices, f.logger)
	if err != nil {
		return nil, err
	}
	f.board.SetVocabulary(description.VocabSize)
	if len(f.devices) > 0 {
		f.logger.Info("computing", "devices", f.devices)
	}
	trainer, err := train.New(ctx, train.Options{
		Model:      snapshot,
		Compute:    compute,
		Devices:    f.devices,
		Optimizer:  run.Optimizer,
		LRSchedule: run.LRSchedule,
		MicroBatch: f.command.MicroBatchSize,
		Parallel:   f.command.parallelism(),
		Threads:    int(f.command.Threads),
		RunID:      f.command.RunID,
		Audited:    definition.Audited,
		TrainerID:  f.key.ID(),
		Logger:     f.logger,
		Timed:      f.timed,
		Trained:    gradientEvents(f.events, f.logger),
		StatsEvery: f.command.OptimStatsSteps,
	})
	if err != nil {
		return nil, err
	}
	f.trainer = trainer
	f.measuring.use(trainer, snapshot)
	return keptTrainer{trainer, f.seen, f.measuring}, nil
}

// timed writes what a part of a step took to the event log.
func (f *trainerFactory) timed(t train.Timing) {
	if err := f.events.Append(event.Span{Step: t.Step, Part: t.Part, Seconds: t.Took.Seconds()}); err != nil {
		f.logger.Error("write event", "err", err)
	}
}

// keptTrainer is a trainer whose momentum a client keeps for its next process, and whose model is
// measured while nothing else needs it.
type keptTrainer struct {
	*train.Trainer
	seen      *resultWriter
	measuring *measuring
}

// isDummy reports whether a run trains the model for tests of the network.
func isDummy(m coordinator.Model) bool {
	return m.Checkpoint.Kind == coordinator.CheckpointDummy || m.Checkpoint.Origin == coordinator.CheckpointDummy
}

// dummyTrainer is a dummy trainer whose results are written down.
type dummyTrainer struct {
	*dummy.Trainer
	seen *resultWriter
}

// Verify implements env.Trainer.
func (t dummyTrainer) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	return t.seen.verified(t.Trainer.Verify(payload, step, batch, trainer), payload, step, batch, trainer)
}

// auditedDummy is a dummy trainer of a run with audits.
type auditedDummy struct {
	*dummy.Audited
	seen *resultWriter
}

// Verify implements env.Trainer.
func (t auditedDummy) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	return t.seen.verified(t.Audited.Verify(payload, step, batch, trainer), payload, step, batch, trainer)
}

// Examine implements env.Auditor.
func (t auditedDummy) Examine(ctx context.Context, x env.Examination) (*audit.Exam, error) {
	return t.Exam(ctx, x.Step, x.Trainer, x.Batch, x.Weights, x.Chunks)
}

// buildDummy makes the trainer of a run that tests the network. Its data is read like any.
func (f *trainerFactory) buildDummy(ctx context.Context, snapshot checkpoint.Snapshot, run config.Model, audited bool) (env.Trainer, error) {
	if f.command.wantsDataPath(run) {
		return nil, fmt.Errorf("%w: its data: name a folder with --data-path", errLocalPath)
	}
	if err := f.openData(ctx, run, model.Description{}); err != nil {
		return nil, err
	}
	lag := uint32(1)
	if run.Optimizer.Distro != nil {
		lag = run.Optimizer.Distro.Lag()
	}
	o := dummy.Options{
		Model: snapshot, RunID: f.command.RunID, TrainerID: f.key.ID(), ApplyLag: lag,
		Delay: time.Duration(f.command.DummyTrainingDelaySecs * float64(time.Second)),
	}
	if audited {
		trainer, err := dummy.NewAudited(o)
		return auditedDummy{trainer, f.seen}, err
	}
	trainer, err := dummy.New(o)
	return dummyTrainer{trainer, f.seen}, err
}

var (
	_ env.Auditor = keptTrainer{}
	_ env.Auditor = auditedDummy{}
)

// Examine implements env.Auditor.
func (t keptTrainer) Examine(ctx context.Context, x env.Examination) (*audit.Exam, error) {
	defer t.measuring.busy()()
	applied := make([]train.Applied, len(x.Applied))
	for i, a := range x.Applied {
		applied[i] = train.Applied(a)
	}
	return t.Trainer.Examine(ctx, train.Examination{
		Step: x.Step, Trainer: x.Trainer, Batch: x.Batch, Weights: x.Weights, Applied: applied,
		Chunks: x.Chunks, Precision: x.Precision,
	})
}

// SaveOptimizer implements env.OptimizerKeeper.
func (t keptTrainer) SaveOptimizer(ctx context.Context, path string) error {
	state, err := t.OptimizerState(ctx)
	if err != nil {
		return err
	}
	return state.Write(path)
}

// LoadOptimizer implements env.OptimizerKeeper.
func (t keptTrainer) LoadOptimizer(ctx context.Context, path string) error {
	state, err := train.ReadOptimizerState(path)
	if err != nil {
		return err
	}
	return t.SetOptimizerState(ctx, state)
}

// openData opens the data that the run names.
func (f *trainerFactory) openData(ctx context.Context, run config.Model, description model.Description) error {
	err := f.data.open(ctx, func(ctx context.Context) (data.Provider, error) {
		return data.New(ctx, run.DataLocations, f.dataOptions(run, description))
	})
	if errors.Is(err, innernet.ErrInner) {
		err = fmt.Errorf("%w; if the run's data is meant to lie in a network of yours: --allow-inner-data", err)
	}
	return err
}

func (f *trainerFactory) closeTrainer() error {
	if f.trainer == nil {
		return nil
	}
	f.measuring.forget()
	trainer := f.trainer
	f.trainer = nil
	return trainer.Close()
}

// close ends what build made, when the client has ended.
func (f *trainerFactory) close() error { return errors.Join(f.closeTrainer(), f.data.close()) }
