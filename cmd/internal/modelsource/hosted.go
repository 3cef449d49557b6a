package modelsource

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/host/tcp"
)

// Hosted downloads the initial model of a run from the run's server, once. The member need not trust
// the server more for this: the server chooses the model in any case. If it gives members different
// models, they notice that their replicas differ.
type Hosted struct {
	Addr   string // of the server; empty: the run is on a chain
	RunID  string
	Run    func() [32]byte    // hash of the run
	Key    func() identity.ID // of the connected server
	Logger *slog.Logger

	mu  sync.Mutex
	dir string // folder of the model; empty: not downloaded yet
}

// Model returns the folder of the model, which remains in the user's cache for later starts.
func (h *Hosted) Model(ctx context.Context) (string, error) {
	if h == nil {
		return "", tcp.ErrNoModel
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir != "" {
		return h.dir, nil
	}
	if h.Addr == "" {
		return "", fmt.Errorf("%w: the run is on a chain", tcp.ErrNoModel)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the model: %w", err)
	}
	dir := filepath.Join(cache, "psyche", "models", fmt.Sprintf("%x", h.Run()))
	if _, err := checkpoint.CheckDir(dir); err != nil {
		if err := h.fetch(ctx, dir); err != nil {
			return "", err
		}
	}
	h.Logger.Info("the run's initial model is on this machine", "from", "the run's server", "dir", dir)
	h.dir = dir
	return dir, nil
}

// fetch downloads the model into a folder.
func (h *Hosted) fetch(ctx context.Context, dir string) error {
	key, err := identity.Generate(rand.Reader) // the server gives the model to any key
	if err != nil {
		return err
	}
	o := tcp.Options{Addr: h.Addr, RunID: h.RunID, Run: h.Run(), Key: key, ServerKey: h.Key()}
	return unpackFrom(ctx, o, [32]byte{}, dir, h.Logger)
}

func (h *Hosted) initial(ctx context.Context) (checkpoint.Snapshot, error) {
	dir, err := h.Model(ctx)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return readLogged(h.Logger, dir)
}
