package client

import (
	"errors"
	"sync"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// uploadReports holds the newest upload that the run does not know of yet.
type uploadReports struct {
	mu     sync.Mutex
	newest *coordinator.ReportUpload
}

// Uploaded takes note that a checkpoint which was saved here lies at a place where others
// can get it. The run is told as soon as this client has a place in it. It may be called
// from any goroutine, also when the client has ended; nobody is told then.
func (n *Node) Uploaded(f checkpoint.Facts, at coordinator.Place) {
	report := coordinator.ReportUpload{Step: f.Step, Place: at}
	if f.RunID != n.RunID || !parseDigest(&report.Digest, f.Digest) {
		return // an upload of another run that was taken up
	}
	n.uploads.mu.Lock()
	defer n.uploads.mu.Unlock()
	n.uploads.newest = &report
}

// reportUpload tells the run where the newest uploaded checkpoint lies.
func (n *Node) reportUpload() {
	n.uploads.mu.Lock()
	defer n.uploads.mu.Unlock()
	report := n.uploads.newest
	if report == nil {
		return
	}
	err := n.state.CheckUpload(coordinator.ClientID(n.id), *report)
	switch {
	case err == nil:
	case errors.Is(err, coordinator.ErrNotMember), errors.Is(err, coordinator.ErrFull):
		return // later
	case errors.Is(err, coordinator.ErrUnrecorded) && n.state.Model.Checkpoint.Step < report.Step:
		return // it may be recorded yet
	default: // it is known, or of no use
		n.uploads.newest = nil
		if !errors.Is(err, coordinator.ErrDuplicate) {
			n.log.Info("the upload is of no use to the run", "step", report.Step, "at", report.Place, "why", err)
		}
		return
	}
	n.submit("upload", *report, *report, func() {
		n.log.Info("told the run of the upload", "step", report.Step, "at", report.Place)
		n.emit(event.Uploaded{Step: report.Step, Digest: hexOf(report.Digest), Place: report.Place.String()})
	})
}

// holdsCheckpoint reports whether this client can load the run's checkpoint by itself: its
// parts are still in memory, whatever the trainer's weights have become, or on its disk.
func (n *Node) holdsCheckpoint() bool {
	c := n.state.Model.Checkpoint
	return fromPeers(c) && n.shareOf(c.Digest) != nil || n.heldOnDisk()
}

// diskModel is what is known of the checkpoint folder.
type diskModel struct {
	of   coordinator.Checkpoint // that was looked for
	held bool
}

// heldOnDisk reports whether this client saved the run's checkpoint and can load it from
// its disk.
func (n *Node) heldOnDisk() bool {
	c := n.state.Model.Checkpoint
	if n.CheckpointDir == "" || !fromPeers(c) {
		return false
	}
	if n.onDisk.of != c {
		f, err := checkpoint.ReadFacts(n.folderOf(c.Step))
		n.onDisk = diskModel{of: c, held: err == nil && f.Digest == hexOf(c.Digest)}
	}
	return n.onDisk.held
}
