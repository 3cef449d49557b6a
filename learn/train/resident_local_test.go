//go:build linux

package train

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/record/config"
)

// TestResidentLocalStepsTrainTheSame trains a client of local steps on the CPU next to clients whose
// weights, running means and residuals are on one device and on two.
func TestResidentLocalStepsTrainTheSame(t *testing.T) {
	lag := func(o *Options) { o.Optimizer.LocalSteps.ApplyLag = 2 }
	momentum := func(o *Options) { o.Optimizer.LocalSteps.OuterMomentum = 0.5 }
	for name, with := range map[string][]func(o *Options){
		"adamw": nil, "lag": {lag}, "audited": {auditedRun}, "momentum": {momentum},
	} {
		t.Run(name, func(t *testing.T) {
			eachInner(t, func(t *testing.T, inner func(*Options)) {
				kernels, opened := withKernels(t, nil)
				with := slices.Concat([]func(o *Options){inner}, with, []func(o *Options){func(o *Options) { o.MicroBatch = 1 }})
				here := newLocalTrainer(t, with...)
				there := newLocalTrainer(t, append(with, onDevices(1), kernels)...)
				two := newLocalTrainer(t, append(with, onDevices(2), kernels)...)
				members := []*Trainer{here, there, two}
				var waiting [][]byte
				for step := uint32(1); step <= 6; step++ {
					batch := toyBatch(uint64(step)*8, uint64(step)*8+8)
					want, wantLoss, err := here.Train(t.Context(), step, batch, nil)
					if err != nil {
						t.Fatal(err)
					}
					for _, member := range members[1:] {
						got, loss, err := member.Train(t.Context(), step, batch, nil)
						if err != nil {
							t.Fatal(err)
						}
						if abs(loss-wantLoss) > 1e-4 {
							t.Errorf("step %d: loss %v, want %v", step, loss, wantLoss)
						}
						if member == there && name != "momentum" && string(got) != string(want) { // its sum rounds otherwise
							t.Errorf("step %d: another result", step)
						}
					}
					if waiting = append(waiting, want); len(waiting) < int(here.ApplyLag()) {
						continue
					}
					for _, member := range members {
						if err := member.Apply(t.Context(), step+1-here.ApplyLag(), waiting[:1], nil, step != 2); err != nil {
							t.Fatal(err)
						}
					}
					if waiting = waiting[1:]; step == 5 {
						continue // the next step starts without fresh weights on the CPU
					}
					for _, member := range members[1:] {
						if digest(t, member) != digest(t, here) {
							t.Fatalf("step %d: weights differ", step)
						}
						if member.parallel.home() == nil {
							t.Fatal("the optimizer left the device")
						}
					}
				}
				if len(*opened) != 5 {
					t.Errorf("%d kernels", len(*opened))
				}
			})
		})
	}
}

// TestResidentLocalStepsAreAudited compares openings and recomputations.
func TestResidentLocalStepsAreAudited(t *testing.T) {
	eachInner(t, func(t *testing.T, inner func(*Options)) {
		kernels, _ := withKernels(t, nil)
		here, there := newLocalTrainer(t, inner, auditedRun), newLocalTrainer(t, inner, auditedRun, onDevices(1), kernels)
		chunks := []uint32{0, 1, 5}
		var applied []audit.Applied
		for step := uint32(1); step <= 3; step++ {
			payloads := results(t, step, here)
			if string(results(t, step, there)[0]) != string(payloads[0]) {
				t.Fatalf("step %d: another result", step)
			}
			want, err := here.Open(step, chunks)
			if err != nil {
				t.Fatal(err)
			}
			if opening, err := there.Open(step, chunks); err != nil || !equalOpenings(opening, want) {
				t.Fatalf("step %d: another opening (%v)", step, err)
			}
			apply(t, step, payloads, here, there)
			applied = slices.Insert(applied, 0, audit.Applied{Step: step, Payloads: payloads})
		}
		x := audit.Recomputation{Step: 2, Trainer: here.key, Weights: 1, Chunks: chunks, Precision: audit.F32, Applied: applied[:2], Shaken: true}
		batch := toyBatch(2*9, 2*9+3)
		before := digest(t, there)
		want, err := here.Recompute(t.Context(), x, batch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := there.Recompute(t.Context(), x, batch)
		if err != nil {
			t.Fatal(err)
		}
		if !sameBits(got.Updates, want.Updates) || !slices.Equal(got.Tolerance, want.Tolerance) {
			t.Error("another reference")
		}
		if digest(t, there) != before {
			t.Error("a recomputation changed the weights")
		}
		apply(t, 4, results(t, 4, here, there), here, there)
		if digest(t, there) != digest(t, here) || there.parallel.home() == nil {
			t.Error("weights differ after a recomputation, or the optimizer left the device")
		}
	})
}

func equalOpenings(a, b audit.Opening) bool {
	return slices.EqualFunc(a.Chunks, b.Chunks, func(a, b audit.Opened) bool {
		return a.Chunk == b.Chunk && slices.Equal(a.After.Momentum, b.After.Momentum) && slices.Equal(a.Before.Momentum, b.Before.Momentum) &&
			slices.Equal(a.After.Path, b.After.Path)
	})
}

// TestWrongKernelsOfLocalStepsAreLeft checks that local steps continue on the CPU, with the running
// means and the residual, if a device computes other bits. After a failure while the CPU has the weights too, they
// continue on the device.
func TestWrongKernelsOfLocalStepsAreLeft(t *testing.T) {
	for name, fault := range map[string]func(m *tested){
		"apply":       func(m *tested) { m.wrong = "ApplyLevels" },
		"apply fails": func(m *tested) { m.failOnce = "ApplyLevels" },
		"encode":      func(m *tested) { m.wrong = "EncodeLevels" },
	} {
		t.Run(name, func(t *testing.T) {
			eachInner(t, func(t *testing.T, inner func(*Options)) {
				var log bytes.Buffer
				kernels, opened := withKernels(t, nil)
				with := []func(o *Options){inner}
				if name == "encode" {
					with = append(with, auditedRun)
				}
				here, there := newLocalTrainer(t, with...), newLocalTrainer(t, append(with, onDevices(1), kernels, warnings(&log))...)
				for step := uint32(1); step <= 4; step++ {
					payloads := results(t, step, here)
					if step == 1 && name == "encode" {
						fault((*opened)[0])
					}
					if string(results(t, step, there)[0]) != string(payloads[0]) {
						t.Fatalf("step %d: another result", step)
					}
					if step == 1 && name != "encode" {
						fault((*opened)[0])
					}
					apply(t, step, payloads, here, there)
					if digest(t, there) != digest(t, here) {
						t.Fatalf("step %d: weights differ", step)
					}
				}
				if left := name != "apply fails"; (there.parallel.home() == nil) != left || (*opened)[0].closed != left || strings.Count(log.String(), "level=WARN") != 1 {
					t.Errorf("on the device: %v, closed: %v; log: %s", there.parallel.home() != nil, (*opened)[0].closed, log.String())
				}
			})
		})
	}
}

// TestLostWeightsOfLocalSteps checks that nothing uses weights that a device has lost.
func TestLostWeightsOfLocalSteps(t *testing.T) {
	kernels, opened := withKernels(t, nil)
	here, there := newLocalTrainer(t), newLocalTrainer(t, onDevices(1), kernels)
	step := uint32(0)
	for range firstCompared + 1 {
		step++
		payloads := results(t, step, here)
		results(t, step, there)
		apply(t, step, payloads, here, there)
	}
	step++
	payloads := results(t, step, here)
	(*opened)[0].fail = "ApplyLevels"
	if err := there.Apply(t.Context(), step, payloads, nil, false); !errors.Is(err, errLost) || !errors.Is(err, errTested) {
		t.Fatalf("error = %v", err)
	}
	if _, err := there.Snapshot(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("snapshot: %v", err)
	}
	(*opened)[0].fail = ""
	apply(t, step, payloads, here)
	model, err := here.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Load(t.Context(), model); err != nil {
		t.Fatal(err)
	}
	if digest(t, there) != digest(t, here) {
		t.Error("weights differ after a load")
	}
}

// TestResidentLocalStateIsSavedAndLoaded continues from a saved state, on the CPU and on a device.
func TestResidentLocalStateIsSavedAndLoaded(t *testing.T) {
	eachInner(t, func(t *testing.T, inner func(*Options)) {
		kernels, _ := withKernels(t, nil)
		there := newLocalTrainer(t, inner, onDevices(1), kernels)
		for step := uint32(1); step <= 2; step++ {
			apply(t, step, results(t, step, there), there)
		}
		state, err := there.OptimizerState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		model, err := there.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := results(t, 3, there)[0]
		for _, with := range [][]func(o *Options){{}, {onDevices(1), kernels}} {
			again := newLocalTrainer(t, append(with, inner, func(o *Options) { o.Model = model })...)
			if err := again.SetOptimizerState(t.Context(), state); err != nil {
				t.Fatal(err)
			}
			if string(results(t, 3, again)[0]) != string(want) {
				t.Error("another result")
			}
		}
	})
}

// TestResidentAdamW trains with AdamW on two devices: steps move the weights on the first device, and
// the second follows.
func TestResidentAdamW(t *testing.T) {
	o := toyOptions(t)
	o.Optimizer, o.MicroBatch = config.Optimizer{AdamW: o.Optimizer.AdamW}, 1
	onDevices(2)(&o)
	there, err := NewAdamW(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Devices = nil
	here, err := NewAdamW(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for step := uint32(1); step <= 4; step++ {
		want, err := here.Step(t.Context(), step, toyBatch(uint64(step)*4, uint64(step)*4+4))
		if err != nil {
			t.Fatal(err)
		}
		if loss, err := there.Step(t.Context(), step, toyBatch(uint64(step)*4, uint64(step)*4+4)); err != nil || abs(loss-want) > 1e-4 {
			t.Fatalf("step %d: loss %v (%v), want %v", step, loss, err, want)
		}
	}
	if there.fresh == there.changes {
		t.Error("the weights on the CPU follow without need")
	}
	for _, trainer := range []*AdamW{here, there} {
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	}
}
