package main

import "log/slog"

// exampleFlags are flags of the original's example that say here what another one says, or nothing.
type exampleFlags struct {
	Distro             bool    `help:"As --optimizer distro."`
	GradAccumInFP32    bool    `name:"grad-accum-in-fp32" help:"Changes nothing: gradients are always summed in f32."`
	AttnImplementation *string `placeholder:"NAME" help:"Changes nothing: attention has one implementation."`
	Python             bool    `help:"Changes nothing: no part of the training runs in Python."`
}

// warn says which of the flags that were given change nothing, and why.
func (f exampleFlags) warn(logger *slog.Logger) {
	warnIdle(logger, []idleFlag{
		{f.GradAccumInFP32, "--grad-accum-in-fp32", "gradients are always summed in f32"},
		{f.AttnImplementation != nil, "--attn-implementation", "attention has one implementation"},
		{f.Python, "--python", "no part of the training runs in Python"},
	})
}
