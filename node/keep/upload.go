package keep

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// Uploads contains the newest upload that the run does not know of yet. The zero value is ready to
// use.
type Uploads struct {
	mu     sync.Mutex
	newest *coordinator.ReportUpload
}

// Add records that other members can download a checkpoint of the run from a location. It ignores a
// checkpoint of another run. It may be called from any goroutine.
func (u *Uploads) Add(runID string, f checkpoint.Facts, at coordinator.Location) {
	report := coordinator.ReportUpload{Step: f.Step, Place: at}
	if f.RunID != runID || !parseDigest(&report.Digest, f.Digest) {
		return // a continued upload of another run
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.newest = &report
}

// Next returns the upload that should be reported to the run now, if any.
func (u *Uploads) Next(s *coordinator.State, me coordinator.ClientID, log *slog.Logger) (report coordinator.ReportUpload, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.newest == nil {
		return report, false
	}
	report = *u.newest
	err := s.CheckUpload(me, report)
	switch {
	case err == nil:
		return report, true
	case errors.Is(err, coordinator.ErrNotMember), errors.Is(err, coordinator.ErrFull):
		return report, false // later
	case errors.Is(err, coordinator.ErrUnrecorded) && s.Model.Checkpoint.Step < report.Step:
		return report, false // it may still be recorded
	}
	u.newest = nil // it is known to the run, or useless
	if len(s.Earlier) > 0 && report.Step < s.Earlier[0].Step {
		log.Warn("the upload took so long that the run has forgotten the model; the uploaded model stays at its location, unreported; use epochs that last longer than a quarter of the upload, or a faster destination",
			"step", report.Step, "oldest_recorded_step", s.Earlier[0].Step, "at", report.Place)
		return report, false
	}
	if !errors.Is(err, coordinator.ErrDuplicate) {
		log.Info("not reporting the upload", "step", report.Step, "at", report.Place, "why", err)
	}
	return report, false
}
