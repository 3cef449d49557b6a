//go:build linux

package train

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// emulatedApplier is a cuda.Device on the CPU, for copies of the CPU's engines.
type emulatedApplier struct {
	applier
	calls  int  // calls of DecodeApply, including failed ones
	fail   int  // number of the call in which the driver fails; 0: none
	wrong  bool // whether it moves the weights too far
	closed bool
}

func (m *emulatedApplier) DecodeApply(l distro.Layout, results []codec.TensorResult, weights cuda.Tensor, p distro.ApplyParams) error {
	if m.wrong {
		p.LR *= 2
	}
	if m.calls++; m.calls != m.fail {
		return m.applier.DecodeApply(l, results, weights, p)
	}
	return errors.Join(os.Setenv(cudatest.EnvFailure, "cuCtxSynchronize 700"),
		m.applier.DecodeApply(l, results, weights, p), os.Unsetenv(cudatest.EnvFailure))
}

func (m *emulatedApplier) Close() error {
	m.closed = true
	return m.applier.Close()
}

// emulatedAppliers gives each device of a trainer a separate driver. The returned list contains the
// appliers in the order in which they are opened.
func emulatedAppliers(t *testing.T, change func(m *emulatedApplier)) (func(o *Options), *[]*emulatedApplier) {
	t.Helper()
	library := cudatest.Library(t)
	text, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	var appliers []*emulatedApplier
	return func(o *Options) {
		o.applier = func(torch.Device) (applier, error) {
			copied := filepath.Join(filepath.Dir(library), fmt.Sprintf("libemulated%d.so", len(appliers)))
			if err := os.WriteFile(copied, text, 0o600); err != nil {
				return nil, err
			}
			device, err := cuda.OpenWith(copied, copied, 0)
			if err != nil {
				return nil, err
			}
			m := &emulatedApplier{applier: device}
			if change != nil {
				change(m)
			}
			appliers = append(appliers, m)
			return m, nil
		}
	}, &appliers
}

// onTheDevice reports for each copy whether its memory equals the weights, without a refresh.
func onTheDevice(trainer *Trainer) (equal []bool) {
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
		if err := member.Apply(t.Context(), step, payloads, len(payloads) > 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMoversMoveCopies trains with two clients on the CPU and one client on two devices. It checks
// that after each Apply the devices' memory has the bits of the weights, although nothing was
// copied to the devices, and that the weights equal the weights of the clients on the CPU.
func TestMoversMoveCopies(t *testing.T) {
	for name, text := range map[string]string{"llama": toyConfig, "qwen2": toyQwen2, "v3": toyV3, "qwen3_moe": toyQwen3MoE, "gemma3": toyGemma3, "gpt_oss": toyGPTOSS, "llama4": toyLlama4, "glm4_moe": toyGLM4MoE} {
		t.Run(name, func(t *testing.T) {
			moved, appliers := emulatedAppliers(t, nil)
			fit := func(o *Options) {
				distro := *o.Optimizer.Distro
				distro.Quantize1Bit = name == "llama"
				o.Model, o.MicroBatch, o.Optimizer = snapshotOf(t, text), 1, config.Optimizer{Distro: &distro}
			}
			here, other, there := newTestTrainer(t, fit), newTestTrainer(t, fit), newTestTrainer(t, fit, onDevices(2), moved)
			members := []*Trainer{here, other, there}
			for _, member := range members { // a cold start: the first steps' rates differ
				if err := member.SetColdStart(t.Context(), 1, 3); err != nil {
					t.Fatal(err)
				}
			}
			for step := uint32(1); step <= 5; step++ {
				payloads := results(t, step, members...)
				if step == 4 {
					payloads = nil // weight decay alone
				}
				before := slices.Concat(there.weights()...)
				apply(t, step, payloads, members...)
				if slices.Equal(before, slices.Concat(there.weights()...)) != (step == 1) { // the learning rate of step 1 is 0
					t.Errorf("step %d: whether the weights moved is not as expected", step)
				}
				if equal := onTheDevice(there); !slices.Equal(equal, []bool{true, true}) {
					t.Fatalf("step %d: copies equal: %v", step, equal)
				}
				for i, a := range there.parallel.apart() {
					if a.seen != there.changes {
						t.Errorf("step %d: device %d will be refreshed", step, i)
					}
				}
				if digest(t, there) != digest(t, here) {
					t.Fatalf("step %d: weights differ", step)
				}
			}
			if len(*appliers) != 2 || (*appliers)[0].calls != 5*len(there.parameters) {
				t.Errorf("%d appliers, want 2 with a call for each tensor and step", len(*appliers))
			}
		})
	}
}

// TestCopiesThatDifferAreNotMoved changes weights without the devices' knowledge. It checks that
// their copies are not moved, but wait for the refresh.
func TestCopiesThatDifferAreNotMoved(t *testing.T) {
	moved, appliers := emulatedAppliers(t, nil)
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), moved)
	calls := func() int { return (*appliers)[0].calls }
	step := uint32(0)
	change := func(when string, moves bool) {
		t.Helper()
		step++
		payload := results(t, step, here)
		before := calls()
		apply(t, step, payload, here, there)
		if got := calls() > before; got != moves {
			t.Errorf("%s: moved there: %t, want %t", when, got, moves)
		}
		if equal := onTheDevice(there)[0]; equal != moves {
			t.Errorf("%s: the copy equals the weights: %t, want %t", when, equal, moves)
		}
		want, err := here.Evaluate(t.Context(), toyBatch(0, 2).Sequences)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := there.Evaluate(t.Context(), toyBatch(0, 2).Sequences); err != nil || got != want {
			t.Errorf("%s: evaluates to %v (%v), want %v", when, got, err, want)
		}
		if !onTheDevice(there)[0] || digest(t, there) != digest(t, here) {
			t.Errorf("%s: weights differ after a refresh", when)
		}
	}
	change("at first", true)
	for _, member := range []*Trainer{here, there} {
		if err := member.Load(t.Context(), toyModel(t, 7)); err != nil {
			t.Fatal(err)
		}
	}
	step = 0
	change("after a load", false)
	change("after its refresh", true)
	back := there.distro().lookAhead(1e-3)
	if _, err := there.Evaluate(t.Context(), toyBatch(0, 2).Sequences); err != nil { // copies the look-ahead
		t.Fatal(err)
	}
	back()
	change("after a look-ahead", false)
	change("after that", true)
}

func TestLookaheadOpensNoMover(t *testing.T) {
	trainer := newTestTrainer(t, lookingAhead, onDevices(1), func(o *Options) {
		o.applier = func(torch.Device) (applier, error) {
			t.Error("opened")
			return nil, nil
		}
	})
	plain := newTestTrainer(t, lookingAhead)
	for step := uint32(1); step <= 3; step++ {
		payloads := results(t, step, plain, trainer)
		apply(t, step, payloads, plain, trainer)
	}
	if digest(t, trainer) != digest(t, plain) {
		t.Error("weights differ")
	}
}

func warnings(into *bytes.Buffer) func(o *Options) {
	return func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(into, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
}

// TestMoversThatFail checks a driver that fails in the middle of a model, and a device that
// computes different bits. In both cases the whole copy must be refreshed and never moved again.
func TestMoversThatFail(t *testing.T) {
	for name, test := range map[string]struct {
		fault func(m *emulatedApplier)
		cause string // code of the driver or name of the weight in the warning
	}{
		"failed call": {func(m *emulatedApplier) { m.fail = 5 }, "CUDA_ERROR_ILLEGAL_ADDRESS"},
		"other bits":  {func(m *emulatedApplier) { m.wrong = true }, "model.embed_tokens.weight"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			moved, appliers := emulatedAppliers(t, test.fault)
			here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), moved, warnings(&log))
			for step := uint32(1); step <= 3; step++ {
				payloads := results(t, step, here, there)
				apply(t, step, payloads, here, there)
				if onTheDevice(there)[0] {
					t.Errorf("step %d: the copy equals the weights before its refresh", step)
				}
				if digest(t, there) != digest(t, here) {
					t.Fatalf("step %d: weights differ", step)
				}
				if _, err := there.Evaluate(t.Context(), toyBatch(0, 2).Sequences); err != nil || !onTheDevice(there)[0] {
					t.Fatalf("step %d: the copy differs from the weights after its refresh (%v)", step, err)
				}
			}
			m := (*appliers)[0]
			if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, test.cause) {
				t.Errorf("log: %s", text)
			}
			if limit := len(there.parameters); m.calls == 0 || m.calls > limit || !m.closed {
				t.Errorf("%d calls, want one for each of %d tensors at most; closed: %t", m.calls, limit, m.closed)
			}
		})
	}
}

// TestWrongMoverIsFoundBehindAColdStart checks that a device that computes different bits from the
// start is found. The first step, with learning rate 0, and a step without results cannot reveal
// it.
func TestWrongMoverIsFoundBehindAColdStart(t *testing.T) {
	moved, appliers := emulatedAppliers(t, func(m *emulatedApplier) { m.wrong = true })
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), moved)
	for _, member := range []*Trainer{here, there} {
		if err := member.SetColdStart(t.Context(), 1, 3); err != nil {
			t.Fatal(err)
		}
	}
	copied := there.parallel.apart()[0]
	for step := uint32(1); step <= 3; step++ {
		payloads := results(t, step, here, there)
		apply(t, step, payloads, here, there)
		if wrong := step > 1; (copied.applier == nil) != wrong || (copied.seen != there.changes) != wrong {
			t.Errorf("step %d: the applier was given up: %t, want %t", step, copied.applier == nil, wrong)
		}
		if _, err := there.Evaluate(t.Context(), toyBatch(0, 2).Sequences); err != nil || !onTheDevice(there)[0] {
			t.Fatalf("step %d: the copy differs from the weights when it is used (%v)", step, err)
		}
	}
	if !(*appliers)[0].closed {
		t.Error("the applier is open")
	}
}

// TestLaterErrorOfADeviceIsFound checks that a device is found if it computes different bits only
// after the first comparison. The copy is compared again after 256 moves.
func TestLaterErrorOfADeviceIsFound(t *testing.T) {
	moved, appliers := emulatedAppliers(t, nil)
	here, there := newTestTrainer(t), newTestTrainer(t, onDevices(1), moved)
	copied, step := there.parallel.apart()[0], uint32(0)
	move := func() {
		t.Helper()
		step++
		apply(t, step, results(t, step, here), here, there)
	}
	for range 3 {
		move()
	}
	if copied.moves != 3 || copied.applier == nil {
		t.Fatalf("%d moves, applier %v", copied.moves, copied.applier)
	}
	copied.moves = 253
	(*appliers)[0].wrong = true
	for range 2 {
		move()
	}
	if copied.applier == nil {
		t.Error("compared before its turn")
	}
	step++ // a step without results does not count as a move
	apply(t, step, nil, here, there)
	if copied.applier == nil || copied.moves != 255 {
		t.Errorf("after a step without results: %d moves, applier %v", copied.moves, copied.applier)
	}
	move()
	if copied.applier != nil {
		t.Error("not found")
	}
	if _, err := there.Evaluate(t.Context(), toyBatch(0, 2).Sequences); err != nil || !onTheDevice(there)[0] {
		t.Errorf("the copy differs from the weights when it is used (%v)", err)
	}
}

// TestWithoutAppliers checks that devices train the same weights if no kernels are available.
func TestWithoutAppliers(t *testing.T) {
	var log bytes.Buffer
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	opened := 0
	there := newTestTrainer(t, onDevices(2), warnings(&log), func(o *Options) {
		o.applier = func(torch.Device) (applier, error) {
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

// TestCopiesOnTheCPUHaveNoAppliers checks that copies on the CPU have no appliers, which are for
// GPUs only.
func TestCopiesOnTheCPUHaveNoAppliers(t *testing.T) {
	trainer := newTestTrainer(t, onDevices(1))
	if m := trainer.parallel.apart()[0].applier; m != nil {
		t.Errorf("applier %v", m)
	}
}
