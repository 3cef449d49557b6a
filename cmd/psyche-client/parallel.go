package main

import (
	"fmt"

	"github.com/psyche-go/psyche/train"
)

// parallelFlags say how the threads of one trainer share its work.
type parallelFlags struct {
	DataParallelism   int `default:"1" help:"Groups that the threads are divided into; each computes some of the micro-batches of a batch. Needs memory for the gradients and activations of each group."`
	TensorParallelism int `default:"1" help:"Groups of threads, within each of the former, that compute the layers of one micro-batch together. The model's key-value heads are divided among them."`
}

func (f parallelFlags) checkParallelism() error {
	if f.DataParallelism < 1 || f.TensorParallelism < 1 {
		return fmt.Errorf("--data-parallelism %d, --tensor-parallelism %d: want at least 1", f.DataParallelism, f.TensorParallelism)
	}
	return nil
}

func (f parallelFlags) parallelism() train.Parallelism {
	return train.Parallelism{Data: f.DataParallelism, Tensor: f.TensorParallelism}
}
