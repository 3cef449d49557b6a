package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

// methods lists the kernels' methods of a member that may fail in a step.
var methods = map[string][]string{
	"distro":         {"Squares", "Encode", "AddBack"},
	"distro audited": {"Squares", "Encode", "Leaves"},
	"local":          {"Squares", "EncodeLevels", "AdamW", "Far"},
	"local audited":  {"Squares", "EncodeLevels", "AdamW", "Far", "Leaves"},
}

func newMember(t *testing.T, kind string, change ...func(o *Options)) *Trainer {
	t.Helper()
	switch kind {
	case "distro":
		return newTestTrainer(t, change...)
	case "distro audited":
		return newTestTrainer(t, append(change, auditedRun)...)
	case "local":
		return newLocalTrainer(t, change...)
	default:
		return newLocalTrainer(t, append(change, auditedRun)...)
	}
}

// TestFailingKernelsCostTheBatch makes each method of the kernels fail, panic or lack memory in a step. The step of
// the member may fail, and all members must have the same weights afterwards. The member continues on the device. With
// audits, or after a lack of memory, its next results must equal the results of a twin on the CPU, which misses the step
// too. The second of two devices, which shares the optimizer, fails in the same ways.
func TestFailingKernelsCostTheBatch(t *testing.T) {
	for kind, of := range methods {
		for _, method := range of {
			for _, how := range []string{"fails", "panics", "lacks memory"} {
				switch {
				case how == "panics" && (method == "AddBack" || method == "Leaves"):
					continue // nothing of libtorch runs then
				case how == "lacks memory" && method == "AddBack":
					continue // has its memory since the encoding
				}
				for devices := 1; devices <= 2; devices++ {
					t.Run(fmt.Sprintf("%s %s %s %d", kind, method, how, devices), func(t *testing.T) { failIn(t, kind, method, how, devices) })
				}
			}
		}
	}
}

func failIn(t *testing.T, kind, method, how string, devices int) {
	t.Helper()
	set, opened := withKernels(t, nil)
	other, twin, there := newMember(t, kind), newMember(t, kind, onDevices(devices)), newMember(t, kind, onDevices(devices), set)
	all, step := []*Trainer{other, twin, there}, uint32(0)
	for range firstCompared + 1 {
		step++
		payloads := results(t, step, all[:2]...)
		if same, _, err := there.Train(t.Context(), step, toyBatch(uint64(step)*9+3, uint64(step)*9+6), nil); err != nil || string(same) != string(payloads[1]) {
			t.Fatalf("step %d: another result than the CPU's, or %v", step, err)
		}
		apply(t, step, payloads, all...)
	}
	step++
	m := (*opened)[len(*opened)-1]
	*map[string]*string{"fails": &m.fail, "panics": &m.panics, "lacks memory": &m.lacks}[how] = method
	_, _, err := there.Train(t.Context(), step, toyBatch(0, 3), nil)
	if libtorch := (*torch.Error)(nil); err != nil && !errors.Is(err, errTested) && !errors.As(err, &libtorch) && !LacksMemory(err) {
		t.Fatalf("error = %v", err)
	}
	payloads := results(t, step, other)
	for i, member := range all {
		if err := member.Apply(t.Context(), step, payloads, nil, i == 0); err != nil {
			t.Fatal(err)
		}
	}
	if (there.history != nil || how == "lacks memory") && err == nil {
		t.Error("the step did not fail")
	}
	means := kind == "local" && (method == "EncodeLevels" || method == "Far")       // have the gradients of the failed step
	same := there.history != nil || how == "lacks memory" && !means && devices == 1 // else the other device has done its part
	m.panics, m.fail, m.lacks = "", "", ""
	for range 2 {
		step++
		payloads := results(t, step, all[:2]...)
		own, loss, err := there.Train(t.Context(), step, toyBatch(uint64(step)*9+3, uint64(step)*9+6), nil)
		if err != nil || math.IsNaN(loss) {
			t.Fatalf("step %d: loss %v, error %v", step, loss, err)
		}
		if same && string(own) != string(payloads[1]) {
			t.Fatalf("step %d: another result than that of a member on the CPU that missed the step too", step)
		}
		apply(t, step, [][]byte{payloads[0], own}, all...)
		for i, member := range all[1:] {
			if digest(t, member) != digest(t, other) {
				t.Fatalf("step %d: member %d has other weights", step, i+1)
			}
		}
	}
	if there.parallel.home() == nil {
		t.Error("the optimizer left the device")
	}
}

// TestDeviceThatFailsOftenIsLeft makes a method fail in several steps. After maxStrikes failures in a row, the optimizer
// continues on the CPU. A step without a failure begins the count again.
func TestDeviceThatFailsOftenIsLeft(t *testing.T) {
	for kind, method := range map[string]string{"distro": "Encode", "distro audited": "Encode", "local": "AdamW", "local audited": "EncodeLevels"} {
		for _, lacks := range []bool{false, true} {
			set, opened := withKernels(t, nil)
			here, there := newMember(t, kind), newMember(t, kind, onDevices(1), set)
			m, step := (*opened)[0], uint32(0)
			for _, fails := range []bool{false, true, true, false, false, true, true, true} {
				step++
				if m.fail, m.lacks = "", ""; fails && lacks {
					m.lacks = method
				} else if fails {
					m.fail = method
				}
				_, _, err := there.Train(t.Context(), step, toyBatch(uint64(step)*9, uint64(step)*9+3), nil)
				if (err != nil) != fails || there.parallel.home() == nil && step < 8 {
					t.Fatalf("%s, step %d: error %v, or left the device", kind, step, err)
				}
				payloads := results(t, step, here)
				apply(t, step, payloads, here)
				if err := there.Apply(t.Context(), step, payloads, nil, false); err != nil {
					t.Fatal(err)
				}
			}
			if there.parallel.home() != nil || digest(t, there) != digest(t, here) {
				t.Errorf("%s: still on the device, or weights differ", kind)
			}
			step++
			apply(t, step, results(t, step, here, there), here, there)
			if digest(t, there) != digest(t, here) {
				t.Errorf("%s: weights differ after a step on the CPU", kind)
			}
		}
	}
}

// TestResultsThatDoNotFitOnADevice applies results for which one device or all devices lack memory. The CPU then
// moves the weights, and the optimizer stays on its device.
func TestResultsThatDoNotFitOnADevice(t *testing.T) {
	for _, kind := range []string{"distro", "local"} {
		for _, lacking := range [][]int{{0}, {1}, {0, 1}} {
			for _, torn := range []bool{false, true} { // whether the last of these devices fails in the middle
				if torn && len(lacking) == 1 {
					continue
				}
				set, opened := withKernels(t, nil)
				here, there := newMember(t, kind), newMember(t, kind, onDevices(2), set)
				method := map[string]string{"distro": "Apply", "local": "ApplyLevels"}[kind]
				for step := uint32(1); step <= firstCompared+3; step++ {
					payloads := results(t, step, here, there)
					for _, device := range lacking {
						if m := (*opened)[device]; step == firstCompared+2 {
							m.lacks = method
						} else {
							m.lacks, m.fail = "", ""
						}
					}
					if last := (*opened)[1]; torn && step == firstCompared+2 {
						last.lacks, last.fail = "", method
					}
					apply(t, step, payloads, here, there)
					if digest(t, there) != digest(t, here) || there.parallel.home() == nil {
						t.Errorf("%s, devices %v, step %d: weights differ, or the optimizer left: %v", kind, lacking, step, there.parallel.home() == nil)
					}
				}
			}
		}
	}
}

// unreadable are kernels that make the weights on the device unreadable when a step is encoded.
type unreadable struct {
	kernels
	device *apart
}

func (u unreadable) Encode(delta, left, grad []cuda.Tensor, p distro.EncodeParams, least float32) ([]codec.TensorResult, error) {
	u.device.seen--
	return u.kernels.Encode(delta, left, grad, p, least)
}

// TestUnreadableWeightsUndoTheStep checks a device that computes other bits while the CPU cannot get its
// weights. The step must count as not trained.
func TestUnreadableWeightsUndoTheStep(t *testing.T) {
	for _, kind := range []string{"distro", "distro audited"} {
		t.Run(kind, func(t *testing.T) {
			set, opened := withKernels(t, nil)
			twin, there := newMember(t, kind), newMember(t, kind, onDevices(1), set)
			there.distro().moves = firstCompared // so only the device has the weights
			apply(t, 1, results(t, 1, twin), twin, there)
			device := there.parallel.home()
			device.share = unreadable{device.share, device}
			(*opened)[0].wrong = "Leaves"
			for range 2 { // the second call fails before it trains
				if _, _, err := there.Train(t.Context(), 2, toyBatch(0, 4), nil); !errors.Is(err, errLost) || !errors.Is(err, errBits) {
					t.Fatalf("error = %v, want errLost and errBits", err)
				}
			}
			device.seen = there.changes
			got, _, err := there.Train(t.Context(), 2, toyBatch(0, 4), nil)
			if err != nil {
				t.Fatal(err)
			}
			apply(t, 2, append([][]byte{got}, results(t, 2, twin)...), twin, there)
			if digest(t, twin) != digest(t, there) || there.parallel.home() != nil {
				t.Errorf("weights differ, or the optimizer is on the device: %v", there.parallel.home() != nil)
			}
		})
	}
}

// TestOneOfTwoDevicesFails checks that the weights of a device that did not fail are used.
func TestOneOfTwoDevicesFails(t *testing.T) {
	for failing := range 2 {
		set, opened := withKernels(t, nil)
		here, there := newTestTrainer(t), newTestTrainer(t, onDevices(2), set)
		for step := uint32(1); step <= firstCompared+3; step++ {
			payloads := results(t, step, here, there)
			if step == firstCompared+2 {
				(*opened)[failing].fail = "Apply"
			}
			apply(t, step, payloads, here, there)
		}
		if digest(t, there) != digest(t, here) || there.parallel.home() == nil {
			t.Errorf("device %d fails: weights differ, or the optimizer left the device: %v", failing, there.parallel.home() == nil)
		}
	}
}

// TestTornAdamWIsLost checks a device that fails in the middle of a step of AdamW without a copy of the
// weights. They must not be used until a model is loaded.
func TestTornAdamWIsLost(t *testing.T) {
	o := toyOptions(t)
	o.Optimizer.Distro = nil
	onDevices(1)(&o)
	trainer, err := NewAdamW(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	})
	last := &trainer.updater.moments[1].tensors[len(trainer.parameters)-1]
	freed := *last
	*last = nil // libtorch fails after most tensors have moved
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 2)); err == nil {
		t.Fatal("no failure")
	}
	*last = freed
	for range 2 {
		if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 2)); !errors.Is(err, errLost) {
			t.Errorf("error = %v, want errLost", err)
		}
	}
	if _, err := trainer.Snapshot(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("snapshot: error = %v, want errLost", err)
	}
	means, err := trainer.updater.all()
	if err != nil || slices.ContainsFunc(means, func(mean []float32) bool { return norm([][]float32{mean}) != 0 }) {
		t.Errorf("the running means are not zeros (%v)", err)
	}
}
