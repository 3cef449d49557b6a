package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/learn/eval/background"
	"github.com/psyche-go/psyche/record/event"
)

// measuring evaluates a model concurrently with its training. A nil measuring does nothing.
type measuring struct {
	runner *background.Runner
	logger *slog.Logger
}

// measure reads the questions of the tasks. It returns nil if there are none.
func (f evalFlags) measure(ctx context.Context, access hubFlags, events *event.Log, logger *slog.Logger) (*measuring, error) {
	if !f.asked() {
		return nil, nil
	}
	exams, err := f.exams(ctx, access, logger)
	if err != nil {
		return nil, err
	}
	for _, exam := range exams {
		logger.Info("evaluating the model during training", "task", exam.Task.Name, "documents", exam.Len(), "examples", exam.Fewshot)
	}
	report := func(e event.Evaluated) {
		logger.Info("measured", "task", e.Task, "step", e.Step, "scores", e.Scores, "documents", e.Samples, "text", e.Text)
		events.Note(logger, e)
	}
	return &measuring{background.Start(background.Options{
		Exams: exams, Prompt: f.PromptTask, Seed: f.EvalSeed, Report: report, Logger: logger, Crowded: background.Crowded,
	}), logger}, nil
}

// Use implements member.Measuring: it starts to evaluate a trainer's model.
func (m *measuring) Use(t eval.LM, s checkpoint.Snapshot) {
	if m == nil {
		return
	}
	reader, err := readerOf(t, s)
	if err != nil {
		m.logger.Warn("evaluating the model in tasks failed", "because", err)
		return
	}
	m.runner.SetModel(reader, s.Step)
}

// Forget implements member.Measuring.
func (m *measuring) Forget() {
	if m != nil {
		m.runner.SetModel(nil, 0)
	}
}

// Busy implements member.Measuring.
func (m *measuring) Busy() (done func()) {
	if m == nil {
		return func() {}
	}
	return m.runner.Busy()
}

// Changed implements member.Measuring.
func (m *measuring) Changed(step uint32) {
	if m != nil {
		m.runner.SetStep(step)
	}
}

// complete evaluates the final model of a run.
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
