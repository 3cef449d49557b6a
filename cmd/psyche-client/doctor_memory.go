package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// memoryFlags describe a training whose memory the doctor predicts.
type memoryFlags struct {
	Model           string `type:"path" placeholder:"PATH" help:"Model folder or config.json: also print the memory that training this model needs. The other flags of this group describe the training."`
	computeFlags    `embed:""`
	DataParallelism int    `default:"1" help:"Number of CUDA devices, or of thread groups on the CPU, that share the micro-batches."`
	MicroBatchSize  int    `default:"1" help:"Sequences in one pass through the model."`
	SeqLen          int    `default:"2048" help:"Tokens per sequence; at most the model's maximum."`
	Optimizer       string `default:"distro" enum:"distro,local-adamw,local-muon,adamw" help:"Optimizer: ${enum}. adamw is for solo only."`
	Audited         bool   `help:"The run has audits."`
	ApplyLag        uint8  `default:"1" help:"The run's apply_lag."`
}

// optimizer returns the parts of a run's optimizer that determine its memory.
func (f memoryFlags) optimizer() config.Optimizer {
	switch f.Optimizer {
	case "adamw":
		return config.Optimizer{AdamW: &config.AdamW{}}
	case "local-adamw":
		return config.Optimizer{LocalSteps: &config.LocalSteps{}}
	case "local-muon":
		return config.Optimizer{LocalSteps: &config.LocalSteps{InnerOptimizer: config.Muon}}
	}
	return config.Optimizer{Distro: &config.Distro{ApplyLag: f.ApplyLag}}
}

// describe reads the model's description.
func (f memoryFlags) describe() (model.Description, error) {
	file := f.Model
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, checkpoint.ConfigFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return model.Description{}, err
	}
	of, err := model.Describe(text)
	if err != nil {
		return of, fmt.Errorf("%s: %w", file, err)
	}
	return of, nil
}

// training returns the training that the flags describe, on a number of devices.
func (f memoryFlags) training(of model.Description, devices int) memory.Training {
	return memory.Training{
		Model: of.Memory(), Optimizer: f.optimizer(), Audited: f.Audited, Alone: f.Optimizer == "adamw", Keep: memory.Kept,
		Batch: memory.Batch{
			Sequences: f.MicroBatchSize, Tokens: uint64(min(f.SeqLen, of.MaxTokens)), TwoBytes: f.twoBytes(), Recompute: f.Recompute,
			Devices: devices, Data: f.DataParallelism,
		},
	}
}

// predict prints the memory that the training needs, in total and by part. Without --model it prints nothing.
func (f memoryFlags) predict(row func(name, format string, args ...any)) error {
	if f.Model == "" {
		return nil
	}
	of, err := f.describe()
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	var devices []torch.Device
	if _, err := torch.Loaded(); err == nil {
		if devices, err = f.devices(f.DataParallelism); err != nil {
			return err
		}
	}
	describeMemory(row, f.training(of, len(devices)), devices, memory.Machine{Memory: sysmemory.Allocatable(), Device: fit.Smallest(devices)})
	return nil
}

// describeMemory prints the prediction for a training on devices, or on the CPU.
func describeMemory(row func(name, format string, args ...any), of memory.Training, devices []torch.Device, has memory.Machine) {
	n := of.Needs()
	row("training", "%d parameters", of.Model.Parameters)
	row("  memory", "%s", share(n.Memory, has.Memory))
	for i, device := range devices {
		needs := n.Device
		if i > 0 {
			needs = n.Further
		}
		row("  "+device.String(), "%s", share(needs, has.Device))
	}
	for _, part := range of.Parts() {
		switch {
		case part.Device > 0 && part.Host > 0:
			row("    "+part.Name, "%s on the device, %s in memory", diskspace.Format(part.Device), diskspace.Format(part.Host))
		case part.Device > 0:
			row("    "+part.Name, "%s on the device", diskspace.Format(part.Device))
		default:
			row("    "+part.Name, "%s in memory", diskspace.Format(part.Host))
		}
	}
	if less := of.Remedy(""); less != "" && n.Total() > cmp.Or(has.Device, has.Memory) {
		row("  less", "%s", strings.TrimSuffix(less, ", "))
	}
}

// share compares needed bytes with the available ones. 0 available bytes are unknown.
func share(needs, has uint64) string {
	if has == 0 {
		return "needs at least " + diskspace.Format(needs)
	}
	text := fmt.Sprintf("needs at least %s of %s", diskspace.Format(needs), diskspace.Format(has))
	if needs > has {
		text += ": too little"
	}
	return text
}
