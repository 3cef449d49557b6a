package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/secret"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker"
	"github.com/psyche-go/psyche/face/tracker/wandb"
)

// trackerFlags select the trackers that receive the metrics of a training.
type trackerFlags struct {
	TensorboardDir string `type:"path" placeholder:"DIR" help:"Folder for a TensorBoard event file."`
	MetricsFile    string `type:"path" placeholder:"FILE" help:"File to append the metrics of every step to, one JSON object per step."`

	WandbProject string `placeholder:"NAME" help:"Weights & Biases project. With a key in WANDB_API_KEY, metrics are sent there (WANDB_BASE_URL sets another server). Without a key, or with WANDB_MODE=offline, they are written to a folder below WANDB_DIR for wandb sync. Default with a key: psyche."`
	WandbRun     string `placeholder:"NAME" help:"Name of the Weights & Biases run."`
	WandbGroup   string `placeholder:"NAME" help:"Group of the Weights & Biases run."`
	WandbEntity  string `placeholder:"NAME" help:"User or team of the Weights & Biases project. Default: the owner of the key."`
}

// flushTimeout limits the time for trackers to receive pending data at the end.
const flushTimeout = 10 * time.Second

// feeds are the close functions of a training's trackers.
type feeds []func(context.Context) error

// close sends pending data to all trackers concurrently.
func (f feeds) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	errs := make([]error, len(f))
	var ending sync.WaitGroup
	for i, end := range f {
		ending.Go(func() { errs[i] = end(ctx) })
	}
	ending.Wait()
	return errors.Join(errs...)
}

// start starts to pass a board's rows to the trackers, which cannot block the board.
func (f trackerFlags) start(board *metrics.Board, name string, settings map[string]any, logger *slog.Logger) (all feeds, err error) {
	add := func(name string, sink tracker.Sink, every time.Duration) {
		feed := tracker.Start(name, sink, every, logger)
		all = append(all, feed.Close)
		board.Listen(feed.Take)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.close())
		}
	}()
	if f.TensorboardDir != "" {
		sink, err := tracker.TensorBoard(f.TensorboardDir)
		if err != nil {
			return all, fmt.Errorf("--tensorboard-dir: %w", err)
		}
		add("tensorboard", sink, 0)
	}
	if f.MetricsFile != "" {
		sink, err := tracker.JSONLines(f.MetricsFile)
		if err != nil {
			return all, fmt.Errorf("--metrics-file: %w", err)
		}
		add("metrics file", sink, 0)
	}
	sink, err := f.wandb(name, settings, logger)
	if err != nil {
		return all, fmt.Errorf("open a run of Weights & Biases: %w", err)
	}
	if sink != nil {
		add("wandb", sink, 2*time.Second)
	}
	return all, nil
}

// wandb opens the Weights & Biases tracker that flags and environment select; nil if they select
// none.
func (f trackerFlags) wandb(name string, settings map[string]any, logger *slog.Logger) (tracker.Sink, error) {
	key, mode := secret.Trim(os.Getenv("WANDB_API_KEY")), strings.ToLower(os.Getenv("WANDB_MODE"))
	wanted := key != "" || mode == "offline" || f.WandbProject+f.WandbRun+f.WandbGroup+f.WandbEntity != ""
	if !wanted || mode == "disabled" {
		return nil, nil
	}
	run := wandb.Run{Project: f.WandbProject, Entity: f.WandbEntity, Group: f.WandbGroup, Name: cmp.Or(f.WandbRun, name), Config: settings}
	if key == "" || mode == "offline" {
		sink, folder, err := wandb.Offline(cmp.Or(os.Getenv("WANDB_DIR"), "wandb"), run)
		if err == nil {
			logger.Info("no Weights & Biases key is set, or WANDB_MODE is offline; writing metrics to a local folder", "upload_command", "wandb sync "+folder)
		}
		return sink, err
	}
	return wandb.Online(wandb.Service{URL: os.Getenv("WANDB_BASE_URL"), Key: key}, run)
}
