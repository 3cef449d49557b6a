package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/modelarchive"
	"github.com/psyche-go/psyche/host/tcp"
)

// hosted downloads the initial model of a run from the run's server, once. The member need not trust
// the server more for this: the server chooses the model in any case. If it gives members different
// models, they notice that their replicas differ.
type hosted struct {
	host   *hostFlags
	runID  string
	run    func() [32]byte    // hash of the run
	key    func() identity.ID // of the connected server
	logger *slog.Logger

	mu  sync.Mutex
	dir string // folder of the model; empty: not downloaded yet
}

// model returns the folder of the model, which remains in the user's cache for later starts.
func (h *hosted) model(ctx context.Context) (string, error) {
	if h == nil {
		return "", tcp.ErrNoModel
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir != "" {
		return h.dir, nil
	}
	if h.host.Given() {
		return "", fmt.Errorf("%w: the run is on a chain", tcp.ErrNoModel)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the model: %w", err)
	}
	dir := filepath.Join(cache, "psyche", "models", fmt.Sprintf("%x", h.run()))
	if _, err := checkpoint.CheckDir(dir); err != nil {
		if err := h.fetch(ctx, dir); err != nil {
			return "", err
		}
	}
	h.logger.Info("the run's initial model is on this machine", "from", "the run's server", "dir", dir)
	h.dir = dir
	return dir, nil
}

// fetch downloads the model into a folder.
func (h *hosted) fetch(ctx context.Context, dir string) error {
	key, err := identity.Generate(rand.Reader) // the server gives the model to any key
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(dir), 0o777)
	if err == nil {
		err = checkpoint.RemoveUnfinishedOf(dir)
	}
	if err != nil {
		return fmt.Errorf("create the model folder: %w", err)
	}
	progress := meter.Logged(h.logger, "downloading the model from the run's server")
	content, write := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := tcp.ReadModel(ctx, tcp.Options{Addr: h.host.ServerAddr, RunID: h.runID, Run: h.run(), Key: key, ServerKey: h.key()},
			modelarchive.MaxSize, write, func(done, all uint64) {
				progress(int64(done), int64(all))
			})
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

// initial returns the model for archives.
func (h *hosted) initial(ctx context.Context) (checkpoint.Snapshot, error) {
	dir, err := h.model(ctx)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return readLogged(h.logger, dir)
}
