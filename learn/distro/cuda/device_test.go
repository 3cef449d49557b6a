//go:build cgo && linux

package cuda

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
)

func square(t testing.TB) distro.Layout {
	t.Helper()
	l, err := distro.NewLayout([]int64{8, 8}, 8)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func oneEntry(l distro.Layout, index uint16, value float32) codec.TensorResult {
	r := l.Codec(1).NewResult()
	r.Counts[0], r.Indices[0], r.Values[0] = 1, index, value
	return r
}

// TestArgumentsAreThoseOfTheKernels checks the sizes of the structs. The kernels do not compile with
// other sizes.
func TestArgumentsAreThoseOfTheKernels(t *testing.T) {
	for name, sizes := range map[string][2]uintptr{
		"plan":   {unsafe.Sizeof(planArguments{}), 96},
		"sent":   {unsafe.Sizeof(sentArguments{}), 40},
		"decode": {unsafe.Sizeof(decodeArguments{}), 64},
		"encode": {unsafe.Sizeof(encodeArguments{}), 112},
		"square": {unsafe.Sizeof(squareArguments{}), 40},
		"sample": {unsafe.Sizeof(sampleArguments{}), 56},
		"floor":  {unsafe.Sizeof(floorArguments{}), 48},
		"digest": {unsafe.Sizeof(digestArguments{}), 40},
		"gather": {unsafe.Sizeof(gatherArguments{}), 64},
		"step":   {unsafe.Sizeof(stepArguments{}), 96},
		"far":    {unsafe.Sizeof(farArguments{}), 56},
		"mean":   {unsafe.Sizeof(meanArguments{}), 72},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("%s: %d bytes, want %d", name, sizes[0], sizes[1])
		}
	}
}

func TestArgumentsThatDoNotFit(t *testing.T) {
	d, l := emulated(t), square(t)
	b := buffer(t, d, make([]float32, 64))
	full := b.Tensor()
	few, nowhere, odd := full, full, full
	few.Elements--
	nowhere.Address = 0
	odd.Address += 2
	fine := distro.ApplyParams{LR: 1, WeightFactor: 1}
	apply := func(r []codec.TensorResult, w Tensor, p distro.ApplyParams) func() error {
		return func() error { return d.apply(l, r, w, p) }
	}
	encode := func(delta, grad Tensor, topK int) func() error {
		return func() error {
			_, err := d.encode(l, delta, grad, distro.EncodeParams{Decay: 1, LR: 1, TopK: topK})
			return err
		}
	}
	for name, call := range map[string]func() error{
		"few weights":          apply(nil, few, fine),
		"no address":           apply(nil, nowhere, fine),
		"odd address":          apply(nil, odd, fine),
		"no factor":            apply(nil, full, distro.ApplyParams{LR: 1}),
		"rate not a number":    apply(nil, full, distro.ApplyParams{LR: float32(math.NaN()), WeightFactor: 1}),
		"too many results":     apply(slices.Repeat([]codec.TensorResult{oneEntry(l, 0, 1)}, maxResults+1), full, fine),
		"too many votes":       apply(nil, full, distro.ApplyParams{WeightFactor: 1, Votes: distro.Votes{16}}),
		"large vote":           apply([]codec.TensorResult{oneEntry(l, 0, 1)}, full, distro.ApplyParams{WeightFactor: 1, Votes: distro.Votes{17}}),
		"index past the chunk": apply([]codec.TensorResult{oneEntry(l, 64, 1)}, full, fine),
		"value not finite":     apply([]codec.TensorResult{oneEntry(l, 0, float32(math.Inf(1)))}, full, fine),
		"empty result":         func() error { return d.addBack(l, full, codec.TensorResult{}) },
		"few to give to":       func() error { return d.addBack(l, few, oneEntry(l, 0, 1)) },
		"nowhere to give to":   func() error { return d.addBack(l, nowhere, oneEntry(l, 0, 1)) },
		"few gradients":        encode(full, few, 1),
		"no gradients":         encode(full, nowhere, 1),
		"top-k 0":              encode(full, full, 0),
		"empty buffer":         func() error { _, err := d.newBuffer(nil); return err },
	} {
		if err := call(); !errors.Is(err, distro.ErrInput) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if slices.ContainsFunc(values(t, b), func(v float32) bool { return v != 0 }) {
		t.Error("a refused call changed its argument")
	}
}

func TestNumbersThatAreNotFinite(t *testing.T) {
	d := emulated(t)
	l, err := distro.NewLayout([]int64{64, 256}, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1)), math.MaxFloat32} {
		delta, grad := normal(1, l.Elements(), 1), normal(2, l.Elements(), 1)
		grad[200], grad[201] = bad, bad
		onDevice := buffer(t, d, delta)
		_, err := d.encode(l, onDevice.Tensor(), buffer(t, d, grad).Tensor(), distro.EncodeParams{Decay: 0.9, LR: 0.9, TopK: 4})
		if !errors.Is(err, distro.ErrNotFinite) || !strings.Contains(err.Error(), "chunk 3") {
			t.Errorf("gradient %v: error %v", bad, err)
		}
		after := values(t, onDevice)
		for i := range delta {
			if i%256/64 == 3 && after[i] != delta[i] {
				t.Fatalf("gradient %v: momentum %d of the refused chunk changed", bad, i)
			}
		}
	}
}

// TestFailuresOfTheDriver makes each call fail in turn. The error must contain the call and the
// code, and no memory may remain on the device.
func TestFailuresOfTheDriver(t *testing.T) {
	const failure = cudatest.EnvFailure
	libraries := emulatedLibraries(t)
	for call, noCUDA := range map[string]bool{
		"cuInit 100": true, "cuDeviceGetCount 100": true, "cuDevicePrimaryCtxRetain 2": true,
		"cuModuleLoadDataEx 1": false, "cuModuleLoadDataEx 222": true, "cuModuleGetFunction 500": false, "nvrtcCompileProgram 6": false,
	} {
		t.Setenv(failure, call)
		device, err := open(libraries, 0)
		if err == nil {
			t.Errorf("%s: no error", call)
			if err := device.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		name, _, _ := strings.Cut(call, " ")
		if errors.Is(err, ErrNoCUDA) != noCUDA || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "_ERROR_") {
			t.Errorf("%s: error %v", call, err)
		}
	}
	if err := os.Unsetenv(failure); err != nil {
		t.Fatal(err)
	}
	_, err := open(libraries, 2)
	if !errors.Is(err, ErrNoCUDA) {
		t.Errorf("a device too many: error %v, want ErrNoCUDA", err)
	}
	golden.Message(t, "device 2 of 2", err)
	d, l := emulated(t), square(t)
	b := buffer(t, d, make([]float32, 64))
	for _, call := range []string{"cuMemAlloc 2", "cuMemcpyHtoD 1", "cuLaunchKernel 700", "cuCtxSynchronize 700", "cuMemcpyHtoD 12345"} {
		if err := os.Setenv(failure, call); err != nil {
			t.Fatal(err)
		}
		err := d.apply(l, []codec.TensorResult{oneEntry(l, 0, 1)}, b.Tensor(), distro.ApplyParams{LR: 1, WeightFactor: 1})
		name, _, _ := strings.Cut(call, " ")
		known := strings.HasSuffix(call, "12345") || err != nil && strings.Contains(err.Error(), "CUDA_ERROR_")
		if err == nil || !strings.Contains(err.Error(), name) || !known {
			t.Errorf("%s: error %v", call, err)
		}
	}
	if err := os.Unsetenv(failure); err != nil {
		t.Fatal(err)
	}
	if err := d.apply(l, nil, b.Tensor(), distro.ApplyParams{LR: 1, WeightFactor: 1}); err != nil {
		t.Errorf("after the failures: %v", err)
	}
}

// TestManyThreads runs calls on many threads. The emulated driver refuses calls on a thread without
// a context.
func TestManyThreads(t *testing.T) {
	d, l := emulated(t), square(t)
	var group sync.WaitGroup
	for range 8 {
		b := buffer(t, d, make([]float32, 64))
		group.Go(func() {
			for range 20 {
				if err := d.apply(l, []codec.TensorResult{oneEntry(l, 0, 1)}, b.Tensor(), distro.ApplyParams{LR: 1, WeightFactor: 1}); err != nil {
					t.Error(err)
				}
			}
			got, err := b.Values()
			if err != nil || got[63] != -20 {
				t.Errorf("weight %v, error %v", got, err)
			}
		})
	}
	group.Wait()
}

func TestAfterClose(t *testing.T) {
	d, l := emulated(t), square(t)
	b, err := d.newBuffer(make([]float32, 64))
	if err != nil {
		t.Fatal(err)
	}
	weights := b.Tensor()
	if d.name != "emulated" {
		t.Errorf("name %q", d.name)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Values(); !errors.Is(err, errClosed) {
		t.Errorf("closed buffer: error %v", err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.apply(l, nil, weights, distro.ApplyParams{WeightFactor: 1}); !errors.Is(err, errClosed) {
		t.Errorf("closed device: error %v", err)
	}
}

func TestWithoutLibraries(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	_, err := open(libraries{driver: []string{missing}, nvrtc: nvrtcPaths}, 0)
	if !errors.Is(err, ErrNoCUDA) {
		t.Errorf("no driver: error %v", err)
	}
	emulated := emulatedLibraries(t)
	t.Setenv(EnvNVRTC, t.TempDir())
	_, err = open(libraries{driver: emulated.driver, nvrtc: nvrtcPaths}, 0)
	if !errors.Is(err, ErrNoCUDA) || !strings.Contains(err.Error(), EnvNVRTC) {
		t.Errorf("no NVRTC: error %v", err)
	}
}

func TestWhereNVRTCIsSought(t *testing.T) {
	root := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("site/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4")
	wheel := write("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
	newer := write("site/nvidia/cu13/lib/libnvrtc.so.13")
	bundled := write("site/torch/lib/libnvrtc-b51b459d.so.12")
	torch := write("site/torch/lib/libtorch_cuda.so")
	mapped := write("elsewhere/libnvrtc.so.11.2")

	maps := "7f00-7f01 r--p 00000000 08:01 42    " + torch + "\n7f01-7f02 r-xp 00001000 08:01 42    " + torch + "\n" +
		"7f03-7f04 r--p 00000000 08:01 43    " + mapped + "\n7f05-7f06 rw-p 00000000 00:00 0 \n7f07-7f08 rw-p 00000000 00:00 0    [heap]\n"
	want := []string{mapped, newer, wheel, bundled}
	got := nvrtcBeside(mappedLibraries(maps))
	slices.Sort(want[1:])
	slices.Sort(got[1:])
	if !slices.Equal(got, want) {
		t.Errorf("with other loaded objects: %v, want %v", got, want)
	}
	for named, want := range map[string][]string{
		mapped:                         {mapped},
		filepath.Join(root, "nothing"): {filepath.Join(root, "nothing")},
		filepath.Dir(wheel):            {wheel},
		root:                           {filepath.Join(root, "libnvrtc.so")},
	} {
		t.Setenv(EnvNVRTC, named)
		if got := nvrtcPaths(); !slices.Equal(got, want) {
			t.Errorf("%s=%s: %v, want %v", EnvNVRTC, named, got, want)
		}
	}
}
