package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/model"
	"github.com/psyche-go/psyche/torch"
)

// libraryFlags say how libtorch is loaded.
type libraryFlags struct {
	IgnoreOpenBLASEnv bool `name:"ignore-openblas-env" help:"Drop OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE from the environment, which may force slow kernels on this CPU."`
}

func (f libraryFlags) load(threads threadCount, logger *slog.Logger) error {
	return torch.Load(torch.Options{Threads: int(threads), OverrideOpenBLAS: f.IgnoreOpenBLASEnv, Logger: logger})
}

// computeFlags say how gradients are computed. Weights and gradients are always f32.
type computeFlags struct {
	ComputeDtype string `default:"f32" enum:"f32,bf16,auto" help:"Type that gradients are computed in: ${enum}. auto: bf16 where it is faster. Weights and gradients stay f32."`
	Recompute    bool   `help:"Use less memory: compute the inside of each layer a second time instead of keeping it."`
}

// computing gives them to a trainer; libtorch must be loaded.
func (f computeFlags) computing(ctx context.Context, logger *slog.Logger) (o model.Options, err error) {
	o.Recompute = f.Recompute
	switch f.ComputeDtype {
	case "bf16":
		o.Compute = torch.BF16 // the trainer refuses it where it does not work
	case "auto":
		engine, err := torch.NewEngine(torch.CPU)
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, engine.Close()) }()
		slow := engine.CheckBF16(ctx)
		switch {
		case slow == nil:
			o.Compute = torch.BF16
			logger.Info("computing in bf16", "because", "it is faster here than f32")
		case errors.Is(slow, torch.ErrSlowType), errors.Is(slow, torch.ErrNoType):
			logger.Info("computing in f32", "because", slow)
		default:
			return o, fmt.Errorf("choose the type to compute in: %w", slow)
		}
	}
	return o, nil
}
