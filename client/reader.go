package client

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/fetch"
	"github.com/psyche-go/psyche/data"
)

// reader reads the tokens of the batches that this client trains, or may train next.
type reader struct {
	tasks   *env.Tasks
	data    env.DataProvider
	log     *slog.Logger
	fail    func(error) // is told of data that no attempt will get
	batches map[assign.BatchID]*reading
}

// reading is one batch on its way here.
type reading struct {
	tokens  *data.Batch // nil: not read yet
	loading bool
	at      time.Time // not before
	tries   int
}

// read returns the tokens of a batch, or nil while they are on their way; each attempt has so
// much time. It is tried for as long as it is asked for: attempts that failed before the round
// had begun must not cost the batch.
func (r *reader) read(batch assign.BatchID, limit time.Duration) *data.Batch {
	this := r.batches[batch]
	if this == nil {
		this = &reading{}
		r.batches[batch] = this
	}
	if this.tokens == nil && !this.loading && !r.tasks.Now().Before(this.at) {
		this.loading = true
		r.load(this, batch, limit)
	}
	return this.tokens
}

func (r *reader) load(this *reading, batch assign.BatchID, limit time.Duration) {
	r.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := r.tasks.WithTimeout(ctx, limit)
		defer cancel()
		tokens, err := r.data.Batch(ctx, batch)
		if err == nil && uint64(len(tokens.Sequences)) != batch.Len() {
			err = fmt.Errorf("got %d sequences of %d", len(tokens.Sequences), batch.Len())
		}
		return func() {
			this.loading = false
			switch {
			case err == nil:
				this.tokens = &tokens
			case r.batches[batch] != this: // nobody wants it any more
			case data.IsPermanent(err):
				r.fail(fmt.Errorf("read training data: %w", err))
			default:
				this.tries++
				this.at = r.tasks.Now().Add(fetch.Backoff(this.tries))
				r.log.Error("read training data", "batch", batch, "attempt", this.tries, "err", err)
			}
		}
	})
}

// forget gives up what was read of other batches.
func (r *reader) forget(keep func(assign.BatchID) bool) {
	for batch := range r.batches {
		if !keep(batch) {
			delete(r.batches, batch)
		}
	}
}
