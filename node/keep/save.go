package keep

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/event"
)

// Pauses between two attempts to save a checkpoint.
const (
	firstSavePause = 2 * time.Second
	maxSavePause   = time.Minute
	lastSavePause  = 5 * time.Second // in a finished run
	fullDiskPause  = time.Minute     // between two errors about a full disk
)

// attempt contains the data for saving a checkpoint, and for retrying.
type attempt struct {
	model    *Model
	epoch    uint32
	facts    checkpoint.Facts
	known    bool
	recorded bool   // the run recorded it
	spare    uint32 // step of the newest recorded model in the folder, which stays
	card     checkpoint.Card

	pause time.Duration // after a failure
	next  time.Time
}

// save writes the model to the folder, concurrently with the loop. It forgets the last failed
// attempt, because that checkpoint is older.
func (k *Saver) save(a *attempt) {
	report := event.Checkpoint{Epoch: a.epoch, Step: a.model.Step, Digest: hex.EncodeToString(a.model.Digest[:])}
	k.failed = nil
	if k.Folder.Dir == "" {
		k.Emit(report)
		return
	}
	k.writing = append(k.writing, a.model)
	report.Dir = k.Folder.Checkpoint(a.model.Step)
	k.Tasks.Spawn(func(context.Context) func() {
		var pruneErr error
		older := "no checkpoint of this run"
		err := k.Tasks.AtDisk(func() error {
			err := k.write(a, report.Dir)
			if err == nil && k.Keep > 0 {
				pruneErr = pruneCheckpoints(k.Folder.Dir, checkpointPrefix(k.Folder.RunID), k.Keep, max(a.model.Step, a.spare), a.spare)
			}
			if err != nil {
				if step, found := k.Folder.NewestBefore(a.model.Step); found {
					older = fmt.Sprintf("step %d", step)
				}
			}
			return err
		})
		return func() {
			k.wrote(a.model)
			k.err = err
			if pruneErr != nil {
				k.Log.Warn("cannot remove old checkpoints", "err", pruneErr)
			}
			if err == nil {
				if a.pause > 0 {
					k.Log.Info("saved the checkpoint after earlier failures", "dir", report.Dir)
				}
				k.newest = max(k.newest, a.model.Step)
				if k.InPlace != nil {
					k.InPlace(a.model.Digest, report.Dir)
				}
			} else {
				k.saveFailed(a, report.Dir, older, err)
				report.Dir = ""
			}
			k.Emit(report)
		}
	})
}

// saveFailed logs the problem, and retries later unless a newer checkpoint replaces this one.
func (k *Saver) saveFailed(a *attempt, dir, older string, err error) {
	a.pause = min(max(2*a.pause, firstSavePause), maxSavePause)
	a.next = k.Tasks.Now().Add(a.pause)
	level := slog.LevelError
	if diskFull(err) {
		if now := k.Tasks.Now(); now.Before(k.quiet) {
			level = slog.LevelDebug
		} else {
			k.quiet = now.Add(fullDiskPause)
		}
		err = withoutPaths(err)
	}
	k.Log.Log(context.Background(), level, "checkpoint not saved; training continues, but a restart would begin from an older one", "dir", dir, "newest_saved", older, "retry_in", a.pause, "err", err)
	if k.unsaved == nil && len(k.writing) == 0 && !errors.Is(err, errOtherCheckpoint) {
		k.failed = a
	}
}

// withoutPaths removes the names of temporary files from an error about a full disk.
func withoutPaths(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// tryAgain retries saving the newest checkpoint that could not be saved, when it is due.
func (k *Saver) tryAgain() {
	if a := k.failed; a != nil && len(k.writing) == 0 && !k.Tasks.Now().Before(a.next) {
		k.save(a)
	}
}

// Failed reports whether the newest checkpoint could not be saved but may be tried again, for example
// because the disk is full.
func (k *Saver) Failed() bool { return k.failed != nil }

// Hasten makes the next attempt to save the checkpoint that could not be saved come within
// lastSavePause.
func (k *Saver) Hasten() {
	if k.failed == nil {
		return
	}
	if soon := k.Tasks.Now().Add(lastSavePause); soon.Before(k.failed.next) {
		k.failed.next = soon
	}
}

// SaveNow saves the newest checkpoint that could not be saved before. It is the last action of a
// client.
func (k *Saver) SaveNow() {
	a := k.failed
	if a == nil || len(k.writing) > 0 {
		return
	}
	dir := k.Folder.Checkpoint(a.model.Step)
	if err := k.write(a, dir); err != nil {
		k.Log.Error("the checkpoint is not saved", "dir", dir, "err", err)
		return
	}
	k.failed, k.err = nil, nil
	k.Log.Info("saved the checkpoint after earlier failures", "dir", dir)
}

// write writes the checkpoint to its folder. If the disk is full, it removes less important data:
// shared parts, intermediate checkpoints before a recorded one, optimizers of earlier steps, older
// checkpoints.
func (k *Saver) write(a *attempt, dir string) error {
	parent, prefix := k.Folder.Dir, checkpointPrefix(k.Folder.RunID)
	removeUnfinished(parent, prefix, k.Log)
	var beside []checkpoint.Extra
	if a.known {
		beside = append(beside, a.facts.Extra())
	}
	put := func() error {
		if a.model.Stored {
			return k.Folder.place(a.model.Step, a.model.Digest)
		}
		return k.put(dir, a.model.Snapshot, beside...)
	}
	promoted, old := k.Folder.promote(a.model.Step, a.model.Digest), a.model.Step
	if a.model.Stored {
		old-- // keep the pending folder of this step, which contains the model
	}
	k.clean(old)
	var err error
	if !promoted {
		err = put()
	}
	if errors.Is(err, errOtherCheckpoint) && a.recorded && k.Folder.names(dir, a.model.Step) {
		if failed := putAside(dir); failed != nil {
			return errors.Join(err, failed)
		}
		k.Log.Warn("the folder had a different model of this step, because the host lost steps, or because another run with the same name used the folder; moved that model", "dir", dir+forgottenSuffix)
		err = put()
	}
	dropIntermediates := func() error { // intermediate checkpoints up to this step are no longer needed
		return k.Folder.DropIntermediates(func(step uint32) bool { return step > a.model.Step })
	}
	for _, give := range []func() bool{
		func() bool { return k.MakeRoom != nil && k.MakeRoom() > 0 },
		func() bool { return a.recorded && dropIntermediates() == nil },
		func() bool { return k.Folder.keepOptimizers(1, a.model.Step) == nil },
		func() bool {
			return k.Keep > 1 && pruneCheckpoints(parent, prefix, k.Keep-1, max(a.model.Step, a.spare), a.spare) == nil
		},
		func() bool {
			return k.Keep > 0 && a.recorded && pruneCheckpoints(parent, prefix, 1, max(a.model.Step, a.spare), a.spare) == nil
		},
	} {
		if !diskFull(err) {
			break
		}
		if give() {
			if a.pause == 0 { // otherwise it was logged
				k.Log.Warn("the disk is full; removing less important files to save the checkpoint", "dir", dir)
			}
			err = put()
		}
	}
	if err == nil && a.recorded {
		if failed := dropIntermediates(); failed != nil {
			k.Log.Warn("cannot remove old intermediate checkpoints", "err", failed)
		}
	}
	if err == nil && a.known && k.Card != nil && (a.card.Counted.Rounds > 0 || !hasCard(dir)) {
		if failed := checkpoint.WriteCard(dir, a.card); failed != nil {
			k.Log.Warn("cannot write the model card of a checkpoint", "dir", dir, "err", failed)
		}
	}
	if err == nil && a.known && k.Saved != nil {
		k.Saved(dir, a.facts)
	}
	return err
}

// hasCard reports whether a folder has a model card. A client that comes after the end of the run saw no
// round, so its card would say less than the card of an earlier process.
func hasCard(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, checkpoint.CardFile))
	return err == nil
}

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
