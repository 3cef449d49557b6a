package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train/schedule"
	"github.com/psyche-go/psyche/record/config"
)

// LocalTrainer trains its share of a run's rounds by many steps of AdamW or Muon each, and
// exchanges the resulting pseudo-gradient (package localsteps). It has the methods of Trainer,
// which are safe for concurrent use.
type LocalTrainer struct {
	*member
	config    config.LocalSteps
	computes  torch.DType
	quotients float64 // see longest
	inner     *AdamW  // for the same replica
	kernel    *distro.Kernel
	layouts   []distro.Layout
	results   []codec.TensorLayout
	sums      [][]float32 // residuals: pseudo-gradients not sent yet; initially zero
	momenta   [][]float32 // momenta of the pseudo-gradients, for outer_momentum; nil without
	fed       uint64      // number of additions to the sums
	// sent contains the values subtracted from the sums for a step, until it is known whether it
	// counted.
	sent   map[uint32]sentSums
	paused *replay // a round whose repetition was interrupted because other work needed the trainer; nil: none
}

// sentSums is the result of a step.
type sentSums struct {
	tensors []codec.TensorResult
	reach   float32
	fed     uint64
}

// NewLocal builds the model in memory and checks that everything fits, as New does.
func NewLocal(ctx context.Context, o Options) (*LocalTrainer, error) {
	c := o.Optimizer.LocalSteps
	switch {
	case c == nil:
		return nil, fmt.Errorf("trainer of local steps: %w: the optimizer must be LocalSteps", errUnsupported)
	case o.Audited && c.OuterMomentum > 0:
		return nil, fmt.Errorf("trainer of local steps: %w: outer_momentum %v in a run with audits: no other member has that momentum; set it to 0", errUnsupported, c.OuterMomentum)
	case o.Audited && c.ErrorDecay >= 1:
		return nil, fmt.Errorf("trainer of local steps: %w: error_decay %v in a run with audits: one false result would be sent forever; set it below 1, for instance to 0.95", errUnsupported, c.ErrorDecay)
	case c.InnerSteps < 1 || c.CompressionTopK < 1 || c.CompressionChunk < 1 || c.ValueBits < 1 || c.ValueBits > codec.MaxLevelBits ||
		!(c.ErrorDecay >= 0 && c.ErrorDecay <= 1) || !(c.OuterLR > 0 && c.OuterLR <= config.MaxOuterLR) ||
		!(c.OuterMomentum >= 0 && c.OuterMomentum < 1) || c.ApplyLag > config.MaxApplyLag:
		return nil, fmt.Errorf("trainer of local steps: %w: %+v", errUnsupported, *c)
	}
	rates, err := schedule.New(o.LRSchedule)
	if err != nil {
		return nil, fmt.Errorf("trainer of local steps: %w", err)
	}
	r, err := newTraining(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("trainer of local steps: %w", err)
	}
	t, err := newLocal(ctx, r, *c, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trainer of local steps: %w", err), r.Close())
	}
	var h *history // of the sums; with it the running means start as zeros in each round
	if o.Audited {
		h = newHistory(t.kernel, t.layouts, int(c.CompressionTopK), t.sums)
	}
	t.member = newMember(r, rates, o, shapesOf(t.layouts, int(c.CompressionTopK)), h, t.read, t)
	return t, nil
}

func newLocal(ctx context.Context, r *replica, c config.LocalSteps, o Options) (*LocalTrainer, error) {
	threads := o.Threads
	if info, err := torch.Loaded(); err == nil && threads <= 0 {
		threads = info.Threads
	}
	kernel, err := distro.NewKernel(distro.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	t := &LocalTrainer{config: c, computes: o.Compute.Compute, kernel: kernel, sent: map[uint32]sentSums{}}
	if t.inner, err = newAdamW(ctx, r, c.Inner(), t.muon(r)); err != nil {
		return nil, err
	}
	for _, shape := range r.shapes() {
		layout, err := distro.NewLayout(shape, int(c.CompressionChunk))
		if err != nil {
			return nil, err
		}
		t.layouts = append(t.layouts, layout)
		t.results = append(t.results, layout.Codec(int(c.CompressionTopK)))
		t.sums = append(t.sums, make([]float32, layout.Elements()))
		if c.OuterMomentum > 0 {
			t.momenta = append(t.momenta, make([]float32, layout.Elements()))
		}
	}
	t.quotients = t.longest(r)
	return t, nil
}

// muon returns the Muon optimizer for matrices, or nil for AdamW. With devices it computes on the
// first, in the type of gradients. On a processor it computes in f32, which was 1.6 times as fast
// as bf16 on one with AVX-512 BF16.
func (t *LocalTrainer) muon(r *replica) *muon {
	if t.config.InnerOptimizer != config.Muon {
		return nil
	}
	if on := r.parallel.apart(); len(on) > 0 {
		return &muon{computes: t.computes, device: on[0].twin.Engine().Device()}
	}
	return &muon{computes: torch.F32, device: torch.CPU}
}

// read decodes a payload strictly.
func (t *LocalTrainer) read(payload []byte) (codec.Header, []codec.TensorResult, error) {
	header, results, err := codec.DecodeLevels(payload, t.results, int(t.config.ValueBits))
	if err != nil {
		return codec.Header{}, nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return header, results, t.history.checkHeader(header)
}

// reach is approximately the maximum distance by which the steps of a round can move a weight.
func (t *LocalTrainer) reach(step uint32) float32 {
	return float32(float64(t.lr(step)) * float64(t.config.InnerSteps))
}

// Train makes the steps of a round on the parts of the batch, and returns the bytes of the result
// with the mean loss of the steps in nats per token. It then restores the weights. If it fails or
// ctx is cancelled, the residual is also unchanged, but the running means may include gradients of
// the steps made so far. For begun see Trainer.Train.
func (t *LocalTrainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error) {
	payload, loss, err = t.train(ctx, step, batch, begun)
	if err != nil {
		return nil, 0, fmt.Errorf("train step %d, batch %s: %w", step, batch.ID, err)
	}
	return payload, loss, nil
}

func (t *LocalTrainer) train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error) {
	if want := batch.ID.Len(); uint64(len(batch.Sequences)) != want {
		return nil, 0, fmt.Errorf("%w: %d sequences, the batch has %d", errTokens, len(batch.Sequences), want)
	}
	if err := t.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer t.unlock()
	if t.wasTrained(step) {
		return nil, 0, fmt.Errorf("%w: already trained", errStep)
	}
	defer t.keep()()
	if t.history != nil {
		t.inner.forget()
	} else if err := t.moveByOwn(step-1, 1); err != nil {
		return nil, 0, err
	}
	if loss, _, err = t.steps(ctx, step, batch, 0, true); err != nil {
		return nil, 0, err
	}
	if begun != nil {
		if err := begun(ctx); err != nil {
			return nil, 0, err
		}
	}
	defer t.timed(step, partEncode, time.Now())
	header := codec.Header{RunHash: t.run, Step: step, BatchStart: batch.ID.Start, BatchEnd: batch.ID.End, Trainer: t.trainer}
	if t.history != nil {
		header.Precision, header.Batch = precisionOf(t.computes).Code(), batch.Hash()
	} else if err := t.moveByOwn(step-1, -1); err != nil {
		return nil, 0, err
	}
	payload, err = t.encode(header)
	return payload, loss, err
}

// moveByOwn moves the weights by this trainer's result of a step if it waits to be applied with the
// others, as with an apply_lag of 2, or back with factor -1. A round that starts from weights
// without it repeats the same steps, so that its result and the next are almost the same. Auditors
// would need the result as well, so it is not done in runs with audits.
func (t *LocalTrainer) moveByOwn(step uint32, factor float32) error {
	own, waits := t.sent[step]
	if !waits {
		return nil
	}
	t.changed()
	for i, w := range t.weights() {
		if err := localsteps.AddBack(t.kernel, t.layouts[i], w, own.tensors[i], own.reach, -factor*float32(t.config.OuterLR)); err != nil {
			return fmt.Errorf("own result of step %d, tensor %d: %w", step, i, err)
		}
	}
	return nil
}

// wasTrained reports whether a result of a step waits to be applied.
func (t *LocalTrainer) wasTrained(step uint32) bool {
	defer t.history.lock()()
	_, trained := t.sent[step]
	return trained
}

// steps makes the steps of a round on the parts of a batch, starting with part from. It returns the
// sum of their losses divided by the number of all parts, and the next step.
func (t *LocalTrainer) steps(ctx context.Context, step uint32, batch data.Batch, from int, own bool) (loss float64, next int, err error) {
	parts := cutSteps(batch, uint64(t.config.InnerSteps))
	for next = from; next < len(parts); next++ {
		mean, err := t.innerStep(ctx, step, parts[next], own && next == len(parts)-1)
		if err != nil {
			return 0, next, fmt.Errorf("step %d of %d: %w", next+1, len(parts), err)
		}
		loss += mean / float64(len(parts))
	}
	return loss, next, nil
}

// innerStep makes one step on a part of a batch. It reports the statistics of the last step of a
// round.
func (t *LocalTrainer) innerStep(ctx context.Context, step uint32, part data.Batch, last bool) (loss float64, err error) {
	rate := t.lr(step)
	err = t.gradient(ctx, part, func(s *torch.Scope, mean float64, gradients []*torch.Tensor) error {
		loss = mean
		values := float32s(gradients)
		length := norm(values)
		if err := t.inner.update(ctx, s, rate, gradients, length); err != nil {
			return err
		}
		if last {
			t.statistics.tell(step, rate, length, values, t.sums)
		}
		return nil
	})
	return loss, err
}

// cutSteps cuts a batch into one part for each step, in its order, with sizes as equal as possible.
// It omits parts without a counting token, so there may be fewer parts.
func cutSteps(batch data.Batch, steps uint64) (parts []data.Batch) {
	n := batch.ID.Len()
	steps = min(steps, n)
	for i := range steps {
		first, end := n*i/steps, n*(i+1)/steps
		part := data.Batch{
			ID:        assign.BatchID{Start: batch.ID.Start + first, End: batch.ID.Start + end},
			Sequences: batch.Sequences[first:end],
		}
		if uint64(len(batch.Labels)) == n {
			if part.Labels = batch.Labels[first:end]; !anyCounts(part.Labels) {
				continue
			}
		}
		if uint64(len(batch.Positions)) == n {
			part.Positions = batch.Positions[first:end]
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return []data.Batch{batch} // its gradient returns the error
	}
	return parts
}

func anyCounts(labels [][]int32) bool {
	for _, sequence := range labels {
		for _, label := range sequence[min(1, len(sequence)):] {
			if label != data.IgnoreLabel {
				return true
			}
		}
	}
	return false
}

// encode adds the pseudo-gradient to the sums, and returns the bytes of the values that it
// subtracts from them.
func (t *LocalTrainer) encode(header codec.Header) ([]byte, error) {
	weights, far := t.weights(), 0.0
	for i, w := range weights {
		far = max(far, widest(t.kept[i], w))
	}
	if !(far <= maxUpdate) {
		return nil, fmt.Errorf("%w: a weight has moved by %v", errNotFinite, far)
	}
	defer t.history.lock()()
	p := localsteps.EncodeParams{
		Reach: t.reach(header.Step), Decay: float32(t.config.ErrorDecay),
		TopK: int(t.config.CompressionTopK), LevelBits: int(t.config.ValueBits),
	}
	if t.history != nil {
		t.history.begin()
		if newest := t.history.newest(); newest > 0 && newest < header.Step {
			p.Decay = audit.Decayed(p.Decay, header.Step-newest)
		}
	}
	for i := range t.layouts {
		localsteps.Far(t.kept[i], weights[i], t.momentum(i), float32(t.config.OuterMomentum)) // the caller restores the weights
	}
	payload, err := t.take(header, weights, p)
	if err != nil && t.history != nil {
		delete(t.sent, header.Step)
		t.history.restore()
	}
	return payload, err
}

// take adds the pseudo-gradient to the sums, subtracts the sent values, and returns their bytes.
func (t *LocalTrainer) take(header codec.Header, far [][]float32, p localsteps.EncodeParams) (payload []byte, err error) {
	tensors := make([]codec.TensorResult, len(t.layouts))
	t.fed++
	for i, l := range t.layouts {
		if tensors[i], err = localsteps.Encode(t.kernel, l, t.sums[i], far[i], p); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	t.sent[header.Step] = sentSums{tensors: tensors, reach: p.Reach, fed: t.fed}
	var values []codec.TensorResult
	if t.history != nil {
		if values, err = t.valued(header.Step, tensors); err != nil {
			return nil, err
		}
	}
	return t.history.seal(header, values, func(h codec.Header) ([]byte, error) {
		return codec.EncodeLevels(h, t.results, p.LevelBits, tensors)
	})
}

// momentum returns the momentum of a tensor, or nil.
func (t *LocalTrainer) momentum(i int) []float32 {
	if t.momenta == nil {
		return nil
	}
	return t.momenta[i]
}

// move changes the weights by results. Without results nothing changes.
func (t *LocalTrainer) move(_ context.Context, step uint32, results [][]codec.TensorResult) error {
	t.changed()
	params := t.applyParams(step)
	for i, w := range t.weights() {
		if err := localsteps.Apply(t.kernel, t.layouts[i], ofTensor(results, i), w, params); err != nil {
			return fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return nil
}

// applyParams returns the parameters for applying the results of a step.
func (t *LocalTrainer) applyParams(step uint32) localsteps.ApplyParams {
	return localsteps.ApplyParams{Reach: t.reach(step), LevelBits: int(t.config.ValueBits), Rate: float32(t.config.OuterLR)}
}

// settleOwn ends the wait for this trainer's result of a step. An uncounted result is added back to
// the sums, decayed as if it had never left. If results are audited, nothing is added back; see
// Settle.
func (t *LocalTrainer) settleOwn(step uint32, counted bool) error {
	defer t.history.lock()()
	sent, found := t.sent[step]
	delete(t.sent, step)
	if !found || counted || t.history != nil {
		return nil
	}
	left := float32(math.Pow(t.config.ErrorDecay, float64(t.fed-sent.fed)))
	for i, l := range t.layouts {
		if err := localsteps.AddBack(t.kernel, l, t.sums[i], sent.tensors[i], sent.reach, left); err != nil {
			return fmt.Errorf("add back step %d, tensor %d: %w", step, i, err)
		}
	}
	return nil
}

// forget resets the optimizer.
func (t *LocalTrainer) forget() {
	defer t.history.lock()()
	t.inner.forget()
	if t.history != nil {
		t.history.forget()
	}
	for _, sums := range slices.Concat(t.sums, t.momenta) {
		clear(sums)
	}
	t.fed, t.sent, t.paused = 0, map[uint32]sentSums{}, nil
}

// foresees is false, because the steps within a round move the weights and use the copy of
// keep.
func (t *LocalTrainer) foresees() bool { return false }

// ValueBits returns the number of bits of a sent value.
func (t *LocalTrainer) ValueBits() int { return int(t.config.ValueBits) }

// ApplyLag returns the number of rounds after which results are applied.
func (t *LocalTrainer) ApplyLag() uint32 { return t.config.Lag() }

// MaxResultSize returns the maximum size in bytes of a result of this model.
func (t *LocalTrainer) MaxResultSize() int {
	return codec.MaxLevelsSize(t.results, int(t.config.ValueBits))
}
