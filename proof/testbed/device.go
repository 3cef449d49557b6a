package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
)

// StrictDevice builds the strict devices into a folder: devices whose memory faults outside kernels and
// copies, with an emulated CUDA driver. It returns the environment of a client in which libtorch finds
// them as cuda:0 and cuda:1. root is the root of the module, in which the working directory must be. shim is
// the shim's path, or empty if clients find it.
func StrictDevice(ctx context.Context, root, shim, dir string) (env []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, path := range []*string{&root, &dir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	devices := filepath.Join(dir, "libdevices.so")
	build := exec.CommandContext(ctx, filepath.Join(root, "scripts", "build-shim.sh"))
	build.Env = append(os.Environ(), "SHIM="+devices, "SHIM_FOLDER=learn/torch/torchtest/strict/device")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the strict device: %w\n%s", err, out)
	}
	emulated, err := cudatest.Build(dir)
	if err != nil {
		return nil, fmt.Errorf("build the emulated driver: %w", err)
	}
	driver := filepath.Join(dir, "libcuda.so.1")
	if err := os.Rename(emulated, driver); err != nil {
		return nil, err
	}
	env = []string{"PSYCHE_TORCH_DEVICES=" + devices, "PSYCHE_NVRTC=" + driver, "LD_LIBRARY_PATH=" + dir + ":" + os.Getenv("LD_LIBRARY_PATH")}
	if shim != "" {
		env = append(env, "PSYCHE_TORCH_SHIM="+shim)
	}
	return env, nil
}
