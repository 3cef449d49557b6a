package required

import (
	"math/bits"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/config"
)

const (
	// Value is the size of a parameter, a gradient and a momentum in bytes.
	Value = 4

	// MaxCopied is the maximum size in bytes of weights of which members keep additional copies in
	// memory: to continue before a round is decided, to serve them to others, and until they are on
	// the disk.
	MaxCopied = 1 << 30

	// Kept is the default number of checkpoints that a member keeps.
	Kept = 3
)

// Bytes is the estimate of the bytes that a member needs, as far as the run's definition determines
// it.
type Bytes struct {
	Model  uint64 `json:"model"`  // weights, as sent and stored
	Memory uint64 `json:"memory"` // weights, gradient, optimizer state and, unless it is on the disk, a copy of the model for others, without the memory of a micro batch
	Disk   uint64 `json:"disk"`   // kept checkpoints, one checkpoint being written, and the optimizer state
	Result uint64 `json:"result"` // approximate size of a member's result; 0: not known
}

// Of returns the estimate for a model with a number of parameters, in a run with or without audits.
// keep is the number of checkpoints to keep. 0 means all, of which Of counts one; −1 means that
// none is saved.
func Of(run config.Model, audited bool, parameters uint64, keep int) Bytes {
	weights := Value * parameters
	b := Bytes{Model: weights, Memory: 3 * weights} // weights, gradient, momentum
	if weights <= MaxCopied || keep < 0 {
		b.Memory += weights // the newest model that others can ask for; of a large one the disk has it
	}
	if audited {
		b.Memory += weights // momentum, or what was not sent, before the newest result
	}
	if l := run.Optimizer.LocalSteps; l != nil {
		b.Memory += 3 * weights // a copy of the weights, two running means and what was not sent, in place of a momentum
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

// resultSize is about what a result has, in bytes: coefficients of whole chunks, each an index and a value or a sign.
// Tensors whose sides chunks do not divide have somewhat more.
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
