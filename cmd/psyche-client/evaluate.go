package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/event"
)

type evaluateCommand struct {
	Model        string      `required:"" placeholder:"MODEL" help:"Hugging Face model folder, or OWNER/NAME on the Hub."`
	Data         string      `type:"path" placeholder:"PATH" help:"Token file, or folder of token files, for the mean loss."`
	TokenSize    int         `default:"0" enum:"0,2,4,8" help:"Bytes per token in the files: 2, 4 or 8. 0 reads the size from data.json, *.metadata or *.idx next to the files, or else uses 2 if the vocabulary fits (${default})."`
	SeqLen       int         `placeholder:"N" help:"Tokens per sequence. 0 means the longest that the model supports."`
	MaxSequences uint64      `default:"${sample_sequences}" placeholder:"N" help:"Sequences to use, spread evenly over the data; 0 means all (${default})."`
	MicroBatch   int         `default:"8" help:"Sequences in one pass through the model."`
	Threads      threadCount `placeholder:"N" help:"Threads of libtorch. 0 uses OMP_NUM_THREADS, or else one thread per CPU."`

	evalFlags `embed:""`
	Samples   string `type:"path" placeholder:"FILE" help:"File for every answer to a question of --eval-tasks, one JSON object each."`
	EventsDir string `type:"path" placeholder:"DIR" help:"Folder for the event log, events.jsonl, with loss and scores. By default, no event log is written."`

	libraryFlags   `embed:""`
	inferenceFlags `embed:""`
	JSON           bool `help:"Print a JSON object. Its perplexity is null if the value is too large for a number."`
}

// evaluation is the loss of a model. Losses are in nats per token.
type evaluation struct {
	Loss        float64 `json:"loss"`
	Perplexity  any     `json:"perplexity"` // a number; null: overflow
	Sequences   int     `json:"sequences"`
	OfSequences uint64  `json:"of_sequences"` // in the data
	Sample      string  `json:"sample"`       // name of the sequences; only losses with equal names are comparable
	Tokens      int     `json:"tokens"`
	Step        uint32  `json:"step"`
}

// evaluations are all results of the command.
type evaluations struct {
	*evaluation
	Tasks map[string]taskResult `json:"tasks,omitempty"`
	Text  string                `json:"text,omitempty"` // of the prompt task
}

// Run prints the mean loss over the sequences, and the scores of tasks.
func (c *evaluateCommand) Run(ctx context.Context, t terminal) (err error) {
	if c.Data == "" && !c.asked() {
		return usageError{errors.New("nothing to measure: give --data, --eval-tasks or --prompt-task")}
	}
	events, err := beginEventLog(c.EventsDir, "evaluation")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endEventLog(events, err)) }()
	s, err := readModel(ctx, t, c.Model)
	if err != nil {
		return err
	}
	sample, err := c.read(ctx, s)
	if err != nil {
		return err
	}
	questions, err := c.openTasks(ctx, t, s, events)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, questions.close()) }()
	evaluator, err := c.evaluator(ctx, t, s)
	if err != nil {
		return err
	}
	defer func() { _ = evaluator.Close() }()
	var all evaluations
	if c.Data != "" {
		m := meter.New(t.Err, "psyche-client: measuring the loss")
		evaluator.Watch(func(done, all int) { m.At(int64(done), int64(all)) })
		all.evaluation, err = c.lossOf(ctx, evaluator, sample, s.Step, events)
		if m.Done(); err != nil {
			return err
		}
		c.printLoss(t, *all.evaluation)
	}
	if err := questions.ask(ctx, evaluator, &all); err != nil {
		return err
	}
	if !c.JSON {
		return nil
	}
	if all.evaluation != nil && math.IsInf(math.Exp(all.Loss), 0) {
		all.Perplexity = nil
	}
	return json.NewEncoder(t.Out).Encode(all)
}

// lossOf measures the mean loss over the sequences.
func (c *evaluateCommand) lossOf(ctx context.Context, evaluator *train.Evaluator, sample local.Sample, step uint32, events *event.Log) (*evaluation, error) {
	begun := time.Now()
	loss, err := evaluator.Evaluate(ctx, sample.Sequences)
	if err != nil {
		return nil, err
	}
	count := len(sample.Sequences)
	measured := evaluation{loss, math.Exp(loss), count, sample.Of, sample.String(), count * c.SeqLen, step}
	return &measured, events.Append(event.EvaluatedLoss(step, loss, count, time.Since(begun)))
}

// read reads the data of --data.
func (c *evaluateCommand) read(ctx context.Context, s checkpoint.Snapshot) (local.Sample, error) {
	if c.Data == "" {
		return local.Sample{}, nil
	}
	description, err := describe(s)
	if err != nil {
		return local.Sample{}, fmt.Errorf("%s: %w", c.Model, err)
	}
	if c.SeqLen == 0 {
		c.SeqLen = description.MaxTokens
	}
	options := local.Options{SeqLen: c.SeqLen, TokenSize: c.TokenSize, VocabSize: description.VocabSize}
	return local.ReadSample(ctx, c.Data, options, c.MaxSequences)
}

func (c *evaluateCommand) openTasks(ctx context.Context, t terminal, s checkpoint.Snapshot, events *event.Log) (*questions, error) {
	q := &questions{command: c, terminal: t, snapshot: s, events: events}
	if !c.asked() {
		return q, nil
	}
	var err error
	if q.exams, err = c.exams(ctx, hubFlags{HubMaxConcurrentDownloads: 3}, t.logger()); err != nil {
		return nil, err
	}
	if _, err := readerOf(nil, s); err != nil { // check it before the model is built
		return nil, fmt.Errorf("%s: %w", c.Model, err)
	}
	return q, q.create()
}

func (c *evaluateCommand) evaluator(ctx context.Context, t terminal, s checkpoint.Snapshot) (*train.Evaluator, error) {
	if err := c.load(c.Threads, t.logger()); err != nil {
		return nil, err
	}
	devices, err := c.devices(1)
	if err != nil {
		return nil, err
	}
	compute, err := chooseType(ctx, c.ComputeDtype, devices, t.logger())
	if err != nil {
		return nil, err
	}
	return train.NewEvaluator(ctx, train.Options{
		Model: s, Compute: model.Options{Compute: compute}, MicroBatch: c.MicroBatch, Devices: devices,
		Threads: int(c.Threads), Logger: t.logger(),
	})
}

func (c *evaluateCommand) printLoss(t terminal, e evaluation) {
	if !c.JSON {
		_, _ = fmt.Fprintf(t.Out, "loss %.4f nats per token, perplexity %.2f, over %d tokens in %s\n", e.Loss, e.Perplexity, e.Tokens, e.Sample)
	}
}

func describe(s checkpoint.Snapshot) (model.Description, error) {
	config, _ := s.File(checkpoint.ConfigFile)
	return model.Describe(config)
}
