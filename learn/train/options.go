package train

import (
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// Options are the settings of a trainer.
type Options struct {
	Model      checkpoint.Snapshot // config.json and the tensors that it requires; F32, BF16 or F16
	Optimizer  config.Optimizer
	LRSchedule config.LRSchedule
	Compute    model.Options // element type and memory of the gradient's computation
	MicroBatch int           // sequences in one pass through the model, at least 1
	// Devices compute the gradient, each with a copy of the model in the CPU's memory; none: the
	// CPU itself. If the CPU is in the list, it also has a copy.
	Devices   []torch.Device
	Threads   int         // of libtorch, if it is not yet loaded, and of the optimizer; 0: torch's default
	Parallel  Parallelism // engines that compute the gradient; the zero value means one
	RunID     string
	TrainerID [32]byte     // ed25519 public key, part of every result
	Logger    *slog.Logger // nil: silent

	// Audited makes results commit to the momentum, so that Open can open parts of it, and makes
	// Verify refuse results that do not. All members of a run must use the same value.
	Audited bool
	// OnlyF32 makes Verify refuse results whose gradient was computed in bf16. All members of a run
	// must use the same value.
	OnlyF32 bool

	// Timed is called after each part of training and applying that has a Timing, from the
	// goroutine of Train or Apply. May be nil.
	Timed func(Timing)

	// Trained is called after each step of training with statistics of its gradient, from the
	// goroutine of Train. May be nil. Every StatsEvery steps, if StatsEvery is not 0, these include
	// statistics of single tensors.
	Trained    func(Gradient)
	StatsEvery uint32

	// Verified is called with each result that Verify finds valid, from its goroutine. May be nil.
	Verified func(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte)

	// Replaced in tests; nil: the device's.
	gpus    func(ordinal int) (*cuda.Device, error)
	kernels func(layouts []distro.Layout, topK int) (kernels, error)
}

// Parallelism is the number of engines that compute a gradient, each with its own threads.
type Parallelism struct {
	Data   int // number of engines that share the micro-batches of a batch; 0 means 1
	Tensor int // number of engines that compute each layer of one micro-batch together; 0 means 1
}

func (p Parallelism) engines() int { return max(p.Data, 1) * max(p.Tensor, 1) }

// check refuses invalid values.
func (p Parallelism) check() error {
	if p.Data < 0 || p.Tensor < 0 || p.engines() > maxEngines || max(p.Data, p.Tensor) > maxEngines {
		return fmt.Errorf("%w: data parallelism %d, tensor parallelism %d, want at least 1 each and %d together at most",
			errUnsupported, p.Data, p.Tensor, maxEngines)
	}
	return nil
}

const maxEngines = 256
