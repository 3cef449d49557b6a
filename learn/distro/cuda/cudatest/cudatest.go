// Package cudatest provides a fake CUDA driver and NVRTC for tests without a GPU. One library
// replaces both. It is compiled at test time and runs the kernels of package cuda on the CPU.
// Addresses in device memory are addresses in the process. It has two ordinals. Kernels run late: at the
// next wait, copy or release of memory on their ordinal, and before an operation of libtorch on the
// strict device. Code that lacks a wait reads old values, and misses the error of a kernel.
//
//	library := cudatest.Library(t)
//	device, err := cuda.OpenWith(library, library, 0)
//
// The variable [EnvFailure] makes driver calls fail, or do nothing.
package cudatest

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// EnvFailure is the environment variable that makes calls return a code without doing anything, as in
// "cuLaunchKernel 700". Code 0 is success: "cuCtxSynchronize 0" makes waits return at once. The call
// "kernel" is a kernel, which fails only when it runs; its device then refuses further work, as a GPU
// does. "psyche_strict_follow 0" makes libtorch not wait for kernels. Commas separate calls. The driver
// reads the variable in each call.
const EnvFailure = "PSYCHE_EMULATED_FAILURE"

// EnvLargest is the environment variable with the size of the largest allocation, in bytes. Larger ones fail.
const EnvLargest = "PSYCHE_EMULATED_LARGEST"

// Devices is the number of ordinals.
const Devices = 2

// ErrNoCompiler means that there is no C compiler.
var ErrNoCompiler = errors.New("no C compiler in PATH to compile the kernels for this CPU")

//go:embed testdata/*.c testdata/*.cc testdata/*.h
var emulator embed.FS

// Library compiles the library for one test, or skips the test if there is no compiler.
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
	return build(directory, "", func(_, text string) string { return text })
}

// BuildChecked is Build with a slower library: a launch also fails if it finds a race, or a read of
// shared memory that was not written. edit returns the text of each file of the kernels to use.
func BuildChecked(directory string, edit func(file, text string) string) (string, error) {
	return build(directory, " -fsanitize=thread", edit)
}

func build(directory, checks string, edit func(file, text string) string) (string, error) {
	compiler := find(os.Getenv("CC"), "gcc", "cc", "clang")
	if compiler == "" {
		return "", ErrNoCompiler
	}
	if err := writeSources(directory, edit); err != nil {
		return "", err
	}
	const flags = " -O2 -Wall -Werror -ffp-contract=off -fPIC "
	// The sanitizer instruments the accesses of the kernels. Its library is not linked: see races.c.
	commands := []string{compiler + " -std=gnu11" + flags + "-c -o kernels.o kernels.c" + checks}
	objects := " kernels.o"
	if plus := find(os.Getenv("CXX"), "g++", "c++", "clang++"); plus != "" {
		commands = append(commands, plus+" -std=gnu++17 -fno-exceptions"+flags+"-c -o layers.o layers.cc"+checks)
		objects += " layers.o"
	}
	commands = append(commands, compiler+" -std=gnu11"+flags+"-shared -Wl,-Bsymbolic -o libemulated.so driver.c fibers.c races.c"+objects+" -lm -ldl")
	for _, words := range commands {
		list := strings.Fields(words)
		command := exec.Command(list[0], list[1:]...)
		command.Dir = directory
		if out, err := command.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", command, err, out)
		}
	}
	return filepath.Join(directory, "libemulated.so"), nil
}

// writeSources writes the emulator and the kernels into a directory.
func writeSources(directory string, edit func(file, text string) string) error {
	kernels, err := findKernels()
	if err != nil {
		return err
	}
	for _, from := range []struct {
		files   fs.FS
		pattern string
		edit    func(file, text string) string
	}{
		{emulator, "testdata/*", func(_, text string) string { return text }},
		{os.DirFS(kernels), "*.cu", edit},
		{os.DirFS(filepath.Join(kernels, "..", "..", "torch", "cuda")), "pieces.*", edit},
	} {
		names, err := fs.Glob(from.files, from.pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			text, err := fs.ReadFile(from.files, name)
			if err != nil {
				return err
			}
			base := path.Base(name)
			if err := os.WriteFile(filepath.Join(directory, base), []byte(from.edit(base, string(text))), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// find returns the path of the first program that exists, or "".
func find(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// findKernels returns the folder of kernel.cu in the module around the working directory.
func findKernels() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		for _, folder := range []string{"distro/cuda", "learn/distro/cuda"} {
			kernels := filepath.Join(at, filepath.FromSlash(folder))
			if _, err := os.Stat(filepath.Join(kernels, "kernel.cu")); err == nil {
				return kernels, nil
			}
		}
		above := filepath.Dir(at)
		if above == at {
			return "", errors.New("no learn/distro/cuda/kernel.cu in the folders above the working directory")
		}
		at = above
	}
}
