package required

import (
	"math/bits"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/config"
)

const (
	// Value is the size of a parameter, a gradient and a momentum in bytes.
	Value = 4

	// MaxCopied is the largest size of weights, in bytes, for which members keep additional copies
	// in memory: to continue before a round is decided, to serve them to other members, and until
	// they are on the disk.
	MaxCopied = 1 << 30

	// Kept is the default number of checkpoints that a member keeps.
	Kept = 3
)

// Bytes is the estimate of the bytes that a member needs, as far as the run's definition determines
// it.
type Bytes struct {
	Model  uint64 `json:"model"`  // weights, as sent and stored
	Memory uint64 `json:"memory"` // weights, gradient, optimizer state, and a copy of the model for other members unless that copy is on disk; excludes the memory of a micro batch
	Disk   uint64 `json:"disk"`   // kept checkpoints, one checkpoint being written, and the optimizer state
	Result uint64 `json:"result"` // approximate size of a member's result; 0: not known
}

// Of returns the estimate for a model with a number of parameters, in a run with or without audits.
// keep is the number of checkpoints to keep. 0 means that all are kept, and Of counts one; −1 means
// that none is saved.
func Of(run config.Model, audited bool, parameters uint64, keep int) Bytes {
	weights := Value * parameters
	b := Bytes{Model: weights, Memory: 3 * weights} // weights, gradient, momentum
	if weights <= MaxCopied || keep < 0 {
		b.Memory += weights // the newest model, for other members; a large model is on disk
	}
	if audited {
		b.Memory += weights // momentum or unsent values before the newest result
	}
	if l := run.Optimizer.LocalSteps; l != nil {
		b.Memory += 3 * weights // a copy of the weights, two moving averages and the unsent values, but no momentum
		if l.OuterMomentum > 0 {
			b.Memory += weights
		}
	}
	if d := run.Optimizer.Distro; d != nil {
		if d.Lag() == 1 && weights <= MaxCopied {
			b.Memory += weights
		}
		b.Result = resultSize(*d, parameters)
	}
	if keep >= 0 {
		b.Disk = uint64(max(keep, 1)+1)*weights + weights
	}
	return b
}

// resultSize returns the approximate size of a result in bytes. A result contains coefficients of
// whole chunks, each as an index and a value or a sign. It is slightly larger if the chunk size
// does not divide the sides of a tensor.
func resultSize(d config.Distro, parameters uint64) uint64 {
	chunk := uint64(d.CompressionChunk) * uint64(d.CompressionChunk)
	if chunk == 0 {
		return 0
	}
	value := uint64(8 * Value)
	if d.Quantize1Bit {
		value = 1
	}
	coefficients := (parameters + chunk - 1) / chunk * min(uint64(d.CompressionTopK), chunk)
	return codec.HeaderSize + (coefficients*(uint64(bits.Len64(chunk-1))+value)+7)/8
}
