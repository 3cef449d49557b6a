package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/record/event"
)

// taskResult is a model's result in a task.
type taskResult struct {
	Scores    map[string]float64 `json:"scores"`
	Errors    map[string]float64 `json:"standard_errors"`
	Documents int                `json:"documents"`
	Fewshot   int                `json:"fewshot"`
	Seconds   float64            `json:"seconds"`
}

// sample is an answer in the file of --samples.
type sample struct {
	Task           string             `json:"task"`
	Document       int                `json:"document"`
	Subject        string             `json:"subject,omitempty"`
	Context        string             `json:"context"`
	Choices        []string           `json:"choices,omitempty"`
	Answer         any                `json:"answer"` // index of the choice, or the expected text
	LogLikelihoods []float64          `json:"log_likelihoods,omitempty"`
	Text           string             `json:"text,omitempty"`
	Scores         map[string]float64 `json:"scores"`
}

// questions are the tasks of an evaluate command.
type questions struct {
	command  *evaluateCommand
	terminal terminal
	snapshot checkpoint.Snapshot
	exams    []*eval.Exam
	events   *event.Log
	samples  *os.File // nil: not written
}

// create creates the output files.
func (q *questions) create() (err error) {
	if q.command.Samples != "" {
		if err = os.MkdirAll(filepath.Dir(q.command.Samples), 0o755); err == nil {
			q.samples, err = os.Create(q.command.Samples)
		}
		if err != nil {
			return fmt.Errorf("--samples: %w", err)
		}
	}
	return nil
}

func (q *questions) close() error {
	if q == nil || q.samples == nil {
		return nil
	}
	return q.samples.Close()
}

// ask evaluates a model on all tasks, and adds its scores to all.
func (q *questions) ask(ctx context.Context, lm eval.LM, all *evaluations) error {
	if !q.command.asked() {
		return nil
	}
	reader, err := readerOf(lm, q.snapshot)
	if err != nil {
		return err
	}
	all.Tasks = map[string]taskResult{}
	for _, exam := range q.exams {
		result, tally, err := q.askAll(ctx, reader, exam)
		if err != nil {
			return err
		}
		all.Tasks[exam.Task.Name] = result
		q.printf("%s: %s, over %d documents with %d examples\n", exam.Task.Name, summary(exam, tally), result.Documents, result.Fewshot)
		err = q.events.Append(event.Evaluated{
			Step: q.snapshot.Step, Task: exam.Task.Name, Scores: result.Scores, Samples: result.Documents, Seconds: result.Seconds,
		})
		if err != nil {
			return err
		}
	}
	if !q.command.PromptTask {
		return nil
	}
	begun, prompt := time.Now(), eval.Prompt(q.command.EvalSeed)
	text, err := reader.GoOn(ctx, prompt, q.command.EvalSeed)
	if err != nil {
		return err
	}
	all.Text = prompt + text
	q.printf("%s\n", all.Text)
	return q.events.Append(event.Evaluated{
		Step: q.snapshot.Step, Task: eval.PromptTask, Samples: 1, Seconds: time.Since(begun).Seconds(), Text: all.Text,
	})
}

func (q *questions) askAll(ctx context.Context, reader *eval.Reader, exam *eval.Exam) (taskResult, *eval.Tally, error) {
	begun, tally := time.Now(), &eval.Tally{}
	file := io.Discard
	if q.samples != nil {
		file = q.samples
	}
	lines := json.NewEncoder(file)
	m := meter.New(q.terminal.Err, "psyche-client: evaluating "+exam.Task.Name)
	defer m.Done()
	for i := range exam.Len() {
		m.At(int64(i), int64(exam.Len()))
		question := exam.Question(i)
		answer, err := reader.Ask(ctx, question)
		if err != nil {
			return taskResult{}, nil, err
		}
		tally.Add(question, answer)
		s := sample{
			Task: question.Task, Document: i, Subject: question.Subject, Context: question.Context, Choices: question.Choices,
			Answer: question.Answer, LogLikelihoods: answer.LogLikelihoods, Text: answer.Text, Scores: map[string]float64{},
		}
		if len(question.Choices) == 0 {
			s.Answer = question.Letter
		}
		for _, name := range exam.Metrics() {
			s.Scores[name] = answer.Scores[name]
		}
		if err := lines.Encode(s); err != nil {
			return taskResult{}, nil, fmt.Errorf("--samples: %w", err)
		}
	}
	result := taskResult{
		Scores: tally.Scores(exam.Metrics()), Errors: map[string]float64{}, Documents: exam.Len(), Fewshot: exam.Fewshot,
		Seconds: time.Since(begun).Seconds(),
	}
	for _, name := range exam.Metrics() {
		result.Errors[name] = tally.Error(name)
	}
	return result, tally, nil
}

// printf writes a result for people.
func (q *questions) printf(format string, args ...any) {
	if !q.command.JSON {
		_, _ = fmt.Fprintf(q.terminal.Out, format, args...)
	}
}
