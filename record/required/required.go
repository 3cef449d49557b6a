package required

import (
	"math/bits"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/config"
)

const (
	// Value is the size of a parameter, a gradient and a momentum in bytes.
	Value = 4

	// MaxCopied bounds the weights of which members keep copies beside those that they train, in bytes: to go on before a
	// round is decided, to hand them out, and until they are on the disk.
	MaxCopied = 1 << 30

	// Kept is how many checkpoints a member keeps if it says nothing else.
	Kept = 3
)

// Bytes is what taking part takes, in bytes, as far as the definition of a run says it.
type Bytes struct {
	Model  uint64 `json:"model"`  // the weights, as they are sent and stored
	Memory uint64 `json:"memory"` // weights, gradient, what the optimizer keeps and, unless it is on the disk, a model for others, without what a micro batch takes
	Disk   uint64 `json:"disk"`   // checkpoints that are kept, one that is written, and the optimizer's state
	Result uint64 `json:"result"` // of a member in a round, about; 0: not known
}

// Of works it out for a model of so many parameters, in a run with audits or without. keep is how many checkpoints stay; 0: all,
// of which one is counted; −1: none is saved.
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
