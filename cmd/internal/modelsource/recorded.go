package modelsource

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/modelarchive"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/node/keep"
)

// ErrNowhere means that no source has a model that a run recorded.
var ErrNowhere = errors.New("no source has the model")

// Recorded gets models that a run recorded, for users who do not take part in the run.
type Recorded struct {
	RunID     string
	Addr      string      // of the server; empty: the run is on a chain
	ServerKey identity.ID // of the server
	Run       [32]byte    // hash of the run on the server
	OwnDir    string      // the user's checkpoint folder of the run
	CacheDir  string      // folder for downloads of the run's models
	Hub       func(withToken bool) (*hub.Client, error)
	Logger    *slog.Logger
}

// Model returns the folder of the model of a checkpoint. It verifies the model's digest. It searches the
// user's checkpoint folder, earlier downloads, the server, and the locations that members reported. The
// error wraps ErrNowhere if none has the model.
func (r *Recorded) Model(ctx context.Context, c coordinator.Checkpoint, places []coordinator.Location) (dir string, err error) {
	if dir, err := r.onThisMachine(ctx, c); dir != "" || err != nil {
		return dir, err
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if dir, err := r.onThisMachine(ctx, c); dir != "" || err != nil { // another process may have downloaded it
		return dir, err
	}
	to := r.folder(c.Digest)
	if err := os.RemoveAll(to); err != nil {
		return "", fmt.Errorf("remove a damaged download: %w", err)
	}
	err = r.fromServer(ctx, c.Digest, to)
	if err != nil && ctx.Err() == nil {
		err = r.fromLocations(ctx, c, places, to, err)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(to))
	}
	r.forgetOthers(to)
	return to, nil
}

// onThisMachine returns the folder of a copy on this machine, or an empty string. An error means that ctx ended.
func (r *Recorded) onThisMachine(ctx context.Context, c coordinator.Checkpoint) (string, error) {
	own := keep.Folder{Dir: r.OwnDir, RunID: r.RunID}.Checkpoint(c.Step)
	for _, dir := range []string{own, r.folder(c.Digest)} {
		err := r.verify(ctx, dir, c.Digest)
		switch {
		case err == nil:
			return dir, nil
		case ctx.Err() != nil:
			return "", err
		case !errors.Is(err, fs.ErrNotExist):
			r.Logger.Warn("a copy of the model on this machine cannot be used", "dir", dir, "err", err)
		}
	}
	return "", nil
}

// lock waits until no other process changes the downloads of the run. A process that downloads a model
// removes others, and must not remove what another process is downloading.
func (r *Recorded) lock(ctx context.Context) (unlock func(), err error) {
	path := r.CacheDir + ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fmt.Errorf("create the folder for downloads: %w", err)
	}
	file, err := filelock.Open(path, 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		r.Logger.Info("waiting for a download of another process" + filelock.By(err))
		file, err = filelock.Wait(ctx, path, 0o600)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, err
	case err != nil: // such as a file system without locks
		r.Logger.Warn("cannot lock the downloads; start no other command for this run meanwhile", "err", err)
		return func() {}, nil
	}
	return func() { _ = file.Close() }, nil // the file remains for later locks
}

// Own returns the newest model in the user's checkpoint folder, and its step. It verifies the digest that
// the folder records.
func (r *Recorded) Own(ctx context.Context) (dir string, step uint32, err error) {
	folder := keep.Folder{Dir: r.OwnDir, RunID: r.RunID}
	step, found := folder.NewestBefore(math.MaxUint32)
	if !found {
		return "", 0, fmt.Errorf("%w: %s has no model of the run", ErrNowhere, r.OwnDir)
	}
	digest, err := folder.Digest(step)
	if err == nil {
		err = r.verify(ctx, folder.Checkpoint(step), digest)
	}
	return folder.Checkpoint(step), step, err
}

// folder returns the folder for a download.
func (r *Recorded) folder(digest [32]byte) string {
	return filepath.Join(r.CacheDir, fmt.Sprintf("%x", digest))
}

// verify returns an error unless a folder contains exactly the model with a digest.
func (r *Recorded) verify(ctx context.Context, dir string, wanted [32]byte) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	digest, err := checkpoint.DigestDir(ctx, dir, meter.Logged(r.Logger, "verifying the model's hash"))
	if err == nil && digest != wanted {
		err = fmt.Errorf("%w: %s has the model digest %x, want %x", checkpoint.ErrInvalid, dir, digest[:8], wanted[:8])
	}
	return err
}

// fromServer downloads the model from the run's server.
func (r *Recorded) fromServer(ctx context.Context, digest [32]byte, to string) error {
	if r.Addr == "" {
		return fmt.Errorf("%w: the run is on a chain", tcp.ErrNoModel)
	}
	key, err := identity.Generate(rand.Reader) // the server gives the model to any key
	if err != nil {
		return err
	}
	o := tcp.Options{Addr: r.Addr, RunID: r.RunID, Run: r.Run, Key: key, ServerKey: r.ServerKey}
	if err := unpackFrom(ctx, o, digest, to, r.Logger); err != nil {
		return err
	}
	return r.verify(ctx, to, digest)
}

// fromLocations downloads the model from a location that a member reported, or from the repository that the
// run began with. before is the error of the server.
func (r *Recorded) fromLocations(ctx context.Context, c coordinator.Checkpoint, places []coordinator.Location, to string, before error) error {
	why := fmt.Errorf("%w: the server: %w", ErrNowhere, before)
	// The digest instead of a key: the same folder after a killed process, whose files it removes.
	source, err := New(Options{RunID: r.RunID, Member: identity.ID(c.Digest), SharedMiB: modelarchive.MaxSize >> 20, Hub: r.Hub, Logger: r.Logger})
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // a failure leaves files in the user's cache
	if c.Origin == coordinator.CheckpointHub {
		places = append(places[:len(places):len(places)], coordinator.Location{})
	}
	for _, at := range places {
		snapshot, err := source.Archive(ctx, c, at)
		if err == nil && snapshot.Manifest().Digest() != c.Digest {
			err = fmt.Errorf("%w: another model", checkpoint.ErrInvalid)
		}
		if err == nil {
			return checkpoint.WriteDir(to, snapshot)
		}
		if ctx.Err() != nil {
			return err
		}
		if at == (coordinator.Location{}) {
			at = coordinator.Location{Kind: c.Origin, Repo: c.Repo, Revision: c.Revision}
		}
		why = fmt.Errorf("%w; %s: %w", why, at, err)
	}
	if len(places) == 0 {
		why = fmt.Errorf("%w; no member reported an upload", why)
	}
	return why
}

// forgetOthers removes downloads of other models of the run, which later commands do not need.
func (r *Recorded) forgetOthers(dir string) {
	entries, _ := os.ReadDir(filepath.Dir(dir)) // old files cost only space
	for _, entry := range entries {
		if entry.Name() != filepath.Base(dir) {
			_ = os.RemoveAll(filepath.Join(filepath.Dir(dir), entry.Name()))
		}
	}
}

// unpackFrom downloads a model from a server into a folder.
func unpackFrom(ctx context.Context, o tcp.Options, digest [32]byte, dir string, logger *slog.Logger) error {
	err := os.MkdirAll(filepath.Dir(dir), 0o777)
	if err == nil {
		err = checkpoint.RemoveUnfinishedOf(dir)
	}
	if err != nil {
		return fmt.Errorf("create the model folder: %w", err)
	}
	progress := meter.Logged(logger, "downloading the model from the run's server")
	content, write := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := tcp.ReadModel(ctx, o, digest, modelarchive.MaxSize, write, func(done, all uint64) { progress(int64(done), int64(all)) })
		_ = write.CloseWithError(err) // a nil error ends the content with io.EOF
		got <- err
	}()
	err = modelarchive.Unpack(content, dir)
	_ = content.CloseWithError(io.ErrClosedPipe) // ends the transfer after a rejection
	if failed := <-got; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}
