package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/record/config"
)

// soloOptimizer are the flags of optimizer and learning rate.
type soloOptimizer struct {
	Optimizer    string  `default:"adamw" enum:"adamw,distro" help:"Optimizer: ${enum}." group:"Optimizer and learning rate:"`
	LR           float64 `aliases:"learning-rate" default:"0.001" help:"Learning rate after the warmup." group:"Optimizer and learning rate:"`
	LRSchedule   string  `default:"cosine" enum:"constant,linear,cosine,wsd" help:"Learning rate schedule after the warmup: ${enum}. With wsd (warmup-stable-decay), the rate stays at --lr until the decay." group:"Optimizer and learning rate:"`
	FinalLR      float64 `default:"0.0001" help:"Learning rate at the last step, for linear, cosine and wsd." group:"Optimizer and learning rate:"`
	WarmupSteps  *uint32 `placeholder:"N" help:"Warmup steps, in which the learning rate rises from 0. Default: unchanged for a resumed training; otherwise 10, but less than --steps for linear, cosine and wsd." group:"Optimizer and learning rate:"`
	WeightDecay  float64 `default:"0" help:"Decoupled weight decay." group:"Optimizer and learning rate:"`
	ClipGradNorm float64 `aliases:"max-grad-norm" default:"1" help:"Maximum gradient norm; 0 means no limit." group:"Optimizer and learning rate:"`

	soloDecay

	Beta1 float64 `aliases:"beta1" default:"0.9" help:"Decay of the mean gradient (adamw)." group:"Flags for --optimizer adamw:"`
	Beta2 float64 `aliases:"beta2" default:"0.95" help:"Decay of the mean square of the gradient (adamw)." group:"Flags for --optimizer adamw:"`
	Eps   float64 `default:"1e-8" help:"Value added to the root of the mean square (adamw)." group:"Flags for --optimizer adamw:"`

	CompressionDecay float64 `default:"0.999" help:"Decay of the momentum (distro)." group:"Flags for --optimizer distro:"`
	CompressionTopK  uint16  `name:"compression-topk" default:"8" help:"Coefficients kept per chunk (distro)." group:"Flags for --optimizer distro:"`
	CompressionChunk uint16  `default:"64" help:"Maximum side length of a chunk (distro)." group:"Flags for --optimizer distro:"`
	Quantize1Bit     bool    `name:"quantize-1bit" aliases:"distro-quantization" default:"true" negatable:"" help:"Keep only signs (distro)." group:"Flags for --optimizer distro:"`
}

// ownFlags lists, for each optimizer, the flags that apply only to it.
var ownFlags = map[string][]string{
	"adamw":  {"beta-1", "beta-2", "eps"},
	"distro": {"compression-decay", "compression-topk", "compression-chunk", "quantize-1bit"},
}

// checkFlags rejects infinite values and values that are not numbers.
func (o soloOptimizer) checkFlags() error {
	for _, given := range []struct {
		flag  string
		value float64
	}{{"--lr", o.LR}, {"--final-lr", o.FinalLR}, {"--weight-decay", o.WeightDecay}, {"--clip-grad-norm", o.ClipGradNorm}} {
		if math.IsNaN(given.value) || math.IsInf(given.value, 0) {
			return usageError{fmt.Errorf("%s is %v: want a number", given.flag, given.value)}
		}
	}
	return nil
}

// idle returns the flags of a command line that belong to the other optimizer, or to another schedule.
func (o soloOptimizer) idle(line *kong.Context) (all []idleFlag) {
	given := func(flags []string, why string) {
		for _, at := range line.Path {
			if at.Flag != nil && slices.Contains(flags, at.Flag.Name) {
				all = append(all, idleFlag{true, "--" + at.Flag.Name, why})
			}
		}
	}
	for other, flags := range ownFlags {
		if other != o.Optimizer {
			given(flags, fmt.Sprintf("it applies to --optimizer %s, not %s", other, o.Optimizer))
		}
	}
	if o.LRSchedule != wsd {
		given(decayFlags, fmt.Sprintf("it applies to --lr-schedule %s, not %s", wsd, o.LRSchedule))
	}
	return all
}

// defaultWarmup is the number of warmup steps, unless the training has fewer steps. It does not
// grow with the number of steps, so that a training in parts gives the same result as an
// uninterrupted training.
const defaultWarmup = 10

// warmup returns the number of warmup steps for a training with the given number of steps. usual is the
// default if the flag is not set.
func (o soloOptimizer) warmup(usual, steps uint32) uint32 {
	switch {
	case o.WarmupSteps != nil:
		return *o.WarmupSteps
	case o.LRSchedule == "constant":
		return usual
	case o.LRSchedule == wsd:
		return min(usual, steps-o.CosineDecaySteps-o.linearSteps(steps))
	}
	return min(usual, steps-1)
}

func (o soloOptimizer) optimizer() config.Optimizer {
	if o.Optimizer == "adamw" {
		return config.Optimizer{AdamW: &config.AdamW{
			Betas: [2]float64{o.Beta1, o.Beta2}, Eps: o.Eps, WeightDecay: o.WeightDecay, ClipGradNorm: o.ClipGradNorm,
		}}
	}
	return config.Optimizer{Distro: &config.Distro{
		ClipGradNorm: o.ClipGradNorm, WeightDecay: o.WeightDecay, CompressionDecay: o.CompressionDecay,
		CompressionTopK: o.CompressionTopK, CompressionChunk: o.CompressionChunk, Quantize1Bit: o.Quantize1Bit,
	}}
}

func (o soloOptimizer) schedule(warmup, steps uint32) (lr config.LRSchedule) {
	switch o.LRSchedule {
	case "constant":
		lr.Constant = &config.ConstantLR{BaseLR: o.LR, WarmupSteps: warmup}
	case "linear":
		lr.Linear = &config.LinearLR{BaseLR: o.LR, WarmupSteps: warmup, TotalSteps: steps, FinalLR: o.FinalLR}
	case "cosine":
		lr.Cosine = &config.CosineLR{BaseLR: o.LR, WarmupSteps: warmup, TotalSteps: steps, FinalLR: o.FinalLR}
	case wsd:
		lr.WarmupStableDecay = o.stableDecay(warmup, steps)
	}
	return lr
}
