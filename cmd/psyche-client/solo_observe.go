package main

import (
	"context"
	"log/slog"

	"github.com/psyche-go/psyche/face/metrics"
)

// eventsBeside is the suffix of the event log's folder, which is next to a model's folder. The
// model's folder must contain only the model.
const eventsBeside = ".events"

// observe opens the event log and its consumers. close closes them.
func (s *solo) observe(ctx context.Context, vocabulary int) (*slog.Logger, error) {
	c, logger := &s.options, s.terminal.logger()
	dir := c.EventsDir
	if dir == "" && c.Save != "" {
		dir = c.Save + eventsBeside
	}
	var err error
	if s.events, err = beginEventLog(dir, "solo"); err != nil {
		return nil, err
	}
	board := metrics.New()
	board.SetVocabulary(vocabulary)
	s.events.Watch(board.See)
	if s.sent, err = c.Telemetry.Start(ctx, "psyche-client", map[string]string{"service.instance.id": "solo"}, logger, slog.LevelWarn); err != nil {
		return nil, err
	}
	s.sent.Watch("solo", s.events)
	if err := s.sent.Board(ctx, board); err != nil {
		return nil, err
	}
	logger = s.sent.Logger()
	s.trackers, err = c.trackerFlags.start(board, "solo", map[string]any{
		"model": c.Model, "optimizer": c.Optimizer, "total_batch": c.TotalBatch, "seq_len": c.SeqLen,
	}, logger)
	return logger, err
}
