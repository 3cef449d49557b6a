// Package needs checks whether a machine has the resources for a run: memory, disk, and memory of the computing devices.
//
//	n := needs.Of(run, audited, description, step, keep)
//	err := n.Refusal(machine, dir) // if the run certainly does not fit
//	n.Warn(machine, step.Remedy(description, seqLen), logger)
package needs

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/required"
)

// Needs are the resources that a member of a run needs on its machine, in bytes. If the CPU computes, a
// micro batch uses main memory.
type Needs struct {
	required.Bytes
	Device uint64 // memory of a computing device: weights, gradient, and a micro batch
}

// Step describes how a micro batch is computed.
type Step struct {
	MicroBatch int
	Size       uint64 // of an activation, in bytes
	Recompute  bool
	Device     bool   // a device other than the CPU
	Flag       string // that sets MicroBatch; empty: --micro-batch-size
}

// logitsOnCPU and logitsOnDevice limit the logits that are computed at a time, in bytes. See
// logits_at_once in learn/torch/shim/ends.cc.
const logitsOnCPU, logitsOnDevice = 32 << 20, 256 << 20

// Working returns the minimum memory of a micro batch when its forward pass ends: saved activations,
// and logits.
func (s Step) Working(of model.Description, seqLen uint32) uint64 {
	tokens, limit, kept := uint64(s.MicroBatch)*uint64(seqLen), uint64(logitsOnCPU), of.Activations
	if s.Device {
		limit = logitsOnDevice
	}
	if s.Recompute {
		kept = of.Recomputed
	}
	row := s.Size * uint64(of.VocabSize)
	return tokens*uint64(kept)*s.Size + min(tokens*row, max(limit, 64*row))
}

// Of computes the needs of a run. keep is as in required.Of.
func Of(run config.Model, audited bool, of model.Description, s Step, keep int) Needs {
	n, working := Needs{Bytes: required.Of(run, audited, uint64(of.NumParameters), keep)}, s.Working(of, run.MaxSeqLen)
	n.Device = 2*n.Model + working
	if !s.Device {
		n.Memory += working
	}
	return n
}

// Machine has the resources of this machine in bytes. For memory, 0 means unknown.
type Machine struct {
	Memory uint64          // that processes can still take
	Disk   diskspace.Space // of the checkpoint folder
	Device uint64          // memory of the smallest device that computes
}

// Fits returns an error if bytes of a kind exceed the available memory. If available is 0, it is
// unknown. The caller adds advice.
func Fits(kind string, bytes, available uint64) error {
	if available == 0 || bytes <= available {
		return nil
	}
	return fmt.Errorf("%w: %s take %s of memory, but %s are available; end other programs, raise the memory limit of the container or of ulimit, use a machine with more memory",
		ErrTooLarge, kind, diskspace.Format(bytes), diskspace.Format(available))
}

// ErrTooLarge means that something does not fit into the memory.
var ErrTooLarge = errors.New("too large for this machine")

// Refusal returns an error if this machine has less than a member certainly needs. Warn uses a larger
// estimate, and only logs what is short. has.Disk includes the size of older
// checkpoints in the folder.
func (n Needs) Refusal(has Machine, dir string) error {
	if has.Device > 0 {
		if 2*n.Model > has.Device {
			return fmt.Errorf("%w: the weights and the gradient take %s of device memory, but the device has %s; choose another --device", ErrTooLarge, diskspace.Format(2*n.Model), diskspace.Format(has.Device))
		}
	} else if err := Fits("the weights, the gradient and the momentum of the run's model", 3*n.Model, has.Memory); err != nil {
		return err
	}
	if n.Disk > 0 {
		if err := has.Disk.Check(dir, "the weights of a checkpoint", n.Model); err != nil {
			return fmt.Errorf("--checkpoint-dir: %w, choose another folder, or save no checkpoints: omit the flag, and pass --ephemeral to join", err)
		}
	}
	return nil
}

// shortages lists the resources that are short. remedy lists ways to reduce the memory of a micro
// batch.
func (n Needs) shortages(has Machine, remedy string) []string {
	var short []string
	free, known := has.Disk.Known()
	for _, part := range []struct {
		name, remedy string
		wants, has   uint64
		known        bool
	}{
		{"memory", remedy + "end other programs, or the system may end this one", n.Memory, has.Memory, has.Memory > 0},
		{"memory of the compute device", remedy + "choose another --device", n.Device, has.Device, has.Device > 0},
		{"disk", "choose a --checkpoint-dir with more room, or a smaller --keep-steps", n.Disk, free, known},
	} {
		if part.known && part.wants > part.has {
			short = append(short, fmt.Sprintf("%s: at least %s needed, %s available; %s", part.name, diskspace.Format(part.wants), diskspace.Format(part.has), part.remedy))
		}
	}
	return short
}

// Log logs the needs of the run and the resources of this machine.
func (n Needs) Log(has Machine, logger *slog.Logger) {
	attributes := []any{"model", diskspace.Format(n.Model), "memory_at_least", diskspace.Format(n.Memory)}
	if has.Memory > 0 {
		attributes = append(attributes, "memory_available", diskspace.Format(has.Memory))
	}
	if has.Device > 0 {
		attributes = append(attributes, "device_memory_at_least", diskspace.Format(n.Device), "device_memory", diskspace.Format(has.Device))
	}
	if n.Disk > 0 {
		attributes = append(attributes, "disk", diskspace.Format(n.Disk))
		if free, known := has.Disk.Known(); known {
			attributes = append(attributes, "disk_free", diskspace.Format(free))
		}
	}
	if n.Result > 0 {
		attributes = append(attributes, "each_round_to_and_from_each_other_trainer", "about "+diskspace.Format(n.Result))
	}
	logger.Info("resources that the run needs and this machine has", attributes...)
}

// Warn logs the resources that are short. remedy lists ways to reduce the memory of a micro batch.
func (n Needs) Warn(has Machine, remedy string, logger *slog.Logger) {
	for _, short := range n.shortages(has, remedy) {
		logger.Warn("this machine may be too small for the run; trying anyway", "of", short)
	}
}

// Remedy lists the ways to compute a micro batch in less memory, with the bytes of each.
func (s Step) Remedy(of model.Description, seqLen uint32) string {
	now, text := s.Working(of, seqLen), ""
	for _, way := range []struct {
		flag string
		step Step
	}{
		{cmp.Or(s.Flag, "--micro-batch-size") + " 1", Step{MicroBatch: 1, Size: s.Size, Recompute: s.Recompute, Device: s.Device}},
		{"--recompute", Step{MicroBatch: s.MicroBatch, Size: s.Size, Recompute: true, Device: s.Device}},
		{"--compute-dtype bf16", Step{MicroBatch: s.MicroBatch, Size: 2, Recompute: s.Recompute, Device: s.Device}},
	} {
		if less := way.step.Working(of, seqLen); less < now {
			text += fmt.Sprintf("%s (a micro batch then takes %s, now %s), ", way.flag, diskspace.Format(less), diskspace.Format(now))
		}
	}
	return text
}

// LeastMemory returns the memory of the smallest of the devices; 0 if it is unknown, or if the only
// device is the CPU.
func LeastMemory(devices []torch.Device) (minimum uint64) {
	info, err := torch.Loaded()
	if err != nil {
		return 0
	}
	for _, known := range info.Devices() {
		for _, device := range devices {
			if device == known.Device && known.Memory > 0 && (minimum == 0 || known.Memory < minimum) {
				minimum = known.Memory
			}
		}
	}
	return minimum
}
