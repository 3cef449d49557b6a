package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/eval/background"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/train"
)

// measuring is a model's being measured while it is trained. A nil one measures nothing.
type measuring struct {
	runner *background.Runner
	logger *slog.Logger
}

// measure reads the questions of the tasks; nil if there are none.
func (f evalFlags) measure(ctx context.Context, access hubFlags, events *event.Log, logger *slog.Logger) (*measuring, error) {
	if !f.asked() {
		return nil, nil
	}
	exams, err := f.exams(ctx, access, logger)
	if err != nil {
		return nil, err
	}
	for _, exam := range exams {
		logger.Info("measuring the model while it is trained", "task", exam.Task.Name, "documents", exam.Len(), "examples", exam.Fewshot)
	}
	report := func(e event.Evaluated) {
		logger.Info("measured", "task", e.Task, "step", e.Step, "scores", e.Scores, "documents", e.Samples, "text", e.Text)
		if err := events.Append(e); err != nil {
			logger.Error("write event", "err", err)
		}
	}
	return &measuring{background.Start(background.Options{
		Exams: exams, Prompt: f.PromptTask, Seed: f.EvalSeed, Report: report, Logger: logger, Crowded: background.Crowded,
	}), logger}, nil
}

// use measures a trainer's model from now on.
func (m *measuring) use(t *train.Trainer, s checkpoint.Snapshot) {
	if m == nil {
		return
	}
	reader, err := readerOf(t, s)
	if err != nil {
		m.logger.Warn("the model is not measured in tasks", "because", err)
		return
	}
	m.runner.SetModel(reader, s.Step)
}

// forget is called before a trainer is closed.
func (m *measuring) forget() {
	if m != nil {
		m.runner.SetModel(nil, 0)
	}
}

// busy says that the training needs the model, until done is called.
func (m *measuring) busy() (done func()) {
	if m == nil {
		return func() {}
	}
	return m.runner.Busy()
}

// changed says of which step the model is now.
func (m *measuring) changed(step uint32) {
	if m != nil {
		m.runner.SetStep(step)
	}
}

// complete measures the model that a run has ended with.
func (m *measuring) complete(ctx context.Context, most time.Duration) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	m.runner.Complete(ctx)
}

func (m *measuring) close() {
	if m != nil {
		m.runner.Close()
	}
}

// Train implements env.Trainer.
func (t keptTrainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	defer t.measuring.busy()()
	return t.TrainAhead(ctx, step, batch, begun)
}

// Apply implements env.Trainer.
func (t keptTrainer) Apply(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) error {
	defer t.measuring.busy()()
	err := t.Trainer.Apply(ctx, step, payloads, ownCounted)
	if err == nil {
		t.measuring.changed(step)
	}
	return err
}

// Snapshot implements env.Trainer.
func (t keptTrainer) Snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	defer t.measuring.busy()()
	return t.Trainer.Snapshot(ctx)
}

// Load implements env.Trainer.
func (t keptTrainer) Load(ctx context.Context, s checkpoint.Snapshot) error {
	defer t.measuring.busy()()
	err := t.Trainer.Load(ctx, s)
	if err == nil {
		t.measuring.changed(s.Step)
	}
	return err
}

// Verify implements env.Trainer: what is valid is written down.
func (t keptTrainer) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	return t.seen.verified(t.Trainer.Verify(payload, step, batch, trainer), payload, step, batch, trainer)
}
