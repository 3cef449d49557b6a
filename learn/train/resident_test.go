//go:build linux

package train

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/record/config"
)

// In these tests, engines on the CPU stand for other devices: the addresses of their tensors are
// addresses in the process.

// onTheDevices reports for each copy whether its memory equals the trainer's weights, without a refresh.
func onTheDevices(t *testing.T, trainer *Trainer) (equal []bool) {
	t.Helper()
	if _, err := trainer.Snapshot(t.Context()); err != nil { // brings the weights
		t.Fatal(err)
	}
	for _, a := range trainer.parallel.apart() {
		var there [][]float32
		for _, p := range a.twin.Parameters() {
			there = append(there, p.Tensor.Float32s())
		}
		equal = append(equal, sameBits(there, trainer.weights()))
	}
	return equal
}

// results makes every client train a different batch in the step.
func results(t *testing.T, step uint32, clients ...*Trainer) (payloads [][]byte) {
	t.Helper()
	for i, client := range clients {
		start := uint64(step)*9 + 3*uint64(i)
		payload, _, err := client.Train(t.Context(), step, toyBatch(start, start+3), nil)
		if err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, payload)
	}
	return payloads
}

func apply(t *testing.T, step uint32, payloads [][]byte, members ...*Trainer) {
	t.Helper()
	for _, member := range members {
		if err := member.Apply(t.Context(), step, payloads, nil, len(payloads) > 0); err != nil {
			t.Fatal(err)
		}
	}
}

func warnings(into *bytes.Buffer) func(o *Options) {
	return func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(into, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
}

// TestResidentTrainsTheSame trains a client on the CPU next to clients whose momentum and weights are
// on one device and on two. All must have the same bits. Two devices add gradients in another order, so
// only their weights must be the same.
func TestResidentTrainsTheSame(t *testing.T) {
	quantized := func(o *Options) {
		d := *o.Optimizer.Distro
		d.Quantize1Bit, d.ClipGradNorm = true, 1
		o.Optimizer = config.Optimizer{Distro: &d}
	}
	for _, test := range []struct {
		name, model string
		with        []func(o *Options)
		devices     int
	}{
		{"llama", toyConfig, nil, 2},
		{"v3", toyV3, nil, 2},
		{"qwen2", toyQwen2, nil, 2},
		{"qwen3_moe", toyQwen3MoE, nil, 2},
		{"gemma3", toyGemma3, nil, 2},
		{"gpt_oss", toyGPTOSS, nil, 2},
		{"llama4", toyLlama4, nil, 2},
		{"glm4_moe", toyGLM4MoE, nil, 2},
		{"signs", toyConfig, []func(o *Options){quantized}, 2},
		{"audited", toyConfig, []func(o *Options){quantized, auditedRun}, 2},
		{"lookahead", toyConfig, []func(o *Options){lookingAhead}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			kernels, opened := withKernels(t, nil)
			with := append(test.with, func(o *Options) { o.Model, o.MicroBatch = snapshotOf(t, test.model), 1 })
			here := newTestTrainer(t, with...)
			there := newTestTrainer(t, append(with, onDevices(1), kernels)...)
			members := []*Trainer{here, there}
			if test.devices == 2 {
				members = append(members, newTestTrainer(t, append(with, onDevices(2), kernels)...))
			}
			for _, member := range members { // a cold start: the first step's rate is 0
				if err := member.SetColdStart(t.Context(), 1, 3); err != nil {
					t.Fatal(err)
				}
			}
			for step := uint32(1); step <= 6; step++ {
				batch := toyBatch(uint64(step)*3, uint64(step)*3+3)
				want, wantLoss, err := here.Train(t.Context(), step, batch, nil)
				if err != nil {
					t.Fatal(err)
				}
				for i, member := range members[1:] {
					got, loss, err := member.Train(t.Context(), step, batch, nil)
					if err != nil {
						t.Fatal(err)
					}
					if i == 0 && (string(got) != string(want) || loss != wantLoss) || abs(loss-wantLoss) > 1e-5 {
						t.Fatalf("step %d: another result or loss (%v, want %v)", step, loss, wantLoss)
					}
				}
				counted := step != 2
				payloads := [][]byte{want}
				if step == 4 {
					payloads = nil // weight decay alone
				}
				for _, member := range members {
					if err := member.Apply(t.Context(), step, payloads, nil, counted); err != nil {
						t.Fatal(err)
					}
				}
				if step == 5 {
					continue // the next step starts without fresh weights on the CPU
				}
				for _, member := range members[1:] {
					if digest(t, member) != digest(t, here) {
						t.Fatalf("step %d: weights differ", step)
					}
					if slices.Contains(onTheDevices(t, member), false) {
						t.Fatalf("step %d: a copy differs", step)
					}
				}
			}
			if !sameBits(momentumOf(here.distro().optimizer), momentumOf(there.distro().optimizer)) {
				t.Error("momentum differs")
			}
			for _, member := range members[1:] {
				if member.parallel.home() == nil {
					t.Error("the optimizer left the device")
				}
			}
			if (*opened)[0].applied != 6 {
				t.Errorf("%d calls of Apply, want one for each step", (*opened)[0].applied)
			}
		})
	}
}

// auditedRun turns audits on for a trainer of DisTrO or of local steps.
func auditedRun(o *Options) {
	o.Audited = true
	if c := o.Optimizer.LocalSteps; c != nil {
		c.ErrorDecay = 0.95
		return
	}
	d := *o.Optimizer.Distro
	d.ClipGradNorm = 1
	o.Optimizer = config.Optimizer{Distro: &d}
}

// TestResidentOpensTheSame compares openings, roll-backs and recomputations in a run with audits.
func TestResidentOpensTheSame(t *testing.T) {
	kernels, _ := withKernels(t, nil)
	members := []*Trainer{newTestTrainer(t, auditedRun), newTestTrainer(t, auditedRun, onDevices(1), kernels)}
	var chunks []uint32
	for c := range uint32(members[0].Shapes().Chunks()) {
		chunks = append(chunks, c)
	}
	var kept []audit.Applied
	for step := uint32(1); step <= 5; step++ {
		var payloads [2][]byte
		var openings [2]audit.Opening
		for i, member := range members {
			payload, _, err := member.Train(t.Context(), step, toyBatch(uint64(step)*3, uint64(step)*3+3), func(context.Context) error {
				if step == 4 {
					return member.SetAttested(3, false)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			payloads[i] = payload
			if openings[i], err = member.Open(step, chunks); err != nil {
				t.Fatal(err)
			}
		}
		if string(payloads[0]) != string(payloads[1]) || !reflect.DeepEqual(openings[0], openings[1]) {
			t.Fatalf("step %d: results or openings differ", step)
		}
		apply(t, step, payloads[:1], members...)
		kept = slices.Insert(kept, 0, audit.Applied{Step: step, Payloads: payloads[:1]})
		if step < 3 {
			continue
		}
		var references [2]*audit.Reference
		for i, member := range members {
			before := digest(t, member)
			x := audit.Recomputation{Step: step - 1, Trainer: member.key, Weights: step - 2, Chunks: chunks, Precision: audit.F32, Applied: kept[:2]}
			var err error
			if references[i], err = member.Recompute(t.Context(), x, toyBatch(uint64(step-1)*3, uint64(step-1)*3+3)); err != nil {
				t.Fatal(err)
			}
			if digest(t, member) != before {
				t.Errorf("step %d: a recomputation changed the weights", step)
			}
		}
		for i, update := range references[0].Updates { // restored weights may differ in their last bit
			if far := distance(update, references[1].Updates[i]); !(far <= 1e-4*norm([][]float32{update})) {
				t.Errorf("step %d: the updates of chunk %d differ by %v", step, chunks[i], far)
			}
		}
	}
}

// TestResidentSpeculates undoes one speculation and confirms the next.
func TestResidentSpeculates(t *testing.T) {
	kernels, _ := withKernels(t, nil)
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(2), kernels)
	for step := uint32(1); step <= 5; step++ {
		payloads := results(t, step, here, there)
		for _, guess := range [][][]byte{payloads[:1], payloads} {
			if done, err := there.Speculate(t.Context(), step, guess, nil, true); err != nil || !done {
				t.Fatalf("step %d: %v (%v)", step, done, err)
			}
		}
		apply(t, step, payloads, here, there)
		if digest(t, there) != digest(t, here) {
			t.Fatalf("step %d: weights differ", step)
		}
	}
}

// TestResidentStateIsSavedAndLoaded continues from a saved state, on the CPU and on a device.
func TestResidentStateIsSavedAndLoaded(t *testing.T) {
	kernels, _ := withKernels(t, nil)
	there := newTestTrainer(t, onDevices(1), kernels)
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
	again := []*Trainer{there}
	for _, with := range [][]func(o *Options){{}, {onDevices(1), kernels}} {
		member := newTestTrainer(t, append(with, func(o *Options) { o.Model = model })...)
		if err := member.SetOptimizerState(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		again = append(again, member)
	}
	var want []byte
	for i, member := range again {
		payload := results(t, 3, member)[0]
		if i == 0 {
			want = payload
		}
		if string(payload) != string(want) {
			t.Errorf("trainer %d: another result", i)
		}
	}
	if err := there.Load(t.Context(), toyModel(t, 7)); err != nil {
		t.Fatal(err)
	}
	if norm(momentumOf(there.distro().optimizer)) != 0 || slices.Contains(onTheDevices(t, there), true) {
		t.Error("a load did not reset the momentum, or changed the copy before its refresh")
	}
	fresh := newTestTrainer(t, func(o *Options) { o.Model = toyModel(t, 7) })
	if string(results(t, 1, there)[0]) != string(results(t, 1, fresh)[0]) {
		t.Error("another result after a load")
	}
}

// TestResidentReportsStatistics compares the statistics of single tensors.
func TestResidentReportsStatistics(t *testing.T) {
	kernels, _ := withKernels(t, nil)
	var reports [2][]Gradient
	for i, with := range [][]func(o *Options){{}, {onDevices(1), kernels}} {
		trainer := newTestTrainer(t, append(with, func(o *Options) {
			o.StatsEvery, o.Trained = 1, func(g Gradient) { reports[i] = append(reports[i], g) }
		})...)
		for step := uint32(1); step <= 2; step++ {
			apply(t, step, results(t, step, trainer), trainer)
		}
	}
	if !reflect.DeepEqual(reports[0], reports[1]) || len(reports[0]) != 2 || len(reports[0][1].Tensors) == 0 {
		t.Errorf("%+v, want %+v", reports[1], reports[0])
	}
}

// TestWrongKernelsAreLeft checks that the optimizer continues on the CPU, with right bits, if a device
// computes other bits or fails often while the CPU has the weights too.
func TestWrongKernelsAreLeft(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  func(m *tested)
		is     error
		within uint32 // steps
	}{
		{"apply", func(m *tested) { m.wrong = "Apply" }, nil, 2}, // the first step has a rate of 0
		{"apply fails", func(m *tested) { m.fail = "Apply" }, errTested, maxStrikes},
		{"encode", func(m *tested) { m.wrong = "Encode" }, errBits, 3}, // until then, the momentum is 0 before the step
		{"leaves", func(m *tested) { m.wrong = "Leaves" }, errBits, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			kernels, opened := withKernels(t, test.fault)
			here, there := newTestTrainer(t, auditedRun), newTestTrainer(t, auditedRun, onDevices(1), kernels, warnings(&log))
			for _, member := range []*Trainer{here, there} {
				if err := member.SetColdStart(t.Context(), 1, 3); err != nil {
					t.Fatal(err)
				}
			}
			for step := uint32(1); step <= 4; step++ {
				batch := toyBatch(uint64(step)*3, uint64(step)*3+3)
				want, _, err := here.Train(t.Context(), step, batch, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, _, err := there.Train(t.Context(), step, batch, nil)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != string(want) {
					t.Fatalf("step %d: another result", step)
				}
				wanted, err := here.Open(step, []uint32{0, 1, 2})
				if err != nil {
					t.Fatal(err)
				}
				if opening, err := there.Open(step, []uint32{0, 1, 2}); err != nil || !reflect.DeepEqual(opening, wanted) {
					t.Fatalf("step %d: another opening (%v)", step, err)
				}
				apply(t, step, [][]byte{want}, here, there)
				if left := there.parallel.home() == nil; left != (step >= test.within) {
					t.Errorf("step %d: the optimizer left the device: %v", step, left)
				}
				if digest(t, there) != digest(t, here) {
					t.Fatalf("step %d: weights differ", step)
				}
			}
			if !(*opened)[0].closed || strings.Count(log.String(), "continues on the CPU") != 1 {
				t.Errorf("closed: %v; log: %s", (*opened)[0].closed, log.String())
			}
		})
	}
}

// TestLaterErrorOfADeviceIsFound checks that a device is found that computes other bits only after the
// first comparisons.
func TestLaterErrorOfADeviceIsFound(t *testing.T) {
	kernels, opened := withKernels(t, nil)
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), kernels)
	step := uint32(0)
	move := func() {
		t.Helper()
		step++
		apply(t, step, results(t, step, here), here, there)
	}
	for range firstCompared {
		move()
	}
	there.distro().moves = compareEvery - 2
	move() // right, and not compared
	(*opened)[0].wrong = "Apply"
	move()
	if there.parallel.home() != nil {
		t.Error("not found")
	}
	if digest(t, there) != digest(t, here) {
		t.Error("weights differ")
	}
}

// TestLostWeights checks devices that fail while they change the only copies of the newest weights. Then
// nothing may use the weights until a model is loaded.
func TestLostWeights(t *testing.T) {
	kernels, opened := withKernels(t, nil)
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(2), kernels)
	step := uint32(0)
	for range firstCompared + 1 {
		step++
		apply(t, step, results(t, step, here, there), here, there)
	}
	step++
	(*opened)[0].fail, (*opened)[1].fail = "Apply", "Apply"
	payloads := results(t, step, here)
	if err := there.Apply(t.Context(), step, payloads, nil, false); !errors.Is(err, errLost) || !errors.Is(err, errTested) {
		t.Fatalf("error = %v", err)
	}
	if _, err := there.Snapshot(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("snapshot: %v", err)
	}
	if _, _, err := there.Train(t.Context(), step+1, toyBatch(0, 4), nil); !errors.Is(err, errLost) {
		t.Errorf("train: %v", err)
	}
	if _, err := there.Evaluate(t.Context(), toyBatch(0, 2).Sequences); !errors.Is(err, errLost) {
		t.Errorf("evaluate: %v", err)
	}
	(*opened)[0].fail, (*opened)[1].fail = "", ""
	apply(t, step, payloads, here)
	model, err := here.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Load(t.Context(), model); err != nil {
		t.Fatal(err)
	}
	step++
	apply(t, step, results(t, step, here, there), here, there)
	if digest(t, there) != digest(t, here) {
		t.Error("weights differ after a load")
	}
}

// TestFailedSpeculationLosesNothing checks that a speculation that fails on a device restores the
// weights.
func TestFailedSpeculationLosesNothing(t *testing.T) {
	kernels, opened := withKernels(t, nil)
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), kernels)
	step := uint32(0)
	for range firstCompared + 1 {
		step++
		apply(t, step, results(t, step, here, there), here, there)
	}
	step++
	payloads := results(t, step, here, there)
	(*opened)[0].fail = "Apply"
	if _, err := there.Speculate(t.Context(), step, payloads, nil, true); !errors.Is(err, errTested) {
		t.Fatalf("error = %v", err)
	}
	(*opened)[0].fail = ""
	if digest(t, there) != digest(t, here) {
		t.Error("weights differ")
	}
	apply(t, step, payloads, here, there)
	if digest(t, there) != digest(t, here) {
		t.Error("weights differ after the step")
	}
}

// TestSpeculationThatLeavesTheDevice undoes a speculation after the optimizer has left the device.
func TestSpeculationThatLeavesTheDevice(t *testing.T) {
	kernels, _ := withKernels(t, func(m *tested) { m.wrong = "Apply" })
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), kernels)
	for step := uint32(1); step <= 3; step++ {
		payloads := results(t, step, here, there)
		if _, err := there.Speculate(t.Context(), step, payloads[:1], nil, true); err != nil {
			t.Fatal(err)
		}
		apply(t, step, payloads, here, there)
		if there.parallel.home() != nil || digest(t, there) != digest(t, here) {
			t.Fatalf("step %d: on the device: %v, or weights differ", step, there.parallel.home() != nil)
		}
	}
}

// TestFailedEncodeIsReported checks that a step fails if the device fails.
func TestFailedEncodeIsReported(t *testing.T) {
	kernels, opened := withKernels(t, nil)
	there := newTestTrainer(t, onDevices(1), kernels)
	(*opened)[0].fail = "Encode"
	if _, _, err := there.Train(t.Context(), 1, toyBatch(0, 4), nil); !errors.Is(err, errTested) {
		t.Errorf("error = %v", err)
	}
}

// TestWithoutKernels checks that devices train the same weights if no kernels are available.
func TestWithoutKernels(t *testing.T) {
	var log bytes.Buffer
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	opened := 0
	there := newTestTrainer(t, onDevices(2), warnings(&log), func(o *Options) {
		o.kernels = func([]distro.Layout, int) (kernels, error) {
			opened++
			_, err := cuda.OpenWith(missing, missing, 0)
			if !errors.Is(err, cuda.ErrNoCUDA) {
				t.Errorf("error = %v", err)
			}
			return nil, err
		}
	})
	here := newTestTrainer(t)
	for step := uint32(1); step <= 3; step++ {
		payloads := results(t, step, here, there)
		apply(t, step, payloads, here, there)
	}
	if digest(t, there) != digest(t, here) {
		t.Error("weights differ")
	}
	if text := log.String(); opened != 1 || strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, cuda.EnvNVRTC) {
		t.Errorf("opened %d times, log: %s", opened, text)
	}
}

// TestCopiesOnTheCPUHaveNoKernels checks that copies on the CPU have no kernels, which are for GPUs
// only.
func TestCopiesOnTheCPUHaveNoKernels(t *testing.T) {
	trainer := newTestTrainer(t, onDevices(1))
	if trainer.parallel.home() != nil {
		t.Error("kernels")
	}
}

// onEmulatedDriver gives each device of a trainer the source of the CUDA kernels.
func onEmulatedDriver(t *testing.T) func(o *Options) {
	t.Helper()
	library, opened, devices := cudatest.Library(t), 0, map[int]*cuda.Device{}
	return func(o *Options) {
		o.kernels = func(layouts []distro.Layout, topK int) (kernels, error) {
			ordinal := opened % len(o.Devices)
			opened++
			device := devices[ordinal]
			if device == nil {
				var err error
				if device, err = cuda.OpenWith(library, library, ordinal); err != nil {
					return nil, err
				}
				devices[ordinal] = device
				t.Cleanup(func() {
					if err := device.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			return device.NewModel(layouts, topK)
		}
	}
}

// TestResidentOnTheEmulatedDriver trains with the source of the CUDA kernels.
func TestResidentOnTheEmulatedDriver(t *testing.T) {
	here, there := newTestTrainer(t, auditedRun), newTestTrainer(t, auditedRun, onDevices(2), onEmulatedDriver(t))
	for step := uint32(1); step <= firstCompared+2; step++ {
		apply(t, step, results(t, step, here, there), here, there)
		if digest(t, there) != digest(t, here) {
			t.Fatalf("step %d: weights differ", step)
		}
	}
	if there.parallel.home() == nil {
		t.Error("the optimizer left the device")
	}
}

// TestMissingWaitIsFound removes the waits for kernels, which run late. The comparison with the CPU then
// finds old weights.
func TestMissingWaitIsFound(t *testing.T) {
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), onEmulatedDriver(t))
	t.Setenv(cudatest.EnvFailure, "cuCtxSynchronize 0")
	apply(t, 1, results(t, 1, here, there), here, there)
	if there.parallel.home() != nil {
		t.Error("not found")
	}
	if digest(t, there) != digest(t, here) {
		t.Error("weights differ")
	}
}
