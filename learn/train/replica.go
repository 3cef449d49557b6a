package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// replica is a model in memory, the common part of all trainers. Its methods are safe for
// concurrent use; one at a time works on the model, the others wait.
type replica struct {
	*store
	cutter     cutter
	statistics statistics
	files      []checkpoint.File
	step       uint32 // step of the newest change of the weights
	microBatch int
	log        *slog.Logger
	busy       chan struct{} // contains one value while a method works on the model
	closed     bool          // the model's memory has been freed
	parallel   *parallel     // nil: gradients are computed on the engine
	speculated speculated
	padding    int32 // model.Padding, until a warning about it is logged; below 0: none

	evaluated func(done, all int) // nil: no reports
	progress  progress            // of the running training
}

// newReplica builds the model of the options, without an optimizer.
func newReplica(ctx context.Context, o Options) (*replica, error) {
	if o.MicroBatch < 1 {
		return nil, fmt.Errorf("micro-batch of %d sequences, want at least 1", o.MicroBatch)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	log := o.Logger
	if err := torch.Load(torch.Options{Threads: o.Threads, Logger: log}); err != nil {
		return nil, err
	}
	engine, err := torch.NewEngine(torch.CPU)
	if err != nil {
		return nil, err
	}
	s := o.Model
	r := &replica{
		store: &store{engine: engine}, statistics: statistics{report: o.Trained, every: o.StatsEvery},
		microBatch: o.MicroBatch, log: log, files: s.Files, step: s.Step, busy: make(chan struct{}, 1),
	}
	here := o.Compute
	if len(o.Devices) > 0 {
		here = model.Options{} // this model only stores the weights
	}
	if err := r.build(ctx, s, here); err != nil {
		return nil, errors.Join(fmt.Errorf("build model: %w", err), engine.Close())
	}
	if r.parallel, err = newParallel(ctx, r.store, o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *replica) build(ctx context.Context, s checkpoint.Snapshot, o model.Options) error {
	configuration, found := s.File(checkpoint.ConfigFile)
	if !found {
		return fmt.Errorf("%w: no %s", errModel, checkpoint.ConfigFile)
	}
	if err := checkType(ctx, r.log, r.engine, o.Compute); err != nil {
		return err
	}
	built, err := model.New(ctx, r.engine, configuration, o, s.Tensors)
	if err != nil {
		return err
	}
	r.use(built)
	r.statistics.parameters = r.parameters
	r.cutter, r.padding = cutter{vocabSize: int32(built.VocabSize()), maxTokens: built.MaxTokens()}, -1
	if id, found := model.Padding(configuration); found {
		r.padding = id
	}
	return nil
}

// lock waits for the model; unlock releases it. If the model was closed meanwhile, lock returns an
// error. It ends any speculation.
func (r *replica) lock(ctx context.Context) error {
	return r.lockKeeping(ctx, func(*speculation) bool { return false })
}

// lockKeeping is lock for callers that continue from a speculation, if keep returns true for it.
func (r *replica) lockKeeping(ctx context.Context, keep func(of *speculation) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case r.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.closed {
		r.unlock()
		return ErrClosed
	}
	if err := r.speculated.decide(keep); err != nil {
		r.unlock()
		return err
	}
	return nil
}

func (r *replica) unlock() { <-r.busy }

// Close waits for the running call and frees the model. Waiting and later calls return ErrClosed; a
// second Close does nothing.
func (r *replica) Close() error {
	r.busy <- struct{}{}
	defer r.unlock()
	return r.free()
}

// free frees the model. The caller must hold the lock.
func (r *replica) free() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.parallel != nil {
		return errors.Join(r.parallel.close(), r.engine.Close())
	}
	return r.engine.Close()
}

// Snapshot returns a copy of the current model. Its step is the step of the newest change.
func (r *replica) Snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	if err := r.lock(ctx); err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("take snapshot: %w", err)
	}
	defer r.unlock()
	s, err := r.snapshot(ctx, model.Export)
	if err != nil {
		return s, fmt.Errorf("take snapshot: %w", err)
	}
	return s, nil
}

// Lend calls use with the current model, without a copy. The model does not change until use
// returns.
func (r *replica) Lend(ctx context.Context, use func(s checkpoint.Snapshot) error) error {
	if err := r.lock(ctx); err != nil {
		return fmt.Errorf("lend the model: %w", err)
	}
	defer r.unlock()
	s, err := r.snapshot(ctx, model.Lend)
	if err != nil {
		return fmt.Errorf("lend the model: %w", err)
	}
	return use(s)
}

func (r *replica) snapshot(ctx context.Context, export func(context.Context, model.Model) ([]safetensors.Tensor, error)) (checkpoint.Snapshot, error) {
	if err := r.parallel.bring(ctx); err != nil {
		return checkpoint.Snapshot{}, err
	}
	tensors, err := export(ctx, r.model)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	s := checkpoint.Snapshot{Step: r.step, Files: r.files, Tensors: tensors}
	s.NameType() // the initial model may have had another type
	return s, nil
}

// load replaces files and weights. The snapshot must be of the same model, in any form from which a
// replica can be created. Otherwise nothing changes. The caller must hold the lock.
func (r *replica) load(ctx context.Context, s checkpoint.Snapshot) error {
	mine, _ := named(r.files).File(checkpoint.ConfigFile)
	if theirs, found := named(s.Files).File(checkpoint.ConfigFile); !found || string(theirs) != string(mine) {
		return fmt.Errorf("%w: its %s differs", errModel, checkpoint.ConfigFile)
	}
	lost := r.parallel.bring(ctx) // an error may leave some of the old weights
	if lost != nil && !errors.Is(lost, errLost) {
		return lost
	}
	err := model.SetWeights(ctx, r.model, s.Tensors)
	if err == nil || lost == nil {
		r.changed()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errModel, err)
	}
	r.files, r.step = s.Files, s.Step
	return nil
}

// stayOnDevice makes steps move the weights on the first device, if there are any, and returns the place.
func (r *replica) stayOnDevice() place {
	if devices := r.parallel.apart(); len(devices) > 0 {
		r.parallel.stay(newShards(devices, make([]int, len(r.parameters))))
	}
	return place{r.store, r.parallel.resides()}
}

// keepOn copies the weights' bits, each on its owner, or in the memory of the CPU if on is nil, and returns a
// function that restores them there.
func (r *replica) keepOn(ctx context.Context, on *shards) (back func() error, err error) {
	if on == nil {
		restore := r.keep()
		return func() error {
			restore()
			return nil
		}, nil
	}
	if err := r.parallel.refresh(ctx, on.devices...); err != nil {
		return nil, err
	}
	restore, err := on.keep(ctx)
	if err != nil {
		return nil, fmt.Errorf("copy the weights on the devices: %w", err)
	}
	return func() error {
		if err := restore(); err != nil {
			r.changes++ // some weights are not restored
			return fmt.Errorf("%w: %w", errLost, err)
		}
		place{r.store, on}.changed()
		if r.parallel.home() == nil { // the optimizer left the devices in the meantime
			return r.parallel.bring(context.WithoutCancel(ctx))
		}
		return nil
	}, nil
}

// named returns files as in a snapshot of a replica, whose weights are F32.
func named(files []checkpoint.File) checkpoint.Snapshot {
	s := checkpoint.Snapshot{Files: files, Tensors: []safetensors.Tensor{{DType: safetensors.F32}}}
	s.NameType()
	return s
}

// rows returns how many sequences of a batch go through the model at once: fewer than configured if
// workers would be idle otherwise.
func (r *replica) rows(batch data.Batch) int64 {
	if r.parallel == nil {
		return int64(r.microBatch)
	}
	n := len(r.parallel.workers)
	return int64(max(1, min(r.microBatch, (len(batch.Sequences)+n-1)/n)))
}

// newTraining is newReplica for a model that is trained.
func newTraining(ctx context.Context, o Options) (*replica, error) {
	if o.Compute.Compute == torch.F16 {
		return nil, fmt.Errorf("%w: to train in f16, in which small gradients become zero; use bf16, which has the range of f32", errUnsupported)
	}
	return newReplica(ctx, o)
}
