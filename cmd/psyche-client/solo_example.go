package main

import (
	"fmt"

	"github.com/alecthomas/kong"
)

// exampleFlags are flags of the example program of the original Psyche. Here they are aliases or have
// no effect.
type exampleFlags struct {
	Distro             bool    `help:"Same as --optimizer distro."`
	OptimStats         bool    `help:"Write each tensor's share of the gradient and momentum to the event log at every step."`
	StartStep          uint32  `default:"1" placeholder:"N" help:"First step of a new training (${default}). This number determines the learning rate and the sequences. A resumed training continues with its next step."`
	GradAccumInFP32    bool    `name:"grad-accum-in-fp32" help:"No effect: gradients are always summed in f32."`
	AttnImplementation *string `placeholder:"NAME" help:"No effect: attention has one implementation."`
	Python             bool    `help:"No effect: no part of the training runs in Python."`
}

// idle returns the flags without effect.
func (f exampleFlags) idle() []idleFlag {
	return []idleFlag{
		{f.GradAccumInFP32, "--grad-accum-in-fp32", "gradients are always summed in f32"},
		{f.AttnImplementation != nil, "--attn-implementation", "attention has one implementation"},
		{f.Python, "--python", "no part of the training runs in Python"},
	}
}

// statsEvery returns the number of steps between metrics of every tensor; 0 disables them.
func (f exampleFlags) statsEvery() uint32 {
	if f.OptimStats {
		return 1
	}
	return 0
}

// checkStart returns an error if the first step cannot be trained.
func (c *soloCommand) checkStart() error {
	if c.StartStep < 1 || c.StartStep > c.Steps {
		return usageError{fmt.Errorf("--start-step is %d: want 1 to --steps, %d", c.StartStep, c.Steps)}
	}
	return nil
}

// begin makes --start-step the first step of a new training, with its sequences and its learning
// rate.
func (s *solo) begin() {
	s.step = s.options.StartStep - 1
	s.dataIndex = uint64(s.step) * uint64(s.options.TotalBatch)
}

// idle returns the given flags that have no effect.
func (c *soloCommand) idle(line *kong.Context) []idleFlag {
	all := append(c.exampleFlags.idle(), c.soloOptimizer.idle(line)...)
	return append(all, idleFlag{c.OptimStats && c.Save == "" && c.EventsDir == "", "--optim-stats", "there is no event log; give --events-dir or --save"})
}
