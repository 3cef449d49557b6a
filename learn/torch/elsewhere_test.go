package torch_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestElsewhere runs the other tests of this package in a process where the CPU computes like other
// devices: with libtorch's operations, without our own loops.
func TestElsewhere(t *testing.T) {
	torchtest.Load(t)
	const variable = "PSYCHE_TORCH_GENERIC"
	if os.Getenv(variable) != "" {
		if info, err := torch.Loaded(); err != nil || !info.Generic {
			t.Fatalf("the shim does not know %s (%v); build it again: make shim", variable, err)
		}
		return
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.short",
		"-test.run=^Test(Elsewhere|CausalAttention|RMSNormAndSwiGLU|RoPE|LinearCrossEntropy.*|AdamW|Blocks.*|Read.*|Copy.*)$")
	command.Env = append(os.Environ(), variable+"=1")
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestCopyBetweenEngines moves values to another engine and back.
func TestCopyBetweenEngines(t *testing.T) {
	here, there := torchtest.Engine(t), torchtest.Engine(t)
	var weights, moved *torch.Tensor
	torchtest.Do(t, here, false, func(s *torch.Scope) error {
		weights = s.Keep(s.FromFloat32s([]float32{1, 2, 3, 4, 5, 6}, 2, 3).SetRequiresGrad(true))
		return nil
	})
	torchtest.Do(t, there, false, func(s *torch.Scope) error {
		moved = s.Keep(s.Copy(weights))
		return nil
	})
	weights.Float32s()[0] = 7
	back := make([]float32, 6)
	torchtest.Do(t, there, false, func(s *torch.Scope) error {
		if first := moved.Narrow(1, 0, 1).CopyFloat32s(); first[0] != 1 || first[1] != 4 {
			t.Errorf("the copy's first column is %v, want 1 and 4", first)
		}
		moved.CopyFrom(weights)
		moved.Transpose(0, 1).ReadFloat32s(back)
		return nil
	})
	if back[0] != 7 || back[1] != 4 || back[5] != 6 {
		t.Errorf("got back %v", back)
	}
	err := there.Do(t.Context(), false, func(*torch.Scope) error {
		moved.ReadFloat32s(make([]float32, 5))
		return nil
	})
	if err == nil {
		t.Error("read 6 elements into 5")
	}
}

// TestAddress checks that on the CPU the address is the address of the elements in the process's
// memory.
func TestAddress(t *testing.T) {
	engine := torchtest.Engine(t)
	torchtest.Do(t, engine, false, func(s *torch.Scope) error {
		x := s.FromFloat32s([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
		if got, want := x.Address(), uintptr(unsafe.Pointer(&x.Float32s()[0])); got != want {
			t.Errorf("address %#x, want %#x", got, want)
		}
		if got, want := x.Narrow(0, 1, 1).Address(), x.Address()+12; got != want {
			t.Errorf("address of the second row %#x, want %#x", got, want)
		}
		return nil
	})
	for name, of := range map[string]func(x *torch.Tensor) *torch.Tensor{
		"not contiguous": func(x *torch.Tensor) *torch.Tensor { return x.Transpose(0, 1) },
		"bf16":           func(x *torch.Tensor) *torch.Tensor { return x.To(torch.BF16) },
	} {
		err := engine.Do(t.Context(), false, func(s *torch.Scope) error {
			of(s.Zeros(torch.F32, 2, 3)).Address()
			return nil
		})
		golden.Message(t, name, err)
	}
}

func TestDeviceChoice(t *testing.T) {
	torchtest.Load(t)
	for _, name := range []torch.Choice{"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1000", "cuda:1,", "cuda:1,1", "cuda:0-1", "mps", "CPU"} {
		if err := name.Validate(); err == nil {
			t.Errorf("device %q is taken", name)
		}
	}
	if devices, err := torch.Choice("cpu").Find(8); !slices.Equal(devices, []torch.Device{torch.CPU}) || err != nil {
		t.Errorf("cpu is %v, %v", devices, err)
	}
	if err := torch.Choice("cuda:3,0,1").Validate(); err != nil {
		t.Error(err)
	}
	_, err := torch.Choice("cuda:3,0").Find(3)
	golden.Message(t, "3 of 2 devices", err)
	info, err := torch.Loaded()
	if err != nil {
		t.Fatal(err)
	}
	devices, err := torch.Choice("auto").Find(1)
	if want := min(torch.Device(info.CUDA), 1) - 1; !slices.Equal(devices, []torch.Device{want}) || err != nil {
		t.Errorf("auto is %v, %v, want %v", devices, err, want)
	}
	_, err = torch.Choice("cuda:255").Find(1)
	if !errors.Is(err, torch.ErrNoDevice) || !strings.Contains(err.Error(), "cuda:255") {
		t.Errorf("error = %v, want ErrNoDevice", err)
	}
	if _, other := torch.NewEngine(255); other == nil || other.Error() != err.Error() {
		t.Errorf("NewEngine's error = %v, want %v", other, err)
	}
	if got := len(info.Devices()); got != info.CUDA {
		t.Errorf("%d devices described, want %d", got, info.CUDA)
	}
}
