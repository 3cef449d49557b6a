package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/node/keep"
)

// usedModel names the model of a command: a model of a run, or --model.
type usedModel struct {
	Link  string `arg:"" optional:"" placeholder:"LINK" help:"Invite link of a run, in quotes, instead of --model: uses the newest model that the run recorded."`
	Model string `placeholder:"MODEL" group:"The model:" help:"Hugging Face model folder, or OWNER/NAME on the Hub."`
}

// read reads the model. For a link, it sets Model to the folder of the model.
func (u *usedModel) read(ctx context.Context, t terminal) (s checkpoint.Snapshot, err error) {
	switch {
	case u.Link == "" && u.Model == "":
		return s, usageError{errors.New("missing flags: --model=MODEL, or the invite link of a run")}
	case u.Link != "" && u.Model != "":
		return s, usageError{errors.New("give an invite link or --model, not both")}
	case u.Link != "":
		if u.Model, err = modelOfLink(ctx, t, u.Link); err != nil {
			return s, err
		}
		return readFolder(t, u.Model) // its digest was compared with the run's
	}
	return readModel(ctx, t, u.Model)
}

// modelOfLink returns the folder of the newest model that a link's run recorded.
func modelOfLink(ctx context.Context, t terminal, link string) (string, error) {
	logger := t.logger()
	run, explain, err := (&joinCommand{Link: link, ServerTimeout: lookTimeout}).train()
	if err != nil {
		return "", usageError{err}
	}
	source, err := run.recorded(logger)
	if err != nil {
		return "", err
	}
	s, err := run.lookOnce(ctx)
	if err != nil {
		if dir, step, none := source.Own(ctx); none == nil {
			logger.Warn("the run does not answer; using the newest model on this machine", "round", step, "dir", dir, "err", err)
			return dir, nil
		}
		return "", explain(err)
	}
	c := s.Model.Checkpoint
	if !c.FromPeers() {
		return "", fmt.Errorf("run %s has recorded no model yet: it is %s, and %d of %d rounds are trained; members report a model at the end of each epoch", run.RunID, s.RunState, s.Progress.Step-1, s.Config.TotalSteps)
	}
	var places []coordinator.Location
	for _, u := range s.UploadsOf(c.Digest) {
		places = append(places, u.Place)
	}
	dir, err := source.Model(ctx, c, places)
	if errors.Is(err, modelsource.ErrNowhere) {
		return "", fmt.Errorf("the model of round %d of run %s, digest %x: %w; ask a member for the folder %s, which psyche-client join keeps in psyche/runs in ~/.local/state, and name it with --model; or ask the host to start the server with --member-checkpoints",
			c.Step, run.RunID, c.Digest[:8], err, filepath.Base(keep.Folder{RunID: run.RunID}.Checkpoint(c.Step)))
	}
	if err != nil {
		return "", explain(err)
	}
	logger.Info("using the newest model that the run recorded; its digest is verified", "run", run.RunID, "round", c.Step, "of", s.Config.TotalSteps, "dir", dir)
	return dir, nil
}

// recorded returns the source of the run's recorded models.
func (c *trainCommand) recorded(logger *slog.Logger) (r *modelsource.Recorded, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the model: %w", err)
	}
	r = &modelsource.Recorded{
		RunID: c.RunID, Addr: c.ServerAddr, OwnDir: c.CheckpointDir, Logger: logger,
		CacheDir: filepath.Join(cache, "psyche", "recorded", filepath.Base(c.CheckpointDir)),
		Hub: func(withToken bool) (*hub.Client, error) {
			return hubFlags{HubMaxConcurrentDownloads: 3}.client(logger, withToken)
		},
	}
	if c.Given() { // on a chain
		return r, nil
	}
	if r.ServerKey, err = identity.ParseID(c.ServerKey); err == nil {
		r.Run, err = tcp.ParseRun(c.Genesis)
	}
	return r, err
}

// lookOnce returns the state of the run. It does not take part.
func (c *trainCommand) lookOnce(ctx context.Context) (*coordinator.State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTimeout, fmt.Errorf("no answer within %v", lookTimeout))
	defer cancel()
	s, _, err := c.look(ctx, c.RunID, nil, "")
	return s, err
}
