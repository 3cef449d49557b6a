package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/learn/model/generate"
)

// evalFlags select the tasks for the evaluation of a model.
type evalFlags struct {
	EvalTasks       string `placeholder:"TASK,…" help:"Tasks for evaluating the model: arc_challenge, arc_easy, boolq, hellaswag, mmlu, mmlu_pro, openbookqa, piqa. Their data sets come from the Hugging Face Hub, its cache, or --eval-data."`
	EvalFewshot     *int   `placeholder:"N" help:"Number of worked examples before each question. Default: 5 for mmlu_pro, none for other tasks."`
	EvalSeed        uint64 `default:"42" placeholder:"SEED" help:"Seed for the choice of examples and for generated text (${default})."`
	EvalTaskMaxDocs *int   `placeholder:"N" help:"Number of questions to use, from the start of each task, or of each subject if a task has several. Default: all."`
	EvalData        string `type:"path" env:"EVAL_DATA" placeholder:"DIR" help:"Folder of data sets to use instead of the Hub: OWNER/NAME/PART/SPLIT.jsonl or .parquet, as on the Hub."`
	EvalHidden      bool   `name:"include-hidden" help:"Also read lock files, metadata, and files and folders whose names begin with a dot in --eval-data."`
	PromptTask      bool   `help:"Also generate text with the model, into the event log."`
}

// asked reports whether there is anything to evaluate.
func (f evalFlags) asked() bool { return f.EvalTasks != "" || f.PromptTask }

// exams reads the questions of all tasks.
func (f evalFlags) exams(ctx context.Context, access hubFlags, logger *slog.Logger) ([]*eval.Exam, error) {
	if f.EvalTasks == "" {
		return nil, nil
	}
	tasks, err := eval.Parse(f.EvalTasks)
	if err != nil {
		return nil, usageError{fmt.Errorf("--eval-tasks: %w", err)}
	}
	options := eval.Options{Fewshot: f.EvalFewshot, Seed: f.EvalSeed}
	if f.EvalTaskMaxDocs != nil {
		if options.MaxDocs = *f.EvalTaskMaxDocs; options.MaxDocs < 1 {
			return nil, usageError{fmt.Errorf("--eval-task-max-docs is %d: want at least 1", options.MaxDocs)}
		}
	}
	library := eval.Library{Folder: f.EvalData, Hidden: f.EvalHidden, Fetch: fetchDataset(access, logger)}
	var exams []*eval.Exam
	for _, task := range tasks {
		exam, err := library.Open(ctx, task, options)
		if err != nil {
			return nil, fmt.Errorf("--eval-tasks: %w", err)
		}
		exams = append(exams, exam)
	}
	return exams, nil
}

// fetchDataset returns a function that downloads data sets into the Hub's cache.
func fetchDataset(access hubFlags, logger *slog.Logger) func(ctx context.Context, repo, revision string, match func(string) bool) (string, error) {
	return func(ctx context.Context, repo, revision string, match func(string) bool) (string, error) {
		client, err := access.client(logger, true)
		if err != nil {
			return "", err
		}
		client.Datasets = true
		defer client.CloseIdleConnections()
		s, err := client.Snapshot(ctx, repo, hub.SnapshotOptions{Revision: revision, Match: match})
		return s.Dir, err
	}
}

// readerOf returns a reader that runs the texts of tasks through a model. The reader uses the tokenizer
// in the model's files.
func readerOf(lm eval.LM, s checkpoint.Snapshot) (*eval.Reader, error) {
	coder, err := tokenizer.Find(s.File)
	switch {
	case errors.Is(err, tokenizer.ErrNone):
		return nil, fmt.Errorf("the model's files: %w, which is needed to convert text to tokens", err)
	case err != nil:
		return nil, err
	}
	begin, err := generate.BeginToken(s)
	if err != nil {
		return nil, err
	}
	ends, err := generate.EndTokens(s)
	if err != nil {
		return nil, err
	}
	return &eval.Reader{LM: lm, Coder: coder, Begin: begin, Stop: ends}, nil
}

// summary formats the scores of a task.
func summary(exam *eval.Exam, tally *eval.Tally) string {
	var parts []string
	for _, name := range exam.Metrics() {
		parts = append(parts, fmt.Sprintf("%s %.4f ± %.4f", name, tally.Scores(exam.Metrics())[name], tally.Error(name)))
	}
	return strings.Join(parts, ", ")
}
