package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/telemetry"
	"github.com/psyche-go/psyche/face/console"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/record/event"
)

// observed is the event log of a training with its consumers.
type observed struct {
	logger *slog.Logger // for the rest of the process
	events *event.Log
	board  *metrics.Board
	ends   []func() error
}

// close closes everything, the newest first. Trackers have some seconds to receive pending data.
// Their failure is not an error of the training.
func (o *observed) close() error {
	var errs []error
	for i := len(o.ends) - 1; i >= 0; i-- {
		errs = append(errs, o.ends[i]())
	}
	return errors.Join(errs...)
}

// observe opens the event log and its consumers.
func (c *trainCommand) observe(ctx context.Context, key identity.Key, logger *slog.Logger) (o *observed, err error) {
	o = &observed{logger: logger, board: metrics.New()}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	name := c.RunID + "-" + key.ID().Short()
	var sent *telemetry.Telemetry
	labels := map[string]string{"service.instance.id": name, "run_id": c.RunID}
	if sent, err = c.Telemetry.Start(ctx, "psyche-client", labels, logger, c.LogLevel); err != nil {
		return o, err
	}
	o.logger = sent.Logger()
	o.ends = append(o.ends, func() error { sent.Close(); return nil })
	if o.events, err = openEventLog(cmp.Or(c.EventsDir, c.CheckpointDir)); err != nil {
		return o, err
	}
	o.ends = append(o.ends, o.events.Close)
	o.events.Watch(o.board.See)
	o.events.Watch(console.NewRounds(o.logger, o.board.Values, c.Logs == "json").See)
	sent.Watch(c.RunID, o.events)
	if err = sent.Board(ctx, o.board); err != nil {
		return o, err
	}
	stopMetrics, err := serveMetrics(ctx, c.MetricsLocalPort, o.board)
	if err != nil {
		return o, err
	}
	o.ends = append(o.ends, stopMetrics)
	trackers, err := c.start(o.board, name, map[string]any{
		"run_id": c.RunID, "id": key.ID().String(), "micro_batch_size": c.MicroBatchSize, "data_parallelism": c.DataParallelism,
	}, o.logger)
	if err != nil {
		return o, err
	}
	o.ends = append(o.ends, func() error {
		if err := trackers.close(); err != nil {
			o.logger.Warn("cannot close the trackers", "err", err)
		}
		return nil
	})
	return o, nil
}
