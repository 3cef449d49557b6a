package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

var (
	// errModel means that a snapshot does not fit the model.
	errModel = errors.New("snapshot does not fit the model")
	// errTokens means that sequences cannot be used for training.
	errTokens = errors.New("invalid tokens")
	// ErrClosed means that a model was used after Close.
	ErrClosed = errors.New("the model is closed")
)

// replica is a model in memory, the common part of all trainers. Its methods are safe for
// concurrent use; one at a time works on the model, the others wait.
type replica struct {
	engine     *torch.Engine
	model      model.Model
	parameters []parameter // sorted by name
	files      []checkpoint.File
	step       uint32 // step of the newest change of the weights
	vocabSize  int32
	microBatch int
	log        *slog.Logger
	busy       chan struct{} // contains one value while a method works on the model
	closed     bool          // the model's memory has been freed
	parallel   *parallel     // nil: gradients are computed on the engine
	changes    uint64        // number of changes of the weights; workers with copies compare it
	foresight  foresight
	padding    int32 // model.Padding, until a warning about it is logged; below 0: none

	trained    func(Gradient)      // nil: no reports
	evaluated  func(done, all int) // nil: no reports
	statsEvery uint32
}

// parameter is a tensor of the model on the CPU. weights is its memory, which optimizers change and
// all other code copies.
type parameter struct {
	name    string
	shape   []int64
	tensor  *torch.Tensor
	weights []float32
}

// newReplica builds the model of the options, without an optimizer.
func newReplica(ctx context.Context, o Options) (*replica, error) {
	if o.MicroBatch < 1 {
		return nil, fmt.Errorf("micro-batch of %d sequences, want at least 1", o.MicroBatch)
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := torch.Load(torch.Options{Threads: o.Threads, Logger: log}); err != nil {
		return nil, err
	}
	engine, err := torch.NewEngine(torch.CPU)
	if err != nil {
		return nil, err
	}
	s := o.Model
	r := &replica{engine: engine, microBatch: o.MicroBatch, log: log, files: s.Files, step: s.Step, busy: make(chan struct{}, 1), trained: o.Trained, statsEvery: o.StatsEvery}
	here := o.Compute
	if len(o.Devices) > 0 {
		here = model.Options{} // this model only stores the weights
	}
	if err := r.build(ctx, s, here); err != nil {
		return nil, errors.Join(fmt.Errorf("build model: %w", err), engine.Close())
	}
	if err := r.parallelise(ctx, o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *replica) build(ctx context.Context, s checkpoint.Snapshot, o model.Options) error {
	configuration, found := s.File(checkpoint.ConfigFile)
	if !found {
		return fmt.Errorf("%w: no %s", errModel, checkpoint.ConfigFile)
	}
	if err := r.checkType(ctx, r.engine, o.Compute); err != nil {
		return err
	}
	var err error
	if r.model, err = model.New(ctx, r.engine, configuration, o, s.Tensors); err != nil {
		return err
	}
	r.vocabSize, r.padding = int32(r.model.VocabSize()), -1
	if id, found := model.Padding(configuration); found {
		r.padding = id
	}
	for _, p := range r.model.Parameters() {
		r.parameters = append(r.parameters, parameter{p.Name, p.Tensor.Shape(), p.Tensor, p.Tensor.Float32s()})
	}
	return nil
}

// checkType refuses a type that an engine cannot compute in. It allows bf16 wherever that works,
// because a probe can only estimate its speed.
func (r *replica) checkType(ctx context.Context, engine *torch.Engine, dtype torch.DType) error {
	if dtype != torch.BF16 {
		return nil
	}
	err := engine.CheckBF16(ctx)
	if errors.Is(err, torch.ErrSlowType) {
		r.log.Warn("computing in bf16, which may be slower than f32 here", "because", err)
		return nil
	}
	return err
}

// lock waits for the model; unlock releases it. If the model was closed meanwhile, lock returns an
// error. It ends any speculation.
func (r *replica) lock(ctx context.Context) error {
	return r.lockKeeping(ctx, func(*foreseen) bool { return false })
}

// lockKeeping is lock for callers that continue from a speculation, if keep returns true for it.
func (r *replica) lockKeeping(ctx context.Context, keep func(of *foreseen) bool) error {
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
	if err := r.foresight.decide(keep); err != nil {
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

// Elements returns the number of the model's parameters.
func (r *replica) Elements() int64 {
	total := int64(0)
	for _, p := range r.parameters {
		total += int64(len(p.weights))
	}
	return total
}

// changed must be called after the weights were changed.
func (r *replica) changed() { r.changes++ }

func (r *replica) shapes() [][]int64 {
	shapes := make([][]int64, len(r.parameters))
	for i, p := range r.parameters {
		shapes[i] = p.shape
	}
	return shapes
}

func (r *replica) weights() [][]float32 {
	weights := make([][]float32, len(r.parameters))
	for i, p := range r.parameters {
		weights[i] = p.weights
	}
	return weights
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
	r.changed() // first, so that copies follow even after an error
	if err := model.SetWeights(ctx, r.model, s.Tensors); err != nil {
		return fmt.Errorf("%w: %w", errModel, err)
	}
	r.files, r.step = s.Files, s.Step
	return nil
}

// named returns files as in a snapshot of a replica, whose weights are F32.
func named(files []checkpoint.File) checkpoint.Snapshot {
	s := checkpoint.Snapshot{Files: files, Tensors: []safetensors.Tensor{{DType: safetensors.F32}}}
	s.NameType()
	return s
}

// microBatch is a part of a batch that goes through the model at once: texts of the same length,
// with inputs and targets flattened.
type microBatch struct {
	rows, columns   int64
	inputs, targets []int32
	counted         int64 // number of targets other than torch.IgnoreTarget
}

// cut checks the sequences and cuts them, and the texts that are packed into one, into
// micro-batches. tokens is the number of counting targets.
func (r *replica) cut(batch data.Batch) (parts []microBatch, tokens int64, err error) {
	if len(batch.Sequences) == 0 {
		return nil, 0, fmt.Errorf("%w: no sequences", errTokens)
	}
	rows := r.rows(batch)
	for i, sequence := range batch.Sequences {
		if len(sequence) < 2 {
			return nil, 0, fmt.Errorf("%w: sequence %d has %d tokens, want at least 2", errTokens, i, len(sequence))
		}
		for j, token := range sequence {
			if token < 0 || token >= r.vocabSize {
				return nil, 0, fmt.Errorf("%w: token %d of sequence %d is %d, the model's vocab_size is %d; was the data made with this model's tokenizer?",
					errTokens, j, i, token, r.vocabSize)
			}
		}
		texts, err := r.texts(batch, i)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: sequence %d: %w", errTokens, i, err)
		}
		for _, one := range texts {
			columns := int64(len(one.inputs))
			if most := r.model.MaxTokens(); columns > int64(most) {
				return nil, 0, fmt.Errorf("%w: sequence %d trains %d tokens, the model's max_position_embeddings is %d", errTokens, i, columns, most)
			}
			if last := len(parts) - 1; last < 0 || parts[last].columns != columns || parts[last].rows == rows {
				parts = append(parts, microBatch{columns: columns})
			}
			part := &parts[len(parts)-1]
			part.rows++
			part.inputs = append(part.inputs, one.inputs...)
			part.targets = append(part.targets, one.targets...)
			part.counted += one.counted
			tokens += one.counted
		}
	}
	if tokens == 0 {
		return nil, 0, fmt.Errorf("%w: all labels are %d: there is nothing to learn", errTokens, torch.IgnoreTarget)
	}
	return parts, tokens, nil
}

// warnOfPadding logs a warning at the first batch with the padding token, whose embedding
// transformers would not train. The caller must hold the lock.
func (r *replica) warnOfPadding(parts []microBatch) {
	if r.padding < 0 {
		return
	}
	for _, part := range parts {
		if slices.Contains(part.inputs, r.padding) {
			r.log.Warn("the data has the padding token; its embedding is trained here, but not by transformers", "pad_token_id", r.padding, "file", checkpoint.ConfigFile)
			r.padding = -1
			return
		}
	}
}

func (m microBatch) loss(s *torch.Scope, network model.Model) *torch.Tensor {
	return network.Loss(s, m.tensor(s, m.inputs), m.tensor(s, m.targets))
}

func (m microBatch) tensor(s *torch.Scope, tokens []int32) *torch.Tensor {
	return s.FromInt32s(tokens, m.rows, m.columns)
}

// gradient returns the loss, and adds share times its gradient to the gradients of the network's
// parameters.
func (m microBatch) gradient(s *torch.Scope, network model.Model, share float64) (loss float64) {
	return network.Gradient(s, m.tensor(s, m.inputs), m.tensor(s, m.targets), share).Item()
}

// gradient computes the mean loss over all counting targets and its gradient, and passes both to
// use, on the engine's thread and with gradients off. The gradients, in the order of the
// parameters, are valid during use. A cancelled ctx ends the work before the next micro-batch. use
// is called only if everything is done and finite.
func (r *replica) gradient(ctx context.Context, batch data.Batch, use func(s *torch.Scope, loss float64, gradients []*torch.Tensor) error) error {
	parts, tokens, err := r.cut(batch)
	if err != nil {
		return err
	}
	r.warnOfPadding(parts)
	if r.parallel != nil {
		return r.parallel.gradient(ctx, r, parts, tokens, use)
	}
	return r.engine.Do(ctx, true, func(s *torch.Scope) error {
		defer func() {
			for _, p := range r.parameters {
				p.tensor.ClearGrad()
			}
		}()
		total := 0.0
		for _, part := range parts {
			if err := ctx.Err(); err != nil {
				return err
			}
			share := float64(part.counted) / float64(tokens)
			err := s.Sub(func(s *torch.Scope) error {
				total += part.gradient(s, r.model, share) * share
				return nil
			})
			if err != nil {
				return err
			}
		}
		if math.IsNaN(total) || math.IsInf(total, 0) {
			return fmt.Errorf("%w: loss is %v", errNotFinite, total)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.WithGrad(false, func() error { return use(s, total, r.gradients(s)) })
	})
}

func (r *replica) gradients(s *torch.Scope) []*torch.Tensor {
	gradients := make([]*torch.Tensor, len(r.parameters))
	for i, p := range r.parameters {
		if gradients[i] = p.tensor.Grad(); gradients[i] == nil {
			gradients[i] = s.Zeros(torch.F32, p.shape...)
		}
		gradients[i] = gradients[i].Contiguous()
	}
	return gradients
}

// Evaluate returns the mean loss per token, in nats, over the sequences.
func (r *replica) Evaluate(ctx context.Context, sequences [][]int32) (float64, error) {
	if err := r.lock(ctx); err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	defer r.unlock()
	parts, tokens, err := r.cut(data.Batch{Sequences: sequences})
	if err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	network := r.model
	if r.parallel != nil {
		if network, err = r.parallel.evaluates(ctx, network); err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
	}
	total := 0.0
	for i, part := range parts {
		if r.evaluated != nil {
			r.evaluated(i, len(parts))
		}
		err := network.Engine().Do(ctx, false, func(s *torch.Scope) error {
			total += part.loss(s, network).Item() * float64(part.counted)
			return nil
		})
		if err == nil && (math.IsNaN(total) || math.IsInf(total, 0)) {
			err = fmt.Errorf("%w: loss is %v; are the weights damaged, or too large for the type that is computed in?", errNotFinite, total)
		}
		if err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
	}
	return total / float64(tokens), nil
}
