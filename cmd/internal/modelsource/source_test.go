package modelsource

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/event"
)

// downloadsOf watches a client's event log. The function that it returns takes the transfers since
// the previous call.
func downloadsOf(c *Source) func() []event.Transfer {
	c.Events = event.Unwritten()
	var seen []event.Transfer
	c.Events.Watch(func(e event.Event) {
		if t, ok := e.Body.(event.Transfer); ok {
			seen = append(seen, t)
		}
	})
	return func() []event.Transfer {
		taken := seen
		seen = nil
		return taken
	}
}

// checkDownload checks that the events report a download until it is complete.
func checkDownload(t *testing.T, from string, reports []event.Transfer, step uint32, files map[string][]byte) {
	t.Helper()
	total := uint64(0)
	for name, data := range files {
		if checkpoint.IsPart(name) {
			total += uint64(len(data))
		}
	}
	if len(reports) == 0 || len(reports) > 51 {
		t.Errorf("%s: %d progress reports", from, len(reports))
		return
	}
	before := uint64(0)
	for _, now := range reports {
		if now.What != event.TransferDownload || now.Step != step || now.Total != total || now.Bytes < before {
			t.Errorf("%s: %+v after %d bytes, want a download of %d bytes of step %d", from, now, before, total, step)
		}
		before = now.Bytes
	}
	if before != total {
		t.Errorf("%s: reported %d of %d bytes", from, before, total)
	}
}

// TestDownloadsAreReported checks that the event log has the progress of a model's download once, for
// each kind of archive. A model that is already on this machine is not a download.
func TestDownloadsAreReported(t *testing.T) {
	files, digest := testModel(t, truly)
	for _, at := range reportedPlaces(t, files) {
		c := reporting(t)
		taken := downloadsOf(c)
		wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: digest, Step: 3}
		for range 2 { // no files remain, so the model is downloaded again
			if _, err := c.Archive(t.Context(), wanted, at); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			checkDownload(t, "reported: "+at.String(), taken(), 3, files)
		}
		begin := coordinator.Checkpoint{Kind: at.Kind, Repo: at.Repo, Revision: at.Revision}
		for again := range 2 {
			if _, err := c.Initial(t.Context(), begin); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			if reports := taken(); again == 0 {
				checkDownload(t, "initial: "+at.String(), reports, 0, files)
			} else if len(reports) > 0 {
				t.Errorf("%s is on this machine, but was reported as %+v", at, reports)
			}
		}
	}
}

// TestDownloadsFromOwnArchivesAreReported checks that the event log reports downloads from the
// archives that --hub-repo and --gcs-bucket name.
func TestDownloadsFromOwnArchivesAreReported(t *testing.T) {
	files, digest := testModel(t, truly)
	under := make(map[string][]byte, len(files))
	for name, data := range files {
		under[name], under["run-step3/"+name] = data, data
	}
	reportedPlaces(t, under)
	wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: digest, Step: 3}
	for _, own := range []Options{{Repo: "org/name"}, {Bucket: "bucket", Prefix: "here"}} {
		c := reporting(t)
		c.Repo, c.Bucket, c.Prefix = own.Repo, own.Bucket, own.Prefix
		taken := downloadsOf(c)
		if _, err := c.Archive(t.Context(), wanted, coordinator.Location{}); err != nil {
			t.Fatalf("%s: %v", own.Repo+own.Bucket, err)
		}
		checkDownload(t, own.Repo+own.Bucket, taken(), 3, files)
	}
}
