//go:build cgo && linux

package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// checkedEmulator is emulator with checks for races.
var checkedEmulator = sync.OnceValues(func() (string, error) {
	directory := filepath.Join(scratch, "checked")
	if err := os.Mkdir(directory, 0o700); err != nil {
		return "", err
	}
	return cudatest.BuildChecked(directory, func(_, text string) string { return text })
})

// checked returns a device whose launches fail if they find a race.
func checked(t *testing.T) *Device {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the checks take long")
	}
	library, err := checkedEmulator()
	return openChecked(t, library, err)
}

// edited is checked for changed kernels.
func edited(t *testing.T, edit func(file, text string) string) *Device {
	t.Helper()
	library, err := cudatest.BuildChecked(t.TempDir(), edit)
	return openChecked(t, library, err)
}

func openChecked(t *testing.T, library string, err error) *Device {
	t.Helper()
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

func TestKernelsHaveNoRaces(t *testing.T) { testModel(t, checked(t)) }

func TestLevelsHaveNoRaces(t *testing.T) {
	d := checked(t)
	testLevels(t, d, 2)
	testEncodeLevels(t, d, 1)
}

func TestElementsHaveNoRaces(t *testing.T) {
	d := checked(t)
	testAdamW(t, d)
	testFar(t, d)
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

// TestMissingBarriersAreFound removes a barrier from a kernel. It also lets one thread skip barriers.
func TestMissingBarriersAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the checks take long")
	}
	for _, removed := range []struct {
		file   string
		number int
	}{{"encode.cu", 9}, {"decode.cu", 0}, {"local.cu", 0}} {
		t.Run(fmt.Sprint(removed.file, " ", removed.number), func(t *testing.T) {
			if err := callAll(t, edited(t, withoutBarrier(removed.file, removed.number))); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED") {
				t.Errorf("error %v, want a race", err)
			}
		})
	}
	t.Run("one thread", func(t *testing.T) {
		err := callAll(t, edited(t, func(_, text string) string {
			return strings.ReplaceAll(text, "__syncthreads();", "if (threadIdx.x != 3) __syncthreads();")
		}))
		if err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED") {
			t.Errorf("error %v, want a deadlock", err)
		}
	})
}

// callAll calls the methods with barriers in their kernels, so that every barrier is needed: with
// chunks of several sizes in one block, more results than lanes of a warp, and more coefficients than
// threads of a block. It returns the first error.
func callAll(t *testing.T, d *Device) error {
	t.Helper()
	layouts := []distro.Layout{layout(t, 64, 64, 64*40), layout(t, 128, 128, 256), layout(t, 64, 29, 44), layout(t, 64, 67)}
	for _, topK := range []int{9, 100} {
		r, p := newModelRig(t, d, topK, layouts), encodeParams
		p.TopK = topK
		_, delta := r.upload(t, r.values(1, 1))
		_, grad := r.upload(t, r.values(2, 1))
		if _, err := r.model.Squares(delta); err != nil {
			return err
		}
		result, err := r.model.Encode(delta, delta, grad, p, 0)
		if err != nil {
			return err
		}
		apply := distro.ApplyParams{LR: 1, WeightFactor: 1}
		if err := r.model.Apply(slices.Repeat([][]codec.TensorResult{result}, 40), grad, apply); err != nil {
			return err
		}
		levels, err := r.model.EncodeLevels(delta, delta, grad, localsteps.EncodeParams{Reach: 1, TopK: topK, LevelBits: 4, Decay: 1})
		if err != nil {
			return err
		}
		moved := localsteps.ApplyParams{Reach: 1, LevelBits: 4, Rate: 1}
		if err := r.model.ApplyLevels(slices.Repeat([][]codec.TensorResult{levels}, 40), grad, moved); err != nil {
			return err
		}
	}
	return nil
}
