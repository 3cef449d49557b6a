package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// New returns a trainer that exchanges results of DisTrO. It builds the model in memory and checks
// that everything fits. It loads libtorch; without it the error wraps torch.ErrNoLibrary.
func New(ctx context.Context, o Options) (*Trainer, error) {
	if o.Optimizer.Distro == nil {
		return nil, fmt.Errorf("trainer: %w: a run's optimizer must be Distro", errUnsupported)
	}
	t, err := newTrainer(ctx, o, newDistro)
	if err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	return t, nil
}

// NewLocal returns a trainer that makes many steps of AdamW or Muon in each round, and exchanges the
// resulting pseudo-gradient (package localsteps). It builds the model in memory and checks that
// everything fits, as New does.
func NewLocal(ctx context.Context, o Options) (*Trainer, error) {
	err := checkLocal(o)
	var t *Trainer
	if err == nil {
		t, err = newTrainer(ctx, o, newLocal)
	}
	if err != nil {
		return nil, fmt.Errorf("trainer of local steps: %w", err)
	}
	return t, nil
}

// newTrainer makes a trainer with an exchange.
func newTrainer(ctx context.Context, o Options, exchanging func(context.Context, *Trainer, Options) error) (*Trainer, error) {
	rates, err := newRates(o.LRSchedule)
	if err != nil {
		return nil, err
	}
	r, err := newTraining(ctx, o)
	if err != nil {
		return nil, err
	}
	if info, err := torch.Loaded(); err == nil && o.Threads <= 0 {
		o.Threads = info.Threads
	}
	t := &Trainer{replica: r, rates: rates, timings: o.Timed, auditor: &auditor{replica: r, key: o.TrainerID, keeper: newKeeper()}}
	if err := exchanging(ctx, t, o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	t.auditor.reader = t.reader
	return t, nil
}

// newDistro makes a trainer exchange results of DisTrO.
func newDistro(ctx context.Context, t *Trainer, o Options) error {
	optimizer, err := newOptimizer(*o.Optimizer.Distro, t.shapes(), o.Threads)
	if err != nil {
		return err
	}
	c, r := optimizer.config, t.replica
	there, err := openResident(ctx, r, optimizer.kernel, optimizer.layouts, int(c.CompressionTopK), o)
	if err != nil {
		return err
	}
	if there != nil {
		optimizer.momentum = there
	}
	if o.Audited {
		if err := optimizer.commit(); err != nil {
			return err
		}
	}
	t.speculates = !c.Lookahead
	t.limits = limits{lag: c.Lag(), maxResult: codec.MaxSize(optimizer.results, c.Quantize1Bit)}
	t.reader = newReader(o, optimizer)
	t.exchange = &distroExchange{replica: r, rates: t.rates, timings: t.timings, optimizer: optimizer}
	t.examiner = &distroExaminer{
		replica: r, rates: t.rates, optimizer: optimizer, computes: o.Compute.Compute, keeper: t.keeper,
		earlier: &lookback{replica: r, rates: t.rates, reader: t.reader, optimizer: optimizer},
	}
	t.chunks, t.history = shapesOf(optimizer.layouts, int(c.CompressionTopK)), optimizer.history
	t.precisions = []audit.Precision{audit.F32, audit.BF16}
	if precisionOf(o.Compute.Compute) == audit.BF16 {
		t.precisions = []audit.Precision{audit.BF16, audit.F32}
	}
	return nil
}

// checkLocal refuses options of local steps that are not supported.
func checkLocal(o Options) error {
	c := o.Optimizer.LocalSteps
	switch {
	case c == nil:
		return fmt.Errorf("%w: the optimizer must be LocalSteps", errUnsupported)
	case o.Audited && c.OuterMomentum > 0:
		return fmt.Errorf("%w: outer_momentum %v in a run with audits: no other member has that momentum; set it to 0", errUnsupported, c.OuterMomentum)
	case o.Audited && c.ErrorDecay >= 1:
		return fmt.Errorf("%w: error_decay %v in a run with audits: one false result would be sent forever; set it below 1, for instance to 0.95", errUnsupported, c.ErrorDecay)
	case c.InnerSteps < 1 || c.CompressionTopK < 1 || c.CompressionChunk < 1 || c.ValueBits < 1 || c.ValueBits > codec.MaxLevelBits ||
		!(c.ErrorDecay >= 0 && c.ErrorDecay <= 1) || !(c.OuterLR > 0 && c.OuterLR <= config.MaxOuterLR) ||
		!(c.OuterMomentum >= 0 && c.OuterMomentum < 1) || c.ApplyLag > config.MaxApplyLag:
		return fmt.Errorf("%w: %+v", errUnsupported, *c)
	}
	return nil
}

// newLocal makes a trainer exchange the pseudo-gradients of local steps. Training moves the weights
// and uses their kept copy, so it cannot speculate.
func newLocal(ctx context.Context, t *Trainer, o Options) error {
	c, r := *o.Optimizer.LocalSteps, t.replica
	residual, err := newResidual(c, t.shapes(), o.Threads)
	if err != nil {
		return err
	}
	there, err := openResident(ctx, r, residual.kernel, residual.layouts, int(c.CompressionTopK), o)
	if err != nil {
		return err
	}
	if there != nil {
		if err := residual.stayOn(ctx, there); err != nil {
			return err
		}
	}
	muon := muonOf(c, r.parallel.apart(), o.Compute.Compute)
	inner, err := newUpdater(ctx, place{r.store, r.parallel.resides()}, c.Inner(), muon)
	if err != nil {
		return err
	}
	if o.Audited {
		if err := residual.commit(); err != nil {
			return err
		}
	}
	rounds := &rounds{replica: r, rates: t.rates, inner: inner, steps: uint64(c.InnerSteps)}
	t.limits = limits{lag: c.Lag(), maxResult: codec.MaxLevelsSize(residual.results, int(c.ValueBits)), valueBits: int(c.ValueBits)}
	t.reader = newReader(o, residual)
	t.exchange = &localExchange{replica: r, rounds: rounds, residual: residual, timings: t.timings}
	repeating := *rounds
	t.examiner = &replayer{
		replica: r, rounds: &repeating, residual: residual, reader: t.reader, computes: o.Compute.Compute, keeper: t.keeper,
		bounds: &localBounds{rates: t.rates, config: c, quotients: longestRound(c, inner, residual.layouts)},
	}
	t.chunks, t.history = shapesOf(residual.layouts, int(c.CompressionTopK)), residual.history
	t.precisions = []audit.Precision{precisionOf(o.Compute.Compute)}
	return nil
}

// muonOf returns the Muon optimizer for matrices, or nil for AdamW. If there are devices, it
// computes on the device of a matrix or on the first device, in the type of gradients. On a CPU it computes in f32, which was
// 1.6 times as fast as bf16 on a CPU with AVX-512 BF16.
func muonOf(c config.LocalSteps, devices []*apart, computes torch.DType) *muon {
	if c.InnerOptimizer != config.Muon {
		return nil
	}
	if len(devices) > 0 {
		return &muon{computes: computes, device: devices[0].twin.Engine().Device()}
	}
	return &muon{computes: torch.F32, device: torch.CPU}
}
