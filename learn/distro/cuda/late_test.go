//go:build cgo && linux

package cuda

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
)

// TestLateFailures checks which call returns the error of a kernel that fails when it runs. It is the
// call that launched the kernel, because this call waits. Without the wait, it is a later call.
func TestLateFailures(t *testing.T) {
	for failures, late := range map[string]bool{"kernel 700": false, "kernel 700,cuCtxSynchronize 0": true} {
		t.Run(failures, func(t *testing.T) {
			d, l := emulated(t), square(t)
			b := buffer(t, d, make([]float32, 64))
			t.Setenv(cudatest.EnvFailure, failures)
			is := func(err error) bool { return err != nil && strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") }
			err := d.apply(l, []codec.TensorResult{oneEntry(l, 0, 1)}, b.Tensor(), distro.ApplyParams{LR: 1, WeightFactor: 1})
			if late && err != nil || !late && !is(err) {
				t.Errorf("error = %v, want it late: %v", err, late)
			}
			t.Setenv(cudatest.EnvFailure, "")
			for range 2 { // the device stays unusable
				if _, err := b.Values(); !is(err) {
					t.Errorf("error = %v, want the kernel's", err)
				}
			}
		})
	}
}

// TestOrdinalsAreSeparate checks that a kernel cannot use memory of another device.
func TestOrdinalsAreSeparate(t *testing.T) {
	libraries := emulatedLibraries(t)
	var devices [cudatest.Devices]*Device
	for ordinal := range devices {
		device, err := open(libraries, ordinal)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := device.Close(); err != nil {
				t.Error(err)
			}
		})
		devices[ordinal] = device
	}
	b := buffer(t, devices[0], make([]float32, 64))
	other := deviceBuffer{device: devices[1], tensor: b.tensor}
	if _, err := other.Values(); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_INVALID_VALUE") {
		t.Errorf("error = %v, want CUDA_ERROR_INVALID_VALUE", err)
	}
	l := square(t)
	if err := devices[0].apply(l, []codec.TensorResult{oneEntry(l, 0, 1)}, b.Tensor(), distro.ApplyParams{LR: 1, WeightFactor: 1}); err != nil {
		t.Error(err)
	}
	if got := values(t, b); got[0] != -1 && got[63] != -1 {
		t.Errorf("weights %v did not move", got)
	}
}
