package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/privatenet"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// trainers creates the trainers for a command line, and reads its data.
type trainers struct {
	command *trainCommand
	key     identity.Key
	logger  *slog.Logger
	host    func() identity.ID // key of the run's server
	run     func() [32]byte    // hash of the run
	devices []torch.Device     // computing devices; none: the CPU
	events  *event.Log
	board   *metrics.Board
	seen    *resultWriter       // may be nil
	hosted  *modelsource.Hosted // starting model offered by the run's server; may be nil
	library error               // reason why libtorch is missing; nil: it is loaded
	weighed bool                // weigh was called; used by one goroutine at a time
}

// factory returns the factory of trainers. m may be nil.
func (t *trainers) factory(m *measuring) *member.Factory {
	c := t.command
	return member.NewFactory(member.Options{
		Train: train.Options{
			Devices:    t.devices,
			MicroBatch: c.MicroBatchSize,
			Parallel:   c.parallelism(),
			Threads:    int(c.Threads),
			RunID:      c.RunID,
			TrainerID:  t.key.ID(),
			Logger:     t.logger,
			Timed:      t.timed,
			Trained:    gradientEvents(t.events, t.logger),
			StatsEvery: c.OptimStatsSteps,
			Verified:   t.seen.see,
		},
		Computing: t.computing,
		Delay:     time.Duration(c.DummyTrainingDelaySecs * float64(time.Second)),
		OpenData:  t.openData,
		HeldOut:   t.readHeldOut,
		Measuring: m,
	})
}

// computing returns the types in which a model is computed.
func (t *trainers) computing(ctx context.Context, of model.Description) (model.Options, error) {
	compute, err := t.command.computing(ctx, t.devices, t.logger)
	if err != nil {
		return compute, err
	}
	t.board.SetVocabulary(of.VocabSize)
	if len(t.devices) > 0 {
		t.logger.Info("computing", "devices", t.devices)
	}
	return compute, nil
}

// timed writes the duration of a part of a step to the event log.
func (t *trainers) timed(part train.Timing) {
	t.events.Note(t.logger, event.Span{Step: part.Step, Part: part.Part, Seconds: part.Took.Seconds()})
}

// openData opens the data of the run.
func (t *trainers) openData(ctx context.Context, run config.Model, of model.Description) (data.Provider, error) {
	if t.command.wantsDataPath(run) {
		return nil, fmt.Errorf("%w: the run's data; name a folder with --data-path", modelsource.ErrLocalPath)
	}
	provider, err := data.New(ctx, run.DataLocations, t.dataOptions(run, of))
	if errors.Is(err, privatenet.ErrInner) {
		err = fmt.Errorf("%w; if the run's data is meant to be in your private network, pass --allow-inner-data", err)
	}
	return provider, err
}
