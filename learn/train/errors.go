package train

import (
	"errors"

	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

var (
	// errModel means that a snapshot does not fit the model.
	errModel = errors.New("snapshot does not fit the model")
	// errTokens means that sequences cannot be used for training.
	errTokens = errors.New("invalid tokens")
	// ErrClosed means that a model was used after Close.
	ErrClosed = errors.New("the model is closed")
	// errNotFinite means that a loss or gradient is infinite or not a number.
	errNotFinite = errors.New("loss or gradient is not finite")
	// ErrResult means that a payload is not a valid result of its batch.
	ErrResult = errors.New("invalid training result")
	// errStep means that a step was already trained or applied.
	errStep = errors.New("step is not the next one")
	// errUnsupported means that this trainer does not support a run's definition.
	errUnsupported = errors.New("not supported by this trainer")
	// ErrChanged means that the weights changed during a query, so that its partial output comes from
	// two models.
	ErrChanged = errors.New("the model was trained in the meantime")
	// errLost means that a device failed while it changed the only copy of the weights.
	errLost = errors.New("the weights on the device are lost: restart the client, which downloads the model again")
	// errTorn means that a step was interrupted halfway.
	errTorn = errors.New("the step was interrupted")
)

// LacksMemory reports whether an error is a failed allocation, of libtorch or of the optimizer's kernels.
func LacksMemory(err error) bool {
	return errors.Is(err, torch.ErrMemory) || errors.Is(err, cuda.ErrMemory)
}
