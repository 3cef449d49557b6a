package server

import (
	"context"
	"errors"
	"time"

	"github.com/psyche-go/psyche/record/journal"
)

// fullRetry is how often a run that has no room for its journal looks whether there is some.
const fullRetry = time.Second

// commit makes durable what was accepted. When there is no room for it, the run waits until
// somebody makes some: nothing is acknowledged meanwhile, and nothing is lost.
func (h *host) commit(ctx context.Context) error {
	records, err := h.core.Ready()
	for _, r := range records {
		if err == nil {
			err = h.store.append(r)
		}
	}
	if err == nil {
		err = h.store.commit()
	}
	if !errors.Is(err, journal.ErrFull) {
		return err
	}
	h.logger.Error("the run waits until there is room for its journal", "journal", h.store.journalPath, "error", err)
	var trouble error = &runError{runID: h.runID, err: err}
	h.trouble.Store(&trouble)
	timer := time.NewTimer(fullRetry)
	defer timer.Stop()
	for errors.Is(err, journal.ErrFull) {
		select {
		case <-ctx.Done():
			return errStopsWhileFull
		case <-timer.C:
		}
		err = h.store.commit()
		timer.Reset(fullRetry)
	}
	if err == nil {
		h.trouble.Store(nil)
		h.logger.Info("the disk has space for the journal again; the run continues")
	}
	return err
}

// errStopsWhileFull ends the work on a run whose server ends while it waits for room.
var errStopsWhileFull = errors.New("the server ended while there was no room for the journal")
