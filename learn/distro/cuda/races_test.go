//go:build cgo && linux

package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
)

// checked returns a device whose launches fail if they find a race. edit changes the kernels.
func checked(t *testing.T, edit func(file, text string) string) *Device {
	t.Helper()
	library, err := cudatest.BuildChecked(t.TempDir(), edit)
	if errors.Is(err, cudatest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	device, err := OpenWith(library, library, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	return device
}

func TestKernelsHaveNoRaces(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the checks take long")
	}
	testModel(t, checked(t, func(_, text string) string { return text }))
}

// withoutBarrier removes barrier number n of a file.
func withoutBarrier(file string, n int) func(string, string) string {
	const barrier = "__syncthreads();"
	return func(name, text string) string {
		if name != file {
			return text
		}
		parts := strings.Split(text, barrier)
		return strings.Join(parts[:n+1], barrier) + strings.Join(parts[n+1:], barrier)
	}
}

// TestMissingBarriersAreFound removes a barrier from the kernels, one in each file. It also lets one
// thread skip a barrier.
func TestMissingBarriersAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the checks take long")
	}
	for _, removed := range []struct {
		file   string
		number int
	}{{"decode.cu", 0}, {"encode.cu", 3}, {"measure.cu", 1}} {
		t.Run(fmt.Sprint(removed.file, " ", removed.number), func(t *testing.T) {
			r := newModelRig(t, checked(t, withoutBarrier(removed.file, removed.number)), 9, smallShapes)
			if err := r.run(t); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED") {
				t.Errorf("error %v, want a race", err)
			}
		})
	}
	t.Run("one thread", func(t *testing.T) {
		r := newModelRig(t, checked(t, func(_, text string) string {
			return strings.ReplaceAll(text, "__syncthreads();", "if (threadIdx.x != 3) __syncthreads();")
		}), 9, smallShapes)
		if err := r.run(t); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED") {
			t.Errorf("error %v, want a deadlock", err)
		}
	})
}

// run calls all methods of the model, and returns the first error.
func (r *modelRig) run(t *testing.T) error {
	t.Helper()
	_, delta := r.upload(t, r.values(1, 1))
	_, grad := r.upload(t, r.values(2, 1))
	if _, err := r.model.Norm(delta); err != nil {
		return err
	}
	results, err := r.model.Encode(delta, delta, grad, encodeParams, 0)
	if err != nil {
		return err
	}
	return r.model.AddBack(delta, results)
}
