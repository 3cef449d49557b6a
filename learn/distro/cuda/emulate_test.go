//go:build cgo && linux

package cuda

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
)

// emulator is the driver of package cudatest. It runs the source of the kernels on the CPU, and the
// rest of the package as on a device.
var emulator = sync.OnceValues(func() (string, error) { return cudatest.Build(scratch) })

var scratch string

func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "psyche-cuda")
	if err != nil {
		panic(err)
	}
	scratch = directory
	code := m.Run()
	if err := os.RemoveAll(directory); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// emulatedLibraries skips the test if there is no C compiler.
func emulatedLibraries(t testing.TB) libraries {
	t.Helper()
	library, err := emulator()
	if errors.Is(err, cudatest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return libraries{driver: []string{library}, nvrtc: func() []string { return []string{library} }}
}

func emulated(t testing.TB) *Device {
	t.Helper()
	device, err := open(emulatedLibraries(t), 0)
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

// real skips the test if there is no device.
func real(t testing.TB) *Device {
	t.Helper()
	device, err := Open(0)
	if errors.Is(err, ErrNoCUDA) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log("device:", device.name)
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	return device
}

func buffer(t testing.TB, d *Device, values []float32) *deviceBuffer {
	t.Helper()
	b, err := d.newBuffer(values)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func values(t testing.TB, b *deviceBuffer) []float32 {
	t.Helper()
	got, err := b.Values()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func kernel(t testing.TB, isa string) *distro.Kernel {
	t.Helper()
	k, err := distro.NewKernel(distro.Options{ISA: isa})
	if err != nil {
		t.Fatal(err)
	}
	return k
}
