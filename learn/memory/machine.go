package memory

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/base/diskspace"
)

// Machine has the resources of this machine in bytes. For memory, 0 means unknown.
type Machine struct {
	Memory uint64          // that processes can still take
	Disk   diskspace.Space // of the checkpoint folder
	Device uint64          // memory of the smallest device that computes
}

// ErrTooLarge means that something does not fit into the memory.
var ErrTooLarge = errors.New("too large for this machine")

// Fits returns an error if bytes of a kind exceed the available memory. If available is 0, it is unknown. The caller
// adds advice.
func Fits(kind string, bytes, available uint64) error {
	if available == 0 || bytes <= available {
		return nil
	}
	return fmt.Errorf("%w: %s take %s of memory, but %s are available; end other programs, raise the memory limit of the container or of ulimit, use a machine with more memory",
		ErrTooLarge, kind, diskspace.Format(bytes), diskspace.Format(available))
}

// Refusal returns an error if this machine has less than a member certainly needs. Warn uses a larger estimate, and
// only logs what is short. has.Disk includes the size of older checkpoints in the folder.
func (n Needs) Refusal(has Machine, dir string) error {
	if has.Device > 0 && n.LeastDevice > has.Device {
		return fmt.Errorf("%w: the weights, the gradient and the optimizer's state take %s of device memory, but the device has %s; choose another --device",
			ErrTooLarge, diskspace.Format(n.LeastDevice), diskspace.Format(has.Device))
	}
	if err := Fits(n.least(), n.LeastMemory, has.Memory); err != nil {
		return err
	}
	if n.Disk > 0 {
		if err := has.Disk.Check(dir, "the weights of a checkpoint", n.Model); err != nil {
			return fmt.Errorf("--checkpoint-dir: %w, choose another folder, or save no checkpoints: omit the flag, and pass --ephemeral to join", err)
		}
	}
	return nil
}

// least names the parts of LeastMemory.
func (n Needs) least() string {
	if n.Device > 0 {
		return "the weights of the run's model"
	}
	return "the weights, the gradient and the optimizer's state of the run's model"
}

// shortages lists the resources that are short. remedy lists ways to reduce the memory of a micro batch.
func (n Needs) shortages(has Machine, remedy string) []string {
	var short []string
	onHost, onDevice := remedy, ""
	if n.Device > 0 {
		onHost, onDevice = "", remedy
	}
	free, known := has.Disk.Known()
	for _, part := range []struct {
		name, remedy string
		wants, has   uint64
		known        bool
	}{
		{"memory", onHost + "end other programs, or the system may end this one", n.Memory, has.Memory, has.Memory > 0},
		{"memory of the compute device", onDevice + "choose another --device", n.Device, has.Device, has.Device > 0},
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
	if n.Device > 0 {
		attributes = append(attributes, "device_memory_at_least", diskspace.Format(n.Device))
	}
	if has.Device > 0 {
		attributes = append(attributes, "device_memory", diskspace.Format(has.Device))
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

// Total returns the memory in which gradients are computed: of the first device if there is one, otherwise of the
// machine.
func (n Needs) Total() uint64 {
	if n.Device > 0 {
		return n.Device
	}
	return n.Memory
}
