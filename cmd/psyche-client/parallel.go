package main

import (
	"fmt"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
)

// parallelFlags configure how the threads or the CUDA devices of one trainer share its work.
type parallelFlags struct {
	DataParallelism   int `default:"1" help:"Number of thread groups; each computes some of the micro-batches of a batch. Each group needs memory for its gradients and activations. With CUDA (see --device): number of devices instead of groups."`
	TensorParallelism int `default:"1" help:"Number of thread groups within each --data-parallelism group, which compute the layers of one micro-batch together. The model's key-value heads are divided among them. Not for CUDA devices."`
}

func (f parallelFlags) checkParallelism() error {
	if f.DataParallelism < 1 || f.TensorParallelism < 1 {
		return fmt.Errorf("--data-parallelism %d, --tensor-parallelism %d: want at least 1", f.DataParallelism, f.TensorParallelism)
	}
	if most := maxThreads(); f.DataParallelism > most || f.TensorParallelism > most/f.DataParallelism {
		return fmt.Errorf("--data-parallelism %d, --tensor-parallelism %d: want at most %d groups of threads together", f.DataParallelism, f.TensorParallelism, most)
	}
	return nil
}

// trainingDevices returns the CUDA devices for training, none for the CPU. libtorch must be loaded.
func (f parallelFlags) trainingDevices(where deviceFlags) ([]torch.Device, error) {
	devices, err := where.devices(f.DataParallelism)
	switch {
	case err != nil && f.DataParallelism > 1:
		return nil, fmt.Errorf("--data-parallelism %d: %w; choose fewer, or --device cpu", f.DataParallelism, err)
	case err != nil:
		return nil, err
	case len(devices) > 0 && f.TensorParallelism > 1:
		return nil, fmt.Errorf("--tensor-parallelism %d: layers are divided among threads of the CPU only: choose --device cpu, or --data-parallelism", f.TensorParallelism)
	}
	return devices, nil
}

func (f parallelFlags) parallelism() train.Parallelism {
	return train.Parallelism{Data: f.DataParallelism, Tensor: f.TensorParallelism}
}
