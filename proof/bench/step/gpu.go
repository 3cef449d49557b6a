package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	layers "github.com/psyche-go/psyche/learn/torch/cuda"
)

// gpu is a CUDA device that computes as for a trainer: with Psyche's kernels for parts of layers, and
// with conversions of the weights that are kept until the weights change.
type gpu struct {
	device      *cuda.Device
	program     *cuda.Program
	ordinal     torch.Device
	conversions torch.Conversions
}

// openGPU prepares a model's device. It returns nil for the CPU. If there is no NVRTC, it prints that and
// uses libtorch's operations.
func openGPU(ordinal torch.Device, network model.Model) (g *gpu, err error) {
	if ordinal == torch.CPU {
		return nil, nil
	}
	g = &gpu{ordinal: ordinal}
	var weights []*torch.Tensor
	for _, p := range network.Parameters() {
		weights = append(weights, p.Tensor)
	}
	g.conversions = torch.KeepConversions(weights...)
	if g.device, err = cuda.Open(int(ordinal)); errors.Is(err, cuda.ErrNoCUDA) {
		fmt.Fprintln(os.Stderr, "without kernels for layers:", err)
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	if g.program, err = g.device.Compile(layers.Source, layers.Names(), layers.Threads); err != nil {
		return nil, errors.Join(err, g.device.Close())
	}
	function, context := g.program.Launcher()
	torch.SetKernels(ordinal, function, context)
	return g, nil
}

// step prepares a step with new weights.
func (g *gpu) step() {
	if g != nil {
		g.conversions.Changed()
	}
}

func (g *gpu) close() error {
	if g == nil || g.device == nil {
		return nil
	}
	torch.SetKernels(g.ordinal, nil, nil)
	return errors.Join(g.program.Close(), g.device.Close())
}
