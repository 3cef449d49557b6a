package train

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/record/required"
)

// recomputing is the recomputation of a result, as far as it has come. Other work that needs the trainer
// interrupts it. A later call continues from there, perhaps after more results were applied.
type recomputing struct {
	x         audit.Recomputation // without the applied results while it is kept
	batch     [32]byte            // hash of its tokens: another server's tokens may differ
	reference *audit.Reference
	state     any    // progress of the examiner; nil: none
	bytes     uint64 // size of a state that can be kept between two calls; 0: it cannot be kept now
}

// isOf reports whether a recomputation is the requested one, with the same tokens.
func (r *recomputing) isOf(x audit.Recomputation, batch [32]byte) bool {
	return r.x.Step == x.Step && r.x.Trainer == x.Trainer && r.x.Weights == x.Weights && r.x.Precision == x.Precision &&
		r.x.Shaken == x.Shaken && r.batch == batch && slices.Equal(r.x.Chunks, x.Chunks)
}

// interrupted reports whether an error means that other work needs the trainer, and that the state of the
// recomputation is whole.
func interrupted(ctx context.Context, err error) bool {
	stopped := ctx.Err()
	return stopped != nil && errors.Is(err, stopped) && !errors.Is(err, errTorn)
}

// keeper keeps the newest recomputation that was interrupted. Its methods are safe for concurrent use.
type keeper struct {
	available func() uint64 // memory of this machine in bytes; 0: unknown

	mu   sync.Mutex
	kept *recomputing // nil: none
}

func newKeeper() *keeper { return &keeper{available: sysmemory.Available} }

// take returns the kept recomputation if it is the requested one, and else a new one.
func (k *keeper) take(x audit.Recomputation, batch [32]byte) *recomputing {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.kept
	if r == nil || !r.isOf(x, batch) {
		return &recomputing{x: x, batch: batch}
	}
	k.kept = nil
	r.x = x // more may have been applied since
	return r
}

// keep keeps a recomputation, in place of an earlier one, if its state can be kept.
func (k *keeper) keep(r *recomputing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.bytes > 0 {
		r.x.Applied = nil
		k.kept = r
	}
}

// drop drops the kept recomputation, if there is one and it is selected.
func (k *keeper) drop(selected func(r *recomputing) bool) (dropped bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil || !selected(k.kept) {
		return false
	}
	k.kept = nil
	return true
}

// hasRoom reports whether the memory has room for a state of a recomputation. As much again must remain for
// the gradient of the next training.
func (k *keeper) hasRoom(bytes uint64) bool {
	available := k.available()
	return available >= 2*bytes || available == 0 && bytes <= required.MaxCopied
}

// relieve drops the kept state if the memory has no room for the gradient of a training any more.
func (k *keeper) relieve() (dropped bool) {
	return k.drop(func(r *recomputing) bool {
		available := k.available()
		return available > 0 && available < r.bytes
	})
}
