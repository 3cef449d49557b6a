package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/wire"
)

// checkFlags validates the command line.
func (c *trainCommand) checkFlags(ctx context.Context) error {
	if err := c.checkHost(ctx); err != nil {
		return err
	}
	switch {
	case c.MicroBatchSize < 1:
		return fmt.Errorf("--micro-batch-size is %d: want at least 1", c.MicroBatchSize)
	case c.ServerTimeout <= 0:
		return fmt.Errorf("--server-timeout is %v: want more than 0", c.ServerTimeout)
	case c.FinalWait < 0:
		return fmt.Errorf("--final-wait is %v: give 0s to end at once", c.FinalWait)
	case !(c.DummyTrainingDelaySecs >= 0 && c.DummyTrainingDelaySecs <= maxDummyDelay):
		return fmt.Errorf("--dummy-training-delay-secs is %v: want 0 to %d", c.DummyTrainingDelaySecs, maxDummyDelay)
	case c.KeepSteps < 0:
		return fmt.Errorf("--keep-steps is %d: want 0 for all, or more", c.KeepSteps)
	}
	if err := c.check(); err != nil {
		return err
	}
	if err := checkMemberName(c.MemberName); err != nil {
		return err
	}
	if err := c.checkParallelism(); err != nil {
		return err
	}
	return c.checkUploads(c.RunID, c.CheckpointDir)
}

// checkMemberName returns an error unless a name is empty or safe to display.
func checkMemberName(name string) error {
	if name == "" {
		return nil
	}
	if err := wire.CheckName(name); err != nil {
		return fmt.Errorf("--member-name %q: %w", name, err)
	}
	return nil
}

// maxDummyDelay limits --dummy-training-delay-secs to a day.
const maxDummyDelay = 24 * 3600

// checkServerAddr returns an error for an address without a valid port, because retries would not
// help.
func checkServerAddr(ctx context.Context, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--server-addr %q: want host:port: %w", address, err)
	}
	if n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("--server-addr %q: want host:port, with a port from 1 to 65535", address), err)
	}
	return nil
}

// checkpointFlags configure which checkpoints are kept on this machine.
type checkpointFlags struct {
	CheckpointDir  string `help:"Folder for a checkpoint after each epoch." type:"path"`
	KeepSteps      int    `help:"Number of newest checkpoints to keep; 0 means all." default:"3"`
	DeleteOldSteps bool   `help:"Remove checkpoints older than the newest --keep-steps." default:"true" negatable:""`
}

// claimCheckpointDir checks whether checkpoints can be saved, and takes the folder for this process until release. It warns
// if there is no folder. The error wraps errFolderInUse if another client has the folder.
func (f checkpointFlags) claimCheckpointDir(logger *slog.Logger) (release func() error, err error) {
	release = func() error { return nil }
	if f.CheckpointDir == "" {
		logger.Warn("no checkpoint is saved here: if no member has the model, it is lost; give --checkpoint-dir")
		return release, nil
	}
	folder, err := filelock.OpenFolder(f.CheckpointDir, 0o755)
	switch {
	case err == nil:
		release = folder.Close
	case errors.Is(err, filelock.ErrHeld):
		return release, fmt.Errorf("--checkpoint-dir %s: %w; end that client, or start this one with another --checkpoint-dir and another --identity-secret-key-path, or join with --ephemeral",
			f.CheckpointDir, folderInUse{err})
	default:
		if made := os.MkdirAll(f.CheckpointDir, 0o755); made != nil {
			return release, fmt.Errorf("--checkpoint-dir: %w; choose another folder", made)
		}
		logger.Warn("the checkpoint folder cannot be locked; make sure that no other client uses it", "folder", f.CheckpointDir, "reason", err)
	}
	if err := probeFolder(f.CheckpointDir); err != nil {
		return release, errors.Join(fmt.Errorf("--checkpoint-dir: %w; choose another folder", err), release())
	}
	return release, nil
}

// probeFolder returns an error if no file can be created in a folder.
func probeFolder(dir string) error {
	file, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// checkRun checks the folders that the client will read. It does so before the client joins, because
// the other members would wait for a client that cannot train.
func (t *trainers) checkRun(ctx context.Context, definition env.Definition) error {
	run, err := config.DecodeModel(definition.Definition)
	if err != nil {
		return fmt.Errorf("read the run's definition: %w", err)
	}
	if err := run.Trainable(); err != nil {
		return fmt.Errorf("the run's optimizer: %w", err)
	}
	c := t.command
	var missing []string
	var hosted string
	if c.wantsModelPath(definition.Checkpoint) {
		if hosted, err = t.hosted.Model(ctx); err != nil {
			missing = append(missing, modelsource.Missing(definition.Checkpoint.Repo, err).Error())
		}
	}
	if c.wantsDataPath(run) {
		missing = append(missing, "the run's data: name a folder with --data-path")
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s", modelsource.ErrLocalPath, strings.Join(missing, "; "))
	}
	if !member.IsDummy(definition.Model) {
		if t.library != nil {
			return t.library
		}
		if err := c.checkModelPath(run, definition.Checkpoint, hosted); err != nil {
			return err
		}
	}
	if err := t.checkDataPath(ctx, run); err != nil || member.IsDummy(definition.Model) {
		return err
	}
	if err := c.checkHeldOut(run); err != nil {
		return err
	}
	return t.weigh(ctx, run, definition.Audited, definition.Checkpoint, hosted)
}

// checkDataPath opens the data and closes it again, if it can only come from a folder.
func (t *trainers) checkDataPath(ctx context.Context, run config.Model) error {
	remote := slices.ContainsFunc(run.DataLocations, func(l config.DataLocation) bool { return l.Folder() == "" })
	if t.command.DataPath == "" && remote {
		return nil
	}
	// The model, which may come from peers, is not known yet. Its vocabulary is checked when the
	// data is opened for reading.
	o := t.dataOptions(run, model.Description{VocabSize: 1})
	o.Logger = nil // its warnings are logged when the data is opened for reading
	provider, err := data.New(ctx, run.DataLocations, o)
	if err != nil {
		return err
	}
	return provider.Close()
}
