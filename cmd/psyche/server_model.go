package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

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
		o.Recorded = newRecordedModels(c.MemberCheckpoints, logger).model
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

// recordedModels finds recorded models in the checkpoint folders of members. It hashes each folder once, and
// one folder at a time, because unknown clients choose which models they request.
type recordedModels struct {
	patterns []string
	logger   *slog.Logger
	turn     chan struct{} // has a value while a call searches or hashes

	folders map[recordedModel][]string // of the last search
	search  time.Time                  // of the last search

	mu     sync.Mutex
	hashed map[recordedModel]hashedModel
}

// recordedModel names a model of a run.
type recordedModel struct {
	runID  string
	digest [32]byte
}

// hashedModel is the result of hashing a folder.
type hashedModel struct {
	dir     string
	folder  os.FileInfo           // of dir
	archive *modelarchive.Archive // nil: the folder cannot be served
}

// searchPause is the time between two searches of the folders.
const searchPause = time.Second

func newRecordedModels(patterns []string, logger *slog.Logger) *recordedModels {
	return &recordedModels{patterns: patterns, logger: logger, turn: make(chan struct{}, 1), hashed: make(map[recordedModel]hashedModel)}
}

// model returns the model with a digest, or nil. The first call for a model reads the whole model. Calls for
// models that have been read do not wait.
func (r *recordedModels) model(ctx context.Context, runID string, digest [32]byte) server.Model {
	wanted := recordedModel{runID, digest}
	found, ok := r.lookUp(wanted)
	if !ok {
		select {
		case r.turn <- struct{}{}:
			defer func() { <-r.turn }()
		case <-ctx.Done():
			return nil
		}
		if found, ok = r.lookUp(wanted); !ok {
			found = r.hash(ctx, wanted)
		}
	}
	if found.archive == nil {
		return nil
	}
	return found.archive
}

// lookUp returns the result of hashing a folder of a model, if the folder is still in its place.
func (r *recordedModels) lookUp(wanted recordedModel) (found hashedModel, ok bool) {
	r.mu.Lock()
	found, ok = r.hashed[wanted]
	r.mu.Unlock()
	return found, ok && found.inPlace()
}

func (h hashedModel) inPlace() bool {
	now, err := os.Stat(h.dir)
	return err == nil && os.SameFile(now, h.folder) && now.ModTime().Equal(h.folder.ModTime())
}

// hash searches for a model and hashes it. The caller has the turn.
func (r *recordedModels) hash(ctx context.Context, wanted recordedModel) (result hashedModel) {
	if time.Since(r.search) >= searchPause {
		r.find()
		r.search = time.Now()
	}
	for _, dir := range r.folders[wanted] {
		folder, err := os.Stat(dir)
		if err != nil {
			continue
		}
		archive, err := modelarchive.Open(ctx, dir, meter.Logged(r.logger, "hashing a recorded model"))
		if ctx.Err() != nil {
			return hashedModel{}
		}
		result = hashedModel{dir, folder, archive}
		if err == nil {
			r.logger.Info("serving a recorded model to every client", "run", wanted.runID, "dir", dir, "MiB", archive.Size()>>20)
			break
		}
		r.logger.Warn("cannot serve a recorded model", "run", wanted.runID, "dir", dir, "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.hashed, func(_ recordedModel, h hashedModel) bool { return !h.inPlace() })
	if result.dir != "" {
		r.hashed[wanted] = result
	}
	return result
}

// find lists the folders by the run and the digest that their facts name. Clients compare the digest of
// their download.
func (r *recordedModels) find() {
	r.folders = make(map[recordedModel][]string)
	for _, pattern := range r.patterns {
		dirs, _ := filepath.Glob(filepath.Join(pattern, "*-step*")) // handOut checked the pattern
		for _, dir := range dirs {
			facts, err := checkpoint.ReadFacts(dir)
			if err != nil {
				continue
			}
			if digest, err := hex.DecodeString(facts.Digest); err == nil && len(digest) == 32 {
				model := recordedModel{facts.RunID, [32]byte(digest)}
				r.folders[model] = append(r.folders[model], dir)
			}
		}
	}
}
