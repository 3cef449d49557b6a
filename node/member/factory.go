package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/config"
)

// Options are the training settings of a member that do not depend on the run.
type Options struct {
	// Train contains the options of every trainer. The Factory sets the fields that depend on the
	// run: Model, Optimizer, LRSchedule and Audited; and Compute if Computing is set.
	Train train.Options
	// Computing selects the number types in which a model is computed. Nil: Train.Compute.
	Computing func(ctx context.Context, of model.Description) (model.Options, error)
	// Delay is the duration of a training of the dummy model.
	Delay time.Duration
	// OpenData opens the data of a run for a model. The data is used until ctx ends.
	OpenData func(ctx context.Context, run config.Model, of model.Description) (data.Provider, error)
	// HeldOut reads the sequences on which to measure the model at the end of an epoch. It returns no
	// sequences if there is no held-out data. Nil: there is none.
	HeldOut func(ctx context.Context, run config.Model, of model.Description) ([][]int32, error)
	// Measuring uses the model while the training does not need it. May be nil.
	Measuring Measuring
}

// Factory creates the trainer and opens the training data. Both depend on the run's definition,
// which is part of the coordinator's state.
type Factory struct {
	options Options
	data    Data
	made    io.Closer // trainer of the newest Build; used by one goroutine at a time; nil: none
}

// NewFactory returns a Factory that has built nothing yet.
func NewFactory(o Options) *Factory {
	if o.Measuring == nil {
		o.Measuring = unmeasured{}
	}
	return &Factory{options: o}
}

// Data returns the data of the run of the last Build.
func (f *Factory) Data() *Data { return &f.data }

// Build creates the trainer of the run and opens its data. It closes the trainer and the data of a
// previous Build.
func (f *Factory) Build(ctx context.Context, snapshot checkpoint.Snapshot, definition env.Definition) (env.Trainer, error) {
	run, err := config.DecodeModel(definition.Definition)
	if err != nil {
		return nil, fmt.Errorf("read the run's definition: %w", err)
	}
	if IsDummy(definition.Model) {
		return f.buildDummy(ctx, snapshot, run, definition.Audited)
	}
	modelConfig, _ := snapshot.File(checkpoint.ConfigFile)
	description, err := model.Describe(modelConfig)
	if err != nil {
		return nil, err
	}
	if err := Fits(run, description); err != nil {
		return nil, err
	}
	if err := f.openData(ctx, run, description); err != nil {
		return nil, err
	}
	if err := f.closeTrainer(); err != nil {
		return nil, err
	}
	var heldOut [][]int32
	if f.options.HeldOut != nil {
		if heldOut, err = f.options.HeldOut(ctx, run, description); err != nil {
			return nil, err
		}
	}
	o := f.options.Train
	if f.options.Computing != nil {
		if o.Compute, err = f.options.Computing(ctx, description); err != nil {
			return nil, err
		}
	}
	o.Model, o.Optimizer, o.LRSchedule, o.Audited = snapshot, run.Optimizer, run.LRSchedule, definition.Audited
	// Rounding in bf16 sends some tokens to different experts on different machines, and
	// accumulates over the local steps of a round: honest results differ by more than the limits of
	// audits.
	if o.OnlyF32 = definition.Audited && (description.Experts || run.Optimizer.LocalSteps != nil); o.OnlyF32 && o.Compute.Compute == torch.BF16 {
		o.Compute.Compute = torch.F32
		if o.Logger != nil {
			o.Logger.Warn("computing in f32", "because", "the run has audits, and results in bf16 of a model with experts, or of many local steps, differ too much between machines")
		}
	}
	predicted, devices := fit.Of(o, description, uint64(run.MaxSeqLen)), o.Devices
	return f.learner(ctx, o, heldOut, func(err error) error { return fit.Explain(err, predicted, "", devices) })
}

// learner makes the trainer of a run. explain adds advice to errors of failed allocations.
func (f *Factory) learner(ctx context.Context, o train.Options, heldOut [][]int32, explain func(error) error) (env.Trainer, error) {
	local := o.Optimizer.LocalSteps != nil
	build := train.New
	if local {
		build = train.NewLocal
	}
	made, err := build(ctx, o)
	if err != nil {
		return nil, explain(err)
	}
	f.made = made
	f.options.Measuring.Use(made, o.Model)
	if local && !o.Audited {
		learner := newLearner(made, f.options.Measuring, heldOut)
		learner.explain = explain
		return learner, nil
	}
	trainer := New(made, f.options.Measuring, heldOut)
	trainer.explain = explain
	return trainer, nil
}

// IsDummy reports whether a run trains the dummy model, which exists to test the network.
func IsDummy(m coordinator.Model) bool {
	return m.Checkpoint.Kind == coordinator.CheckpointDummy || m.Checkpoint.Origin == coordinator.CheckpointDummy
}

// buildDummy creates the trainer of a run that tests the network. Its data is read as in any run.
func (f *Factory) buildDummy(ctx context.Context, snapshot checkpoint.Snapshot, run config.Model, audited bool) (env.Trainer, error) {
	if err := f.openData(ctx, run, model.Description{}); err != nil {
		return nil, err
	}
	o := dummy.Options{
		Model: snapshot, RunID: f.options.Train.RunID, TrainerID: f.options.Train.TrainerID,
		Delay: f.options.Delay, Verified: f.options.Train.Verified,
	}
	if run.Optimizer.Distro != nil {
		o.ApplyLag = run.Optimizer.Distro.Lag()
	}
	if run.Optimizer.LocalSteps != nil {
		o.ApplyLag = run.Optimizer.LocalSteps.Lag()
	}
	if audited {
		return dummy.NewAudited(o)
	}
	return dummy.New(o)
}

func (f *Factory) openData(ctx context.Context, run config.Model, of model.Description) error {
	return f.data.open(ctx, func(ctx context.Context) (data.Provider, error) { return f.options.OpenData(ctx, run, of) })
}

func (f *Factory) closeTrainer() error {
	if f.made == nil {
		return nil
	}
	f.options.Measuring.Forget()
	made := f.made
	f.made = nil
	return made.Close()
}

// Close closes the trainer and the data. The node must have ended.
func (f *Factory) Close() error { return errors.Join(f.closeTrainer(), f.data.close()) }
