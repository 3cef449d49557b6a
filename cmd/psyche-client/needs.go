package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/required"
)

// needs are the resources that a member of a run needs on its machine, in bytes. If the CPU computes, a
// micro batch uses main memory.
type needs struct {
	required.Bytes
	device uint64 // memory of a computing device: weights, gradient, and a micro batch
}

// step describes how a micro batch is computed.
type step struct {
	microBatch int
	size       uint64 // of an activation, in bytes
	recompute  bool
	device     bool // a device other than the CPU
}

// logitsOnCPU and logitsOnDevice limit the logits that are computed at a time, in bytes. See
// logits_at_once in learn/torch/shim/ends.cc.
const logitsOnCPU, logitsOnDevice = 32 << 20, 256 << 20

// working returns the minimum memory of a micro batch when its forward pass ends: saved activations,
// and logits.
func (s step) working(of model.Description, seqLen uint32) uint64 {
	tokens, most, kept := uint64(s.microBatch)*uint64(seqLen), uint64(logitsOnCPU), of.Activations
	if s.device {
		most = logitsOnDevice
	}
	if s.recompute {
		kept = of.Recomputed
	}
	row := s.size * uint64(of.VocabSize)
	return tokens*uint64(kept)*s.size + min(tokens*row, max(most, 64*row))
}

// needsOf computes the needs of a run. keep is as in required.Of.
func needsOf(run config.Model, audited bool, of model.Description, s step, keep int) needs {
	n, working := needs{Bytes: required.Of(run, audited, uint64(of.NumParameters), keep)}, s.working(of, run.MaxSeqLen)
	n.device = 2*n.Model + working
	if !s.device {
		n.Memory += working
	}
	return n
}

// machine has the resources of this machine in bytes. For memory, 0 means unknown.
type machine struct {
	memory uint64          // that processes can still take
	disk   diskspace.Space // of the checkpoint folder
	device uint64          // memory of the smallest device that computes
}

// fits returns an error if bytes of a kind exceed the available memory. If available is 0, it is
// unknown. The caller adds advice.
func fits(kind string, bytes, available uint64) error {
	if available == 0 || bytes <= available {
		return nil
	}
	return fmt.Errorf("%w: %s take %s of memory, but %s are available; end other programs, raise the memory limit of the container or of ulimit, use a machine with more memory",
		errTooLarge, kind, diskspace.Format(bytes), diskspace.Format(available))
}

// errTooLarge means that something does not fit into the memory.
var errTooLarge = errors.New("too large for this machine")

// refusal returns an error if this machine has less than a member certainly needs. The method shortages
// estimates larger needs, and these lead to warnings only. has.disk includes the size of older
// checkpoints in the folder.
func (n needs) refusal(has machine, dir string) error {
	if has.device > 0 {
		if 2*n.Model > has.device {
			return fmt.Errorf("%w: the weights and the gradient take %s of device memory, but the device has %s; choose another --device", errTooLarge, diskspace.Format(2*n.Model), diskspace.Format(has.device))
		}
	} else if err := fits("the weights, the gradient and the momentum of the run's model", 3*n.Model, has.memory); err != nil {
		return err
	}
	if n.Disk > 0 {
		if err := has.disk.Check(dir, "the weights of a checkpoint", n.Model); err != nil {
			return fmt.Errorf("--checkpoint-dir: %w, choose another folder, or save no checkpoints: omit the flag, and pass --ephemeral to join", err)
		}
	}
	return nil
}

// shortages lists the resources that are short. remedy lists ways to reduce the memory of a micro
// batch.
func (n needs) shortages(has machine, remedy string) []string {
	var short []string
	free, known := has.disk.Known()
	for _, part := range []struct {
		name, remedy string
		wants, has   uint64
		known        bool
	}{
		{"memory", remedy + "end other programs, or the system may end this one", n.Memory, has.memory, has.memory > 0},
		{"memory of the compute device", remedy + "choose another --device", n.device, has.device, has.device > 0},
		{"disk", "choose a --checkpoint-dir with more room, or a smaller --keep-steps", n.Disk, free, known},
	} {
		if part.known && part.wants > part.has {
			short = append(short, fmt.Sprintf("%s: at least %s needed, %s available; %s", part.name, diskspace.Format(part.wants), diskspace.Format(part.has), part.remedy))
		}
	}
	return short
}

// tell logs the needs of the run and the resources of this machine.
func (n needs) tell(has machine, logger *slog.Logger) {
	attributes := []any{"model", diskspace.Format(n.Model), "memory_at_least", diskspace.Format(n.Memory)}
	if has.memory > 0 {
		attributes = append(attributes, "memory_available", diskspace.Format(has.memory))
	}
	if has.device > 0 {
		attributes = append(attributes, "device_memory_at_least", diskspace.Format(n.device), "device_memory", diskspace.Format(has.device))
	}
	if n.Disk > 0 {
		attributes = append(attributes, "disk", diskspace.Format(n.Disk))
		if free, known := has.disk.Known(); known {
			attributes = append(attributes, "disk_free", diskspace.Format(free))
		}
	}
	if n.Result > 0 {
		attributes = append(attributes, "each_round_to_and_from_each_other_trainer", "about "+diskspace.Format(n.Result))
	}
	logger.Info("resources that the run needs and this machine has", attributes...)
}

// warn logs the resources that are short. remedy lists ways to reduce the memory of a micro batch.
func (n needs) warn(has machine, remedy string, logger *slog.Logger) {
	for _, short := range n.shortages(has, remedy) {
		logger.Warn("this machine may be too small for the run; trying anyway", "of", short)
	}
}

// configTimeout limits the wait for the model's description.
const configTimeout = 10 * time.Second

// weigh logs the needs of the run and the resources of this machine, and returns an error if the run
// certainly does not fit. Once a model may have been loaded, weigh returns no error, because that model
// already uses memory. If only members have the model, weigh cannot judge its needs, because the
// model's description is not known yet.
func (t *trainers) weigh(ctx context.Context, run config.Model, audited bool, from coordinator.Checkpoint, hosted string) error {
	first := !t.weighed
	t.weighed = true
	modelConfig, err := t.modelConfig(ctx, from, hosted)
	if err != nil {
		t.logger.Info("the run's needs are unknown until its model arrives", "reason", err)
		return nil
	}
	of, err := model.Describe(modelConfig)
	if err != nil {
		t.logger.Info("the run's needs are unknown until its model arrives", "reason", err)
		return nil
	}
	c, keep, has := t.command, -1, machine{memory: sysmemory.Available(), device: leastMemory(t.devices)}
	if c.CheckpointDir != "" {
		keep, has.disk = c.KeepSteps, diskspace.Of(c.CheckpointDir)
	}
	s := c.step(has.device > 0)
	n := needsOf(run, audited, of, s, keep)
	n.tell(has, t.logger)
	most := has
	most.memory = sysmemory.Allocatable()
	most.disk = has.disk.Plus(sizeOf(c.CheckpointDir))
	if err := n.refusal(most, c.CheckpointDir); first && err != nil {
		return err
	}
	n.warn(has, s.remedy(of, run.MaxSeqLen), t.logger)
	return nil
}

// sizeOf returns the size of the files in a folder in bytes.
func sizeOf(dir string) (bytes uint64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // skip a file of unknown size
		}
		if info, err := entry.Info(); err == nil {
			bytes += uint64(info.Size())
		}
		return nil
	})
	return bytes
}

// remedy lists the ways to compute a micro batch in less memory, with the bytes of each.
func (s step) remedy(of model.Description, seqLen uint32) string {
	now, text := s.working(of, seqLen), ""
	for _, way := range []struct {
		flag string
		step step
	}{
		{"--micro-batch-size 1", step{1, s.size, s.recompute, s.device}},
		{"--recompute", step{s.microBatch, s.size, true, s.device}},
		{"--compute-dtype bf16", step{s.microBatch, 2, s.recompute, s.device}},
	} {
		if less := way.step.working(of, seqLen); less < now {
			text += fmt.Sprintf("%s (a micro batch then takes %s, now %s), ", way.flag, diskspace.Format(less), diskspace.Format(now))
		}
	}
	return text
}

// step returns how the command computes a micro batch. For --compute-dtype auto, the type is chosen
// later; step assumes the smaller type.
func (c *trainCommand) step(device bool) step {
	s := step{microBatch: c.MicroBatchSize, size: required.Value, recompute: c.Recompute, device: device}
	if c.ComputeDtype != "f32" {
		s.size = 2
	}
	return s
}

// modelConfig returns the config.json of the run's model, from the location of the starting model.
func (t *trainers) modelConfig(ctx context.Context, from coordinator.Checkpoint, hosted string) ([]byte, error) {
	kind := from.Kind
	if from.Origin != 0 {
		kind = from.Origin
	}
	dir := cmp.Or(t.command.ModelPath, hosted)
	if dir == "" && kind == coordinator.CheckpointLocal && t.command.AllowLocalPaths {
		dir = from.Repo
	}
	switch {
	case dir != "":
		return os.ReadFile(filepath.Join(dir, checkpoint.ConfigFile))
	case kind == coordinator.CheckpointHub:
		client, err := t.command.client(t.logger, t.command.AllowPrivateRepos)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, configTimeout)
		defer cancel()
		return remote.HubRepo{Client: client, Repo: from.Repo, Revision: from.Revision}.Config(ctx)
	}
	return nil, errors.New("its members have the model")
}

// leastMemory returns the memory of the smallest of the devices; 0 if it is unknown, or if the only
// device is the CPU.
func leastMemory(devices []torch.Device) (least uint64) {
	info, err := torch.Loaded()
	if err != nil {
		return 0
	}
	for _, known := range info.Devices() {
		for _, device := range devices {
			if device == known.Device && known.Memory > 0 && (least == 0 || known.Memory < least) {
				least = known.Memory
			}
		}
	}
	return least
}
