//go:build linux

package train

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
	"github.com/psyche-go/psyche/learn/torch/torchtest/strict"
	"github.com/psyche-go/psyche/record/config"
)

// TestFirstRecomputationIsCancelled cancels the first recomputation of a trainer after each number of
// checks. The first recomputation makes a model or running means. The second recomputation must succeed.
func TestFirstRecomputationIsCancelled(t *testing.T) {
	kernels, _ := withKernels(t, nil)
	for name, test := range map[string]struct {
		create    func(t testing.TB, change ...func(o *Options)) *Trainer
		change    []func(o *Options)
		precision audit.Precision
	}{
		"distro":           {newTestTrainer, nil, audit.BF16},
		"distro on device": {newTestTrainer, []func(o *Options){onDevices(1), kernels}, audit.BF16},
		"local on device":  {newLocalTrainer, []func(o *Options){onDevices(1), kernels}, audit.F32},
	} {
		t.Run(name, func(t *testing.T) {
			for looks, cancelled := int32(0), true; cancelled; looks++ {
				trainer := test.create(t, append(test.change, auditedRun)...)
				x := audit.Recomputation{Step: 1, Trainer: trainer.key, Chunks: []uint32{0}, Precision: test.precision}
				ctx := &ending{Context: t.Context()}
				ctx.left.Store(looks)
				_, err := trainer.Recompute(ctx, x, toyBatch(0, 4))
				if cancelled = errors.Is(err, context.Canceled); !cancelled && errors.Is(err, errUnsupported) {
					t.Skip(err)
				}
				if _, err := trainer.Recompute(t.Context(), x, toyBatch(0, 4)); err != nil {
					t.Fatalf("after a cancellation at check %d: %v", looks, err)
				}
			}
		})
	}
}

// TestClosedTrainerOpensNothing checks that an opening after Close does not read freed memory.
func TestClosedTrainerOpensNothing(t *testing.T) {
	for name, with := range map[string]func(o *Options){"on the CPU": func(*Options) {}, "on a device": onDevices(1)} {
		t.Run(name, func(t *testing.T) {
			kernels, _ := withKernels(t, nil)
			trainer := newTestTrainer(t, auditedRun, with, kernels)
			results(t, 1, trainer)
			if _, err := trainer.Open(1, []uint32{0}); err != nil {
				t.Fatal(err)
			}
			if err := trainer.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := trainer.Open(1, []uint32{0}); !errors.Is(err, ErrClosed) {
				t.Errorf("error = %v, want ErrClosed", err)
			}
		})
	}
}

// TestConvertedWeightsFollowAdamW trains with AdamW in bf16 on the CPU and on a copy of the model, which
// keeps weights in bf16.
func TestConvertedWeightsFollowAdamW(t *testing.T) {
	if !torchtest.BF16(t) {
		t.Skip("needs a machine on which bf16 computes rightly")
	}
	var losses [2][]float64
	for i := range losses {
		o := toyOptions(t)
		o.Optimizer, o.Compute.Compute = config.Optimizer{AdamW: o.Optimizer.AdamW}, torch.BF16
		onDevices(i)(&o)
		trainer, err := NewAdamW(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for step := uint32(1); step <= 3; step++ {
			loss, err := trainer.Step(t.Context(), step, toyBatch(0, 2))
			if err != nil {
				t.Fatal(err)
			}
			losses[i] = append(losses[i], loss)
		}
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(losses[0], losses[1]) {
		t.Errorf("losses %v, want %v", losses[1], losses[0])
	}
}

// losing are kernels that free the copy of the weights before the steps of a round.
type losing struct {
	kernels
	trainer **Trainer
}

func (l losing) EncodeLevels(delta, left, grad []cuda.Tensor, p localsteps.EncodeParams) ([]codec.TensorResult, error) {
	(*l.trainer).parallel.resides().kept[0].Free()
	return l.kernels.EncodeLevels(delta, left, grad, p)
}

// TestLostWeightsAreNotLeft checks a device that computes other bits in a round of local steps, and then
// cannot restore the weights. The older weights on the CPU must not become the newest.
func TestLostWeightsAreNotLeft(t *testing.T) {
	var there *Trainer
	there = newLocalTrainer(t, onDevices(1), func(o *Options) {
		o.kernels = func(layouts []distro.Layout, _ int) (kernels, error) {
			kernel, err := distro.NewKernel(distro.Options{})
			return losing{&tested{kernels: processorKernels{kernel, layouts}, wrong: "Leaves"}, &there}, err
		}
	})
	if _, _, err := there.Train(t.Context(), 1, toyBatch(0, 4), nil); !errors.Is(err, errLost) {
		t.Fatalf("error = %v, want errLost", err)
	}
	if there.local().residual.trained(1) {
		t.Error("the step counts as trained")
	}
	if _, err := there.Snapshot(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("snapshot: error = %v, want errLost", err)
	}
	if err := there.Load(t.Context(), toyModel(t, 7)); err != nil {
		t.Fatal(err)
	}
	want := newLocalTrainer(t, func(o *Options) { o.Model = toyModel(t, 7) })
	if digest(t, there) != digest(t, want) {
		t.Error("weights differ after a load")
	}
}

// TestLeftDevicesKeepNoState checks that the state of an optimizer that left a device is freed there.
func TestLeftDevicesKeepNoState(t *testing.T) {
	wrong, _ := withKernels(t, func(m *tested) { m.wrong = "Leaves" })
	distro := newTestTrainer(t, auditedRun, onDevices(1), wrong)
	momentum := distro.distro().optimizer.momentum.(*resident)
	local := newLocalTrainer(t, onDevices(1), wrong, func(o *Options) { o.Optimizer.LocalSteps.OuterMomentum = 0.5 })
	of := local.local()
	unsent, outer, means := of.residual.unsent.(*resident), of.residual.outer.(*resident), of.rounds.inner.moments
	results(t, 1, distro, local)
	if distro.parallel.home() != nil || local.parallel.home() != nil {
		t.Fatal("an optimizer is on its device")
	}
	for _, tensor := range slices.Concat(momentum.now, momentum.before, unsent.now, outer.now, means[0].tensors, means[1].tensors) {
		if tensor.String() != "no tensor" {
			t.Fatalf("the device keeps %s", tensor)
		}
	}
}

// TestFailedCopyIsMadeAgain checks that a device that could not allocate a copy of the weights can
// allocate it later.
func TestFailedCopyIsMadeAgain(t *testing.T) {
	kernels, _ := withKernels(t, nil)
	trainer := newLocalTrainer(t, onDevices(1), kernels)
	last := &trainer.parameters[len(trainer.parameters)-1]
	shape := last.shape
	last.shape = []int64{-1}
	_, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 4), nil)
	if refused := (*torch.Error)(nil); !errors.As(err, &refused) {
		t.Fatalf("error = %v, want a *torch.Error", err)
	}
	last.shape = shape
	if _, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 4), nil); err != nil {
		t.Error(err)
	}
}

// TestResidentRecomputationsGoOn checks interrupted recomputations of members whose weights and optimizer are
// on one device and on two.
func TestResidentRecomputationsGoOn(t *testing.T) {
	for devices := 1; devices <= 2; devices++ {
		kernels, _ := withKernels(t, nil)
		testRecomputationsGoOn(t, audit.F32, []func(*Options){onDevices(devices), kernels})
	}
}

// TestStrictRecomputationsGoOn checks an interrupted recomputation on a strict device.
func TestStrictRecomputationsGoOn(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	a, batch := withVerifier(t, 1, onStrict(t, 1)), toyBatch(8, 11)
	x := func() audit.Recomputation { return a.question(1) }
	want, err := a.verifier.Recompute(t.Context(), x(), batch)
	if err != nil {
		t.Fatal(err)
	}
	got, pieces := a.inPieces(x, batch, func(int) {})
	if !reflect.DeepEqual(got, want) || pieces < 2 {
		t.Errorf("another reference after %d interruptions", pieces)
	}
}
