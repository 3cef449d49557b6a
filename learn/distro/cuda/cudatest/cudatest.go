// Package cudatest provides a fake CUDA driver and NVRTC for tests without a GPU. One library
// replaces both. It is compiled at test time and runs the kernels of package cuda on the CPU.
// Addresses in device memory are addresses in the process.
//
//	library := cudatest.Library(t)
//	device, err := cuda.OpenWith(library, library, 0)
//
// The variable [EnvFailure] makes a driver call fail.
package cudatest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// EnvFailure is the environment variable that makes a call fail with a code, as in "cuLaunchKernel
// 700". The driver reads it in each call.
const EnvFailure = "PSYCHE_EMULATED_FAILURE"

// ErrNoCompiler means that there is no C compiler.
var ErrNoCompiler = errors.New("no C compiler in PATH to compile the kernels for this CPU")

//go:embed testdata/driver.c
var driver string

// Library compiles the library for one test, or skips the test if there is no compiler. Each device
// with separate memory needs its own library.
func Library(t testing.TB) string {
	t.Helper()
	library, err := Build(t.TempDir())
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return library
}

// Build compiles the library into a directory and returns its path. The working directory must be a
// folder of the module, as in tests.
func Build(directory string) (string, error) {
	compiler, err := findCompiler()
	if err != nil {
		return "", err
	}
	kernels, err := findKernels()
	if err != nil {
		return "", err
	}
	source, library := filepath.Join(directory, "driver.c"), filepath.Join(directory, "libemulated.so")
	if err := os.WriteFile(source, []byte(driver), 0o600); err != nil {
		return "", err
	}
	arguments := append(strings.Fields("-std=gnu11 -O1 -Wall -Werror -ffp-contract=off -shared -fPIC"), "-I", kernels, "-o", library, source, "-lm", "-ldl")
	if out, err := exec.Command(compiler, arguments...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s %v: %w\n%s", compiler, arguments, err, out)
	}
	return library, nil
}

func findCompiler() (string, error) {
	for _, name := range []string{os.Getenv("CC"), "gcc", "cc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

// findKernels returns the folder of kernel.cu in the module around the working directory.
func findKernels() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		kernels := filepath.Join(at, "distro", "cuda")
		if _, err := os.Stat(filepath.Join(kernels, "kernel.cu")); err == nil {
			return kernels, nil
		}
		above := filepath.Dir(at)
		if above == at {
			return "", errors.New("no learn/distro/cuda/kernel.cu in the folders above the working directory")
		}
		at = above
	}
}
