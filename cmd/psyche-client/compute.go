package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// libraryFlags configure how libtorch is loaded.
type libraryFlags struct {
	IgnoreOpenBLASEnv bool `name:"ignore-openblas-env" help:"Remove OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE from the environment; they can force slow kernels on this CPU."`
}

func (f libraryFlags) load(threads threadCount, logger *slog.Logger) error {
	return torch.Load(torch.Options{Threads: int(threads), OverrideOpenBLAS: f.IgnoreOpenBLASEnv, Logger: logger})
}

// deviceFlags select the device that computes a model.
type deviceFlags struct {
	Device torch.Choice `default:"auto" placeholder:"DEVICE" help:"Compute device: cpu; cuda (first CUDA device); cuda:N; cuda:X,Y,Z (the first N of them, for --data-parallelism N); auto (cuda if libtorch finds a CUDA device, otherwise cpu)."`
}

// devices returns the devices that the flag selects, at most count of them, or none for the CPU.
// libtorch must be loaded.
func (f deviceFlags) devices(count int) ([]torch.Device, error) {
	found, err := f.Device.Find(count)
	if err != nil {
		return nil, fmt.Errorf("--device %s: %w", f.Device, err)
	}
	if found[0] == torch.CPU {
		return nil, nil
	}
	return found, nil
}

// computeFlags configure how gradients are computed. Weights and gradients are always f32.
type computeFlags struct {
	deviceFlags  `embed:""`
	ComputeDtype string `default:"f32" enum:"f32,bf16,auto" help:"Data type for computing gradients: ${enum}. auto selects bf16 if it is faster. Weights and gradients stay f32."`
	Recompute    bool   `help:"Save memory: recompute the activations inside each layer instead of keeping them."`
}

// twoBytes reports whether activations have two bytes. For --compute-dtype auto, the type is chosen later; twoBytes
// assumes the smaller type.
func (f computeFlags) twoBytes() bool { return f.ComputeDtype != "f32" }

// computing returns the options for a trainer. libtorch must be loaded.
func (f computeFlags) computing(ctx context.Context, devices []torch.Device, logger *slog.Logger) (model.Options, error) {
	dtype, err := chooseType(ctx, f.ComputeDtype, devices, logger)
	return model.Options{Compute: dtype, Recompute: f.Recompute}, err
}

// inferenceFlags are the flags of commands that compute no gradients.
type inferenceFlags struct {
	deviceFlags  `embed:""`
	ComputeDtype string `default:"f32" enum:"f32,bf16,f16,auto" help:"Data type for computing: ${enum}. auto selects bf16 if it is faster. f16 needs a CUDA device."`
}

// chooseType chooses the element type for computation on the first of devices, or on the CPU.
func chooseType(ctx context.Context, name string, devices []torch.Device, logger *slog.Logger) (chosen torch.DType, err error) {
	switch name {
	case "f32":
		return torch.F32, nil
	case "f16":
		return torch.F16, nil // if the device cannot compute in this type, models and trainers return an error
	case "bf16":
		return torch.BF16, nil
	}
	device := torch.CPU
	if len(devices) > 0 {
		device = devices[0]
	}
	engine, err := torch.NewEngine(device)
	if err != nil {
		return torch.F32, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	slow := engine.CheckBF16(ctx)
	switch {
	case slow == nil:
		logger.Info("computing in bf16", "because", "it is faster here than f32")
		return torch.BF16, nil
	case errors.Is(slow, torch.ErrSlowType), errors.Is(slow, torch.ErrNoType):
		logger.Info("computing in f32", "because", slow)
		return torch.F32, nil
	default:
		return torch.F32, fmt.Errorf("choose the compute type: %w", slow)
	}
}
