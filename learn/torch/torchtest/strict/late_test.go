package strict_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
	"github.com/psyche-go/psyche/learn/torch/torchtest/strict"
)

// TestLateKernels checks that the kernels run late: if libtorch does not wait for them, as for kernels on
// another stream, results are wrong, or the process dies.
func TestLateKernels(t *testing.T) {
	if strict.Inside() {
		strict.Start(t)
		strict.UseKernels(t)
		if err := compare(t, engine(t, 0), torchtest.Engine(t), torch.F32, operations(9, 8, 2), rand.New(rand.NewPCG(3, 4))); err != nil {
			t.Error(err)
		}
		return
	}
	for failures, wrong := range map[string]bool{"": false, "psyche_strict_follow 0": true} {
		command := strict.Command(t, t.Name())
		command.Env = append(command.Env, cudatest.EnvFailure+"="+failures)
		if output, err := command.CombinedOutput(); (err != nil) != wrong {
			t.Errorf("%s: error = %v, want one: %v\n%s", failures, err, wrong, output)
		}
	}
}

// TestLateFailure checks that an operation of libtorch returns the error of a kernel before it.
func TestLateFailure(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	strict.UseKernels(t)
	t.Setenv(cudatest.EnvFailure, "kernel 700")
	if failed := (*torch.Error)(nil); !errors.As(runAll(t, engine(t, 0)), &failed) || !strings.Contains(failed.Message, "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Errorf("error = %v, want the kernel's", failed)
	}
}

// TestAsynchronousCopies checks that the destination of a copy down is wrong until the program waits, and
// that a process dies if it changes the source of a copy up before it waits.
func TestAsynchronousCopies(t *testing.T) {
	if strict.Inside() {
		strict.Start(t)
		torchtest.Do(t, engine(t, 0), false, func(s *torch.Scope) error {
			x, values := s.Full(torch.F32, 1, 8), make([]float32, 8)
			strict.CopyDown(values, x)
			x.MulScalarInPlace(2) // comes behind the copy
			if !math.IsNaN(float64(values[0])) {
				t.Errorf("before the wait: %v", values)
			}
			if sum := x.Sum().Item(); sum != 16 || !slices.Equal(values, slices.Repeat([]float32{1}, 8)) {
				t.Errorf("after the wait: %v, sum %v", values, sum)
			}
			strict.CopyUp(x, values)
			x.Sum().Item()
			values[3] = 5
			fmt.Println("changed after the wait")
			strict.CopyUp(x, values)
			values[3] = 6
			x.Sum().Item()
			fmt.Println("changed before the wait")
			return nil
		})
		return
	}
	output, err := strict.Command(t, t.Name()).CombinedOutput()
	text := string(output)
	if err == nil || !strings.Contains(text, "changed after") || strings.Contains(text, "changed before") || !strings.Contains(text, "asynchronous copy to device 0") {
		t.Errorf("error = %v, want the death of the process\n%s", err, output)
	}
}
