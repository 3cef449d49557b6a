package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/face/dash/hostpage"
	"github.com/psyche-go/psyche/files/checkpoint/modelarchive"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
)

// handOut makes a server offer the starting model of a run, if --model-path is set.
func (c serverRun) handOut(ctx context.Context, runs []config.Run, o *server.Options, page *hostpage.Page, logger *slog.Logger) error {
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
