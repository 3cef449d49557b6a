package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/face/dash/hostpage"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/modelarchive"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
)

// handOut makes a server offer the starting model of a run, if --model-path is set.
func (c serverRun) handOut(ctx context.Context, runs []config.Run, o *server.Options, page *hostpage.Page, logger *slog.Logger) error {
	if len(c.MemberCheckpoints) > 0 {
		for _, pattern := range c.MemberCheckpoints {
			if _, err := filepath.Match(pattern, ""); err != nil {
				return usagef("--member-checkpoints %s: %w", pattern, err)
			}
		}
		o.Recorded = (&recordedModels{patterns: c.MemberCheckpoints, logger: logger}).model
	}
	if c.ModelPath == "" {
		for _, run := range runs {
			if at := run.Model.Checkpoint.Local; at != nil {
				logger.Info("clients need their own copy of the run's initial model; use --model-path to serve it", "run", run.RunID, "model", at.Path)
			}
		}
		return nil
	}
	_, run, err := c.oneRun("--model-path", runs)
	if err != nil {
		return err
	}
	model, err := modelarchive.Open(ctx, c.ModelPath, meter.Logged(logger, "hashing the served model"))
	if err != nil {
		return fmt.Errorf("--model-path: %w", err)
	}
	logger.Info("serving the run's initial model to every client", "run", run.RunID, "dir", c.ModelPath, "MiB", model.Size()>>20)
	page.SetParameters(run.RunID, model.Parameters())
	o.Models = map[string]server.Model{run.RunID: model}
	return nil
}

// recordedModels finds recorded models in the checkpoint folders of members. It keeps the hashes of the
// newest requested model.
type recordedModels struct {
	patterns []string
	logger   *slog.Logger

	mu     sync.Mutex
	runID  string
	digest [32]byte
	held   *modelarchive.Archive // nil: none yet
}

// model returns the model with a digest, or nil. The first call for a model reads the whole model, and
// other calls wait for it.
func (r *recordedModels) model(ctx context.Context, runID string, digest [32]byte) server.Model {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil && r.runID == runID && r.digest == digest {
		return r.held
	}
	dir := r.find(runID, digest)
	if dir == "" {
		return nil
	}
	archive, err := modelarchive.Open(ctx, dir, meter.Logged(r.logger, "hashing a recorded model"))
	if err != nil {
		r.logger.Warn("cannot serve a recorded model", "run", runID, "dir", dir, "err", err)
		return nil
	}
	r.logger.Info("serving a recorded model to every client", "run", runID, "dir", dir, "MiB", archive.Size()>>20)
	r.runID, r.digest, r.held = runID, digest, archive
	return archive
}

// find returns the folder whose facts name the run and the digest, or an empty string. Clients
// compare the digest of their download.
func (r *recordedModels) find(runID string, digest [32]byte) string {
	for _, pattern := range r.patterns {
		dirs, _ := filepath.Glob(filepath.Join(pattern, "*-step*")) // handOut checked the pattern
		for _, dir := range dirs {
			facts, err := checkpoint.ReadFacts(dir)
			if err == nil && facts.RunID == runID && facts.Digest == fmt.Sprintf("%x", digest) {
				return dir
			}
		}
	}
	return ""
}
