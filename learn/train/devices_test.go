package train

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// onDevices makes a trainer use n devices. In these tests the CPU stands for the other devices:
// copies to and from a device keep their values, and the arithmetic is the same, so the bits are
// the same.
func onDevices(n int) func(o *Options) {
	return func(o *Options) { o.Devices = slices.Repeat([]torch.Device{torch.CPU}, n) }
}

// TestDevicesTrainTheSame checks that training on a copy of the CPU's weights has the same results,
// momentum, losses and weights, bit for bit. Two devices add gradients in a different order, so it
// checks only that the same results lead to the same weights there.
func TestDevicesTrainTheSame(t *testing.T) {
	for name, text := range map[string]string{"llama": toyConfig, "v3": toyV3} {
		for _, change := range []func(o *Options){func(*Options) {}, lookingAhead} {
			fit := func(o *Options) { o.Model, o.MicroBatch = snapshotOf(t, text), 1; change(o) }
			here, there := newTestTrainer(t, fit), newTestTrainer(t, fit, onDevices(1))
			two := newTestTrainer(t, fit, onDevices(2))
			for step := uint32(1); step <= 4; step++ {
				batch := toyBatch(uint64(step)*3, uint64(step)*3+3)
				want, wantLoss, err := here.Train(t.Context(), step, batch, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, loss, err := there.Train(t.Context(), step, batch, nil)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != string(want) || loss != wantLoss {
					t.Fatalf("%s, step %d: another result or loss (%v, want %v)", name, step, loss, wantLoss)
				}
				if _, loss, err = two.Train(t.Context(), step, batch, nil); err != nil || abs(loss-wantLoss) > 1e-5 {
					t.Fatalf("%s, step %d: loss on two devices is %v (%v), want %v", name, step, loss, err, wantLoss)
				}
				for _, member := range []*Trainer{here, there, two} {
					if err := member.Apply(t.Context(), step, [][]byte{want}, nil, step != 2); err != nil {
						t.Fatal(err)
					}
					if digest(t, member) != digest(t, here) {
						t.Fatalf("%s, step %d: weights differ", name, step)
					}
				}
				wantLoss, _ = here.Evaluate(t.Context(), batch.Sequences)
				for _, member := range []*Trainer{there, two} {
					if loss, err := member.Evaluate(t.Context(), batch.Sequences); err != nil || loss != wantLoss {
						t.Fatalf("%s, step %d: evaluates to %v (%v), want %v", name, step, loss, err, wantLoss)
					}
				}
			}
			if !sameBits(momentumOf(here.distro().optimizer), momentumOf(there.distro().optimizer)) {
				t.Errorf("%s: momentum differs", name)
			}
		}
	}
}

func TestDevicesTrainTheSameWithAdamW(t *testing.T) {
	var losses [2]float64
	var digests [2][32]byte
	for i, n := range []int{0, 1} {
		o := toyOptions(t)
		onDevices(n)(&o)
		trainer, err := NewAdamW(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for step := uint32(1); step <= 5; step++ {
			if losses[i], err = trainer.Step(t.Context(), step, toyBatch(0, 4)); err != nil {
				t.Fatal(err)
			}
		}
		digests[i] = digest(t, trainer)
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	}
	if losses[0] != losses[1] || digests[0] != digests[1] {
		t.Errorf("losses %v, digests %x", losses, digests)
	}
}

// TestDevicesFollow checks that a device's copy follows every kind of change of the weights, both
// parameters and buffers.
func TestDevicesFollow(t *testing.T) {
	trainer := newTestTrainer(t, lookingAhead, onDevices(1), func(o *Options) { o.Model = snapshotOf(t, toyV3) })
	device := trainer.parallel.workers[0].(*apart)
	follows := func(when string) {
		t.Helper()
		if err := trainer.parallel.refresh(t.Context(), device); err != nil {
			t.Fatal(err)
		}
		want, err := model.Export(t.Context(), trainer.model)
		if err != nil {
			t.Fatal(err)
		}
		got, err := model.Export(t.Context(), device.twin)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i].Name != want[i].Name || string(got[i].Data) != string(want[i].Data) {
				t.Errorf("%s: tensor %s differs", when, want[i].Name)
			}
		}
	}
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 4)); err != nil {
		t.Fatal(err)
	}
	follows("after a step")
	back, err := trainer.distro().lookAhead(t.Context(), 1e-3)
	if err != nil {
		t.Fatal(err)
	}
	follows("looking ahead")
	if err := back(); err != nil {
		t.Fatal(err)
	}
	follows("looking back")

	other := checkpoint.Snapshot{Files: trainer.files}
	if other.Tensors, err = model.Init([]byte(toyV3), 7); err != nil {
		t.Fatal(err)
	}
	for _, tensor := range other.Tensors {
		if strings.HasSuffix(tensor.Name, "e_score_correction_bias") {
			binary.LittleEndian.PutUint32(tensor.Data, math.Float32bits(0.25))
		}
	}
	if err := trainer.Load(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	follows("after a load")

	seen := device.seen
	if _, err := trainer.Evaluate(t.Context(), toyBatch(0, 2).Sequences); err != nil || device.seen != seen {
		t.Errorf("weights that did not change were copied again (%v)", err)
	}
}

func TestDevicesCancelledTrainChangesNothing(t *testing.T) {
	trainer, untouched := newTestTrainer(t, onDevices(2)), newTestTrainer(t, onDevices(2))
	for left := range 5 {
		ctx := &cancelled{Context: t.Context(), left: left}
		if _, _, err := trainer.Train(ctx, 1, toyBatch(0, 8), nil); err == nil {
			t.Fatalf("cancelled at check %d: no error", left)
		}
	}
	_, got := gradientOf(t, trainer)
	if _, want := gradientOf(t, untouched); !sameBits(got, want) {
		t.Error("cancelled batches show in the next gradient")
	}
}

func TestDevicesAreRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(o *Options)
		is     error
	}{
		{"tensor parallelism", func(o *Options) { o.Parallel.Tensor = 2 }, errUnsupported},
		{"data parallelism", func(o *Options) { o.Parallel.Data = 3 }, errUnsupported},
		{"f16", func(o *Options) { o.Compute.Compute = torch.F16 }, errUnsupported},
		{"missing device", func(o *Options) { o.Devices = []torch.Device{200} }, torch.ErrNoDevice},
	} {
		o := toyOptions(t)
		onDevices(2)(&o)
		test.change(&o)
		_, err := New(t.Context(), o)
		if !errors.Is(err, test.is) {
			t.Errorf("%s: error = %v, want %v", test.name, err, test.is)
		}
		if errors.Is(test.is, errUnsupported) { // the message of ErrNoDevice depends on the machine
			golden.Message(t, test.name, err)
		}
	}
}

// TestGradientsElsewhere compares our loops with the libtorch operations that other devices use. A
// second process runs these operations on the CPU.
func TestGradientsElsewhere(t *testing.T) {
	const variable = "PSYCHE_TEST_GRADIENTS"
	requireTorch(t)
	gradients := func() (out []float32) {
		for _, text := range []string{toyConfig, splitConfig, toyV2, toyV3, toyQwen3MoE, toyGemma3, toyGPTOSS, toyLlama4, toyQwen2MoE, toyGLM4MoE} {
			trainer := newTestTrainer(t, func(o *Options) { o.Model = snapshotOf(t, text) }, onDevices(1))
			loss, values := gradientOf(t, trainer)
			out = append(append(out, float32(loss)), slices.Concat(values...)...)
		}
		return out
	}
	if path := os.Getenv(variable); path != "" { // in the second process
		if info, err := torch.Loaded(); err != nil || !info.Generic {
			t.Fatalf("the shim does not know PSYCHE_TORCH_GENERIC (%v); build it again: make shim", err)
		}
		data, err := binary.Append(nil, binary.LittleEndian, gradients())
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "gradients")
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGradientsElsewhere$")
	command.Env = append(os.Environ(), "PSYCHE_TORCH_GENERIC=1", variable+"="+path)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := gradients()
	got := make([]float32, len(want))
	if _, err := binary.Decode(data, binary.LittleEndian, got); err != nil || len(data) != 4*len(want) {
		t.Fatalf("%d bytes, want %d (%v)", len(data), 4*len(want), err)
	}
	if sameBits([][]float32{got}, [][]float32{want}) {
		t.Error("same bits: was it the same code?")
	}
	if far := farthest([][]float32{got}, [][]float32{want}); !(far < 1e-5) {
		t.Errorf("losses or gradients differ by %v", far)
	}
}
