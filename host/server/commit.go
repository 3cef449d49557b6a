package server

import (
	"context"
	"errors"
	"time"

	"github.com/psyche-go/psyche/record/journal"
)

// fullRetry is the interval at which a run checks whether its full disk has space again.
const fullRetry = time.Second

// commit makes accepted actions durable. If the disk is full, the run waits for free space.
// Meanwhile it acknowledges nothing and loses nothing.
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
	h.logger.Error("no disk space for the journal; the run waits for free space", "journal", h.store.journalPath, "error", err)
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

// errStopsWhileFull ends a run whose server stops while the run waits for disk space.
var errStopsWhileFull = errors.New("the server ended while there was no disk space for the journal")
