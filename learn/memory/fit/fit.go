// Package fit compares predictions of package memory with the devices that libtorch finds.
package fit

import (
	"errors"

	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
)

// Of returns the training of a trainer with these options, in a run of several members. tokens is the length of a
// sequence.
func Of(o train.Options, of model.Description, tokens uint64) memory.Training {
	return memory.Training{
		Model: of.Memory(), Optimizer: o.Optimizer, Audited: o.Audited,
		Batch: memory.Batch{
			Sequences: o.MicroBatch, Tokens: tokens, TwoBytes: o.Compute.Compute != torch.F32, Recompute: o.Compute.Recompute,
			Devices: len(o.Devices), Data: o.Parallel.Data, Tensor: o.Parallel.Tensor,
		},
	}
}

// Smallest returns the memory of the smallest of the devices in bytes. It returns 0 if the memory is unknown, or if the
// only device is the CPU.
func Smallest(devices []torch.Device) (minimum uint64) {
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

// advised is a failed allocation with advice.
type advised struct {
	err    error
	advice string
}

func (e *advised) Error() string { return e.err.Error() + "; " + e.advice }

func (e *advised) Unwrap() error { return e.err }

// Advised reports whether Explain has added advice to an error.
func Advised(err error) bool {
	_, found := errors.AsType[*advised](err)
	return found
}

// Explain adds the prediction for a training, and the flags with which it fits, to the error of a failed allocation.
// Other errors stay unchanged. flag is the flag that sets the sequences of a micro batch; "" means --micro-batch-size.
func Explain(err error, t memory.Training, flag string, devices []torch.Device) error {
	if !train.LacksMemory(err) || Advised(err) {
		return err
	}
	return &advised{err, t.Advice(flag, Smallest(devices))}
}
