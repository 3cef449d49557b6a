//go:build linux

package train

import (
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest/strict"
)

// onStrict makes a trainer use n strict devices, whose memory only kernels and copies can access, with
// the source of the CUDA kernels.
func onStrict(t *testing.T, n int) func(o *Options) {
	t.Helper()
	library := cudatest.Library(t)
	return func(o *Options) {
		for device := range n {
			o.Devices = append(o.Devices, torch.Device(device))
		}
		o.gpus = func(ordinal int) (*cuda.Device, error) { return cuda.OpenWith(library, library, ordinal) }
	}
}

// TestStrictDevices trains a member on the CPU and a member on two strict devices, with DisTrO and with
// local steps, with audits and without. Nothing may access the memory of a device
// outside kernels and copies, all members must have the same weights, and the members must open and
// recompute each other's results.
func TestStrictDevices(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	local := func(inner string) func(change ...func(o *Options)) *Trainer {
		return func(change ...func(o *Options)) *Trainer {
			return newLocalTrainer(t, append(change, func(o *Options) { o.Optimizer.LocalSteps.InnerOptimizer = inner })...)
		}
	}
	for _, test := range []struct {
		name   string
		create func(change ...func(o *Options)) *Trainer
		audits bool
	}{
		{"distro", func(change ...func(o *Options)) *Trainer { return newTestTrainer(t, change...) }, true},
		{"adamw", local(""), false},
		{"muon", local("muon"), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			with := []func(o *Options){func(o *Options) { o.MicroBatch = 2 }}
			if test.audits {
				with = append(with, auditedRun)
			}
			members := []*Trainer{
				test.create(with...), test.create(append(with, onStrict(t, 2))...),
			}
			for i, member := range members {
				member.key[0] = byte(i)
			}
			trainOnStrict(t, members, test.audits)
		})
	}
}

func trainOnStrict(t *testing.T, members []*Trainer, audits bool) {
	t.Helper()
	chunks := []uint32{0, 1}
	var applied []audit.Applied
	for step := uint32(1); step <= firstCompared+1; step++ {
		payloads := results(t, step, members...)
		if audits {
			for _, member := range members {
				if _, err := member.Open(step, chunks); err != nil {
					t.Fatal(err)
				}
			}
		} else if done, err := members[1].Speculate(t.Context(), step, payloads[:1], nil, true); err != nil || done != members[1].speculates {
			t.Fatalf("step %d: speculated: %v (%v)", step, done, err)
		}
		apply(t, step, payloads, members...)
		applied = append([]audit.Applied{{Step: step, Payloads: payloads}}, applied...)
		for i, member := range members[1:] {
			if member.parallel.home() == nil {
				t.Fatalf("step %d: member %d left its device", step, i+1)
			}
		}
	}
	for i, member := range members {
		if digest(t, member) != digest(t, members[0]) {
			t.Errorf("member %d has other weights", i)
		}
		if _, err := member.Evaluate(t.Context(), toyBatch(0, 2).Sequences); err != nil {
			t.Error(err)
		}
		if state, err := member.OptimizerState(t.Context()); err != nil || len(state.Tensors) == 0 {
			t.Error(err)
		}
		if !audits {
			continue
		}
		x := audit.Recomputation{
			Step: applied[1].Step, Trainer: members[0].key, Weights: applied[2].Step, Chunks: chunks,
			Precision: audit.F32, Applied: applied[:2],
		}
		start := uint64(applied[1].Step) * 9
		if _, err := member.Recompute(t.Context(), x, toyBatch(start, start+3)); err != nil {
			t.Error(err)
		}
	}
}

// TestStrictRoundStaysOnTheDevice limits the bytes that a round moves between the CPU and a device, for
// training, openings and applying. A result moves down, and up for applying. Each time it moves a number of bytes for
// each coefficient of a chunk, which are an index and a value, 3 bytes for the number of coefficients of the chunk and
// its unit, and 64 KiB. The chunks' hashes, of 32 bytes, move down.
func TestStrictRoundStaysOnTheDevice(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	for _, test := range []struct {
		name   string
		create func(change ...func(o *Options)) *Trainer
		topK   int64
		entry  int64 // bytes of a coefficient
	}{
		{"distro", func(change ...func(o *Options)) *Trainer { return newTestTrainer(t, change...) }, 8, 6},
		{"local", func(change ...func(o *Options)) *Trainer { return newLocalTrainer(t, change...) }, 16, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			shape := func(o *Options) { // a layer of a model with 162 M parameters, divided by 12
				o.Model = snapshotOf(t, strings.NewReplacer(`"num_hidden_layers":2`, `"num_hidden_layers":1`, `"hidden_size":32`, `"hidden_size":64`,
					`"intermediate_size":64`, `"intermediate_size":172`).Replace(toyConfig))
			}
			trainer := test.create(shape, auditedRun, onStrict(t, 1))
			chunks := int64(trainer.Shapes().Chunks())
			round := func(step uint32) {
				payloads := results(t, step, trainer)
				if _, err := trainer.Open(step, []uint32{0, 1, 2}); err != nil {
					t.Fatal(err)
				}
				apply(t, step, payloads, trainer)
			}
			for step := uint32(1); step <= firstCompared+1; step++ {
				round(step)
			}
			kernels := trainer.parallel.home().gpu.device
			before := kernels.Traffic()
			strict.Reset()
			round(firstCompared + 2)
			after, counts := kernels.Traffic(), strict.Read()
			bytes := after.Up - before.Up + after.Down - before.Down + counts.UpBytes + counts.DownBytes
			t.Logf("%d chunks, %d parameters: %d bytes (libtorch %d up, %d down), %d launches of our kernels, %d of libtorch's, %d waits",
				chunks, trainer.Elements(), bytes, counts.UpBytes, counts.DownBytes, after.Launches-before.Launches, counts.Launches, counts.Waits)
			if limit := 2*((test.entry*test.topK+3)*chunks+64<<10) + 32*chunks; bytes > limit {
				t.Errorf("%d bytes, want at most %d", bytes, limit)
			}
			if all := counts.UpBytes + counts.DownBytes; all > 4<<10 {
				t.Errorf("libtorch copied %d bytes, want only tokens and losses", all)
			}
		})
	}
}

// TestDeadDevice makes a kernel fail when it runs, after which a GPU refuses all work. Training and
// applying must fail with the kernel's error, and nothing may read the weights after that.
func TestDeadDevice(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	here, there := newTestTrainer(t, auditedRun), newTestTrainer(t, auditedRun, onStrict(t, 1))
	step := uint32(0)
	for range firstCompared + 1 {
		step++
		apply(t, step, results(t, step, here, there), here, there)
	}
	step++
	dead := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("%s: error = %v, want the kernel's", what, err)
		}
	}
	t.Setenv(cudatest.EnvFailure, "kernel 700")
	_, _, err := there.Train(t.Context(), step, toyBatch(0, 4), nil)
	dead("train", err)
	t.Setenv(cudatest.EnvFailure, "")
	payloads := results(t, step, here)
	_, _, err = there.Train(t.Context(), step, toyBatch(0, 4), nil)
	dead("train again", err)
	dead("apply", there.Apply(t.Context(), step, payloads, nil, false))
	if _, err := there.Snapshot(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("snapshot: error = %v, want errLost", err)
	}
}

// hooked are kernels that call a function before AdamW.
type hooked struct {
	kernels
	before func()
}

func (h hooked) AdamW(weights, grad, means, squares []cuda.Tensor, p cuda.AdamWParams) error {
	h.before()
	return h.kernels.AdamW(weights, grad, means, squares, p)
}

// TestFullDeviceCostsABatch takes a strict device's free memory at the beginning of a round, and in the middle of a
// step. The step fails for lack of memory. With memory, the next step runs on the device, with the result of a member
// that missed the failed step.
func TestFullDeviceCostsABatch(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	for _, middle := range []bool{false, true} {
		create := func() *Trainer {
			return newLocalTrainer(t, auditedRun, onStrict(t, 1), func(o *Options) {
				o.Optimizer.LocalSteps.InnerOptimizer, o.Optimizer.LocalSteps.InnerSteps = "muon", 2
			})
		}
		there, twin := create(), create()
		both := func(step uint32) {
			t.Helper()
			var payloads [][]byte
			for _, member := range []*Trainer{there, twin} {
				payload, _, err := member.Train(t.Context(), step, toyBatch(uint64(step)*9, uint64(step)*9+4), nil)
				if err != nil {
					t.Fatal(err)
				}
				payloads = append(payloads, payload)
			}
			if string(payloads[0]) != string(payloads[1]) {
				t.Errorf("middle of a step: %v, step %d: another result", middle, step)
			}
			apply(t, step, payloads[:1], there, twin)
		}
		both(1)
		full := func() { strict.Limit(0, strict.Read().Used[0]) }
		home := there.parallel.home()
		own := home.share
		if middle {
			steps := 0
			home.share = hooked{own, func() {
				if steps++; steps == 2 {
					full()
				}
			}}
		} else {
			full()
		}
		_, _, err := there.Train(t.Context(), 2, toyBatch(0, 4), nil)
		strict.Limit(0, 0)
		if home.share = own; !LacksMemory(err) {
			t.Fatalf("middle of a step: %v: error = %v, want a lack of memory", middle, err)
		}
		both(3)
		both(4)
		if there.parallel.home() != home || digest(t, there) != digest(t, twin) {
			t.Errorf("middle of a step: %v: the optimizer left the device, or weights differ", middle)
		}
	}
}
