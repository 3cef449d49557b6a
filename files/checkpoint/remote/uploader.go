package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub"
	"lukechampine.com/blake3"
)

// Destination is a location that receives the checkpoints of an Uploader.
type Destination interface {
	// Upload returns the name of the version that it created.
	Upload(ctx context.Context, dir string, f checkpoint.Facts, progress Progress) (version string, err error)
	// String returns the location in a readable form. Destinations with different addresses or different
	// readers must have different strings.
	String() string
}

// stagePrefix is the prefix of folders with checkpoints that wait to be uploaded. It is followed by
// the run, the step, and Uploader.owner.
const stagePrefix = ".upload-"

const (
	retryPause     = 5 * time.Second
	maxRetryPause  = 2 * time.Minute
	progressPeriod = 10 * time.Second
	closeTimeout   = 3 * time.Second
)

// Uploader uploads checkpoints in the background, one after the other. It skips a checkpoint if a
// later one arrives before its upload has started. It repeats a failed upload until it succeeds, a
// later checkpoint replaces it, or Close gives up.
type Uploader struct {
	destination Destination
	runID       string
	owner       string // suffix of its stages, unique to this uploader
	dir         string
	logger      *slog.Logger
	notify      func(f checkpoint.Facts, version string)
	cancel      context.CancelFunc
	done        chan struct{} // closed when the goroutine has ended
	wake        chan struct{}

	mu      sync.Mutex
	waiting *job
	busy    bool // a checkpoint is being uploaded, or its upload was abandoned
	closing bool
	err     error                              // for the newest checkpoint; nil once it is uploaded
	watch   func(step uint32, done, all int64) // may be nil
}

// job is a checkpoint to upload. It is in a separate folder, which pruning does not remove.
type job struct {
	stage string
	facts checkpoint.Facts
}

// NewUploader starts an uploader of a run's checkpoints, which are in folders of dir. It continues
// uploads that an earlier process left there for the same run and destination, and ignores those for
// other runs and destinations. It calls uploaded, which may be nil, for each uploaded checkpoint, with
// the version that Destination.Upload returned, from any goroutine.
func NewUploader(destination Destination, runID, dir string, logger *slog.Logger, uploaded func(f checkpoint.Facts, version string)) *Uploader {
	ctx, cancel := context.WithCancel(context.Background())
	if uploaded == nil {
		uploaded = func(checkpoint.Facts, string) {}
	}
	u := &Uploader{
		destination: destination, runID: runID, owner: ownerOf(destination, runID), dir: dir, logger: logger, notify: uploaded,
		cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	u.offerRemaining()
	go func() {
		defer close(u.done)
		u.run(ctx)
	}()
	return u
}

// ownerOf returns the identification of a run and a destination in folder names.
func ownerOf(destination Destination, runID string) string {
	hash := blake3.Sum256(fmt.Appendf(nil, "%q %q", runID, destination.String()))
	return fmt.Sprintf("-%x", hash[:16])
}

// stage returns the folder in which the checkpoint of a step waits.
func (u *Uploader) stage(step uint32) string {
	return filepath.Join(u.dir, stagePrefix+folderName(u.runID, step)+u.owner)
}

// offerRemaining offers the newest remaining checkpoint of this uploader, and removes its older ones. It
// ignores checkpoints of other runs and destinations.
func (u *Uploader) offerRemaining() {
	entries, _ := os.ReadDir(u.dir) // a missing folder contains no checkpoints
	for _, entry := range entries {
		stage := filepath.Join(u.dir, entry.Name())
		if !strings.HasPrefix(entry.Name(), stagePrefix) || !entry.IsDir() {
			continue
		}
		if !strings.HasSuffix(entry.Name(), u.owner) {
			u.logger.Warn("ignoring an unfinished upload of another run or to another location; restart its client with the same run and location, or remove the folder", "folder", stage)
			continue
		}
		f, err := checkpoint.ReadFacts(stage)
		if err != nil {
			u.discard(stage) // it was incomplete
			continue
		}
		u.logger.Info("resuming an interrupted upload", "step", f.Step, "to", u.destination)
		u.put(job{stage, f})
	}
}

// Offer offers a checkpoint of the run that was saved to a folder. It does not block, and may be
// called from any goroutine. The folder may be removed afterwards.
func (u *Uploader) Offer(dir string, f checkpoint.Facts) {
	stage := u.stage(f.Step)
	if staged, err := checkpoint.ReadFacts(stage); err == nil && staged == f {
		return // it is waiting or being uploaded
	}
	var err error
	if f.RunID != u.runID {
		err = fmt.Errorf("%s belongs to run %q, want run %q", dir, f.RunID, u.runID)
	} else {
		err = link(dir, stage)
	}
	if err != nil {
		u.logger.Error("cannot upload a checkpoint", "dir", dir, "err", err)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.err = fmt.Errorf("upload checkpoint of step %d: %w", f.Step, err)
		return
	}
	u.put(job{stage, f})
}

// link creates a second folder with hard links to the same files, so that no data is copied or lost
// when the first one is removed. It links the facts last, because a folder with facts counts as complete.
func link(dir, stage string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	if err := os.Mkdir(stage, 0o777); err != nil {
		return err
	}
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); checkpoint.IsPart(name) && name != checkpoint.FactsFile || name == checkpoint.CardFile && entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	for _, name := range append(names, checkpoint.FactsFile) {
		if err := os.Link(filepath.Join(dir, name), filepath.Join(stage, name)); err != nil {
			return errors.Join(err, os.RemoveAll(stage))
		}
	}
	return nil
}

func (u *Uploader) put(j job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if old := u.waiting; old != nil && old.stage != j.stage {
		if old.facts.Step > j.facts.Step {
			old, j = &j, *old
		}
		u.logger.Info("skipping this checkpoint; uploading a later checkpoint instead", "step", old.facts.Step, "later", j.facts.Step)
		u.discard(old.stage)
	}
	u.waiting = &j
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *Uploader) discard(stage string) {
	if err := os.RemoveAll(stage); err != nil {
		u.logger.Warn("cannot remove the local copy of an upload", "err", err)
	}
}

// next waits for a checkpoint. ok is false if the uploader has ended.
func (u *Uploader) next(ctx context.Context) (j job, ok bool) {
	for {
		u.mu.Lock()
		waiting, closing := u.waiting, u.closing
		u.waiting, u.busy = nil, waiting != nil
		if waiting != nil {
			select { // consume the wake-up, so that the pause after a failure is not cut short
			case <-u.wake:
			default:
			}
		}
		u.mu.Unlock()
		if waiting != nil {
			return *waiting, true
		}
		if closing {
			return job{}, false
		}
		select {
		case <-ctx.Done():
			return job{}, false
		case <-u.wake:
		}
	}
}

func (u *Uploader) run(ctx context.Context) {
	for {
		j, ok := u.next(ctx)
		if !ok {
			return
		}
		err := u.upload(ctx, j)
		if err == nil || ctx.Err() == nil { // an abandoned upload is left for the next process
			u.discard(j.stage)
		}
		u.mu.Lock()
		u.err = err
		u.mu.Unlock()
	}
}

// upload repeats the upload of a checkpoint until it succeeds or becomes pointless.
func (u *Uploader) upload(ctx context.Context, j job) error {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval = retryPause, maxRetryPause
	for {
		u.logger.Info("uploading the checkpoint", "step", j.facts.Step, "to", u.destination)
		begun := time.Now()
		version, err := u.destination.Upload(ctx, j.stage, j.facts, u.progress(j.facts.Step))
		switch {
		case err == nil:
			u.logger.Info("uploaded the checkpoint", "step", j.facts.Step, "to", u.destination, "version", version, "seconds", int(time.Since(begun).Seconds()))
			u.notify(j.facts, version)
			return nil
		case errors.Is(err, errNewer):
			u.logger.Info("checkpoint not uploaded", "step", j.facts.Step, "why", err)
			return nil
		}
		err = fmt.Errorf("upload checkpoint of step %d to %s: %w", j.facts.Step, u.destination, err)
		if ctx.Err() != nil || isFinal(err) {
			u.logger.Error("upload of the checkpoint failed", "err", err)
			return err
		}
		pause := policy.NextBackOff()
		u.logger.Warn("upload failed; retrying", "in", pause.Round(time.Second), "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-u.wake: // a later checkpoint, or Close
			timer.Stop()
			if u.isSuperseded() {
				return err
			}
		case <-timer.C:
		}
	}
}

func (u *Uploader) isSuperseded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting != nil {
		select { // for next
		case u.wake <- struct{}{}:
		default:
		}
	}
	return u.waiting != nil
}

// isFinal reports whether a retry is pointless.
func isFinal(err error) bool {
	final := []error{hub.ErrUnauthorized, hub.ErrForbidden, hub.ErrGated, hub.ErrInvalidName, hub.ErrOffline, hub.ErrTooLarge, os.ErrNotExist, errOtherCheckpoint}
	return slices.ContainsFunc(final, func(target error) bool { return errors.Is(err, target) })
}

// Watch sets a function that is called after each fiftieth of an upload, from any goroutine. It
// must not block.
func (u *Uploader) Watch(report func(step uint32, done, all int64)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watch = report
}

// progress logs the progress of an upload from time to time.
func (u *Uploader) progress(step uint32) Progress {
	last := time.Now()
	report := InParts(func(done, all int64) {
		u.mu.Lock()
		watch := u.watch
		u.mu.Unlock()
		if watch != nil {
			watch(step, done, all)
		}
	})
	return func(done, all int64) {
		report(done, all)
		if time.Since(last) >= progressPeriod && all > 0 {
			last = time.Now()
			u.logger.Info("uploading", "step", step, "percent", 100*done/all, "MiB", all>>20)
		}
	}
}

// Pending reports whether an upload is running or waiting. It does not access the disk.
func (u *Uploader) Pending() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.busy || u.waiting != nil
}

// Close waits until everything is uploaded, or ctx is done. If the newest checkpoint is not
// uploaded, Close returns the reason. Remaining checkpoints stay in the folder, and the next
// uploader of the run to this destination uploads them. If a destination or a disk does not answer, Close waits
// at most closeTimeout after ctx is done.
func (u *Uploader) Close(ctx context.Context) error {
	u.mu.Lock()
	u.closing = true
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default:
	}
	select {
	case <-u.done:
	case <-ctx.Done():
		u.cancel()
		select {
		case <-u.done:
		case <-time.After(closeTimeout):
			return fmt.Errorf("the newest checkpoint was not uploaded to %s: the storage or the disk does not respond", u.destination)
		}
	}
	u.cancel()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}
