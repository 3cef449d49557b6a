package eval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errUnknownTask means that there is no task with a name.
var errUnknownTask = errors.New("unknown task")

// Task is a benchmark of a model.
type Task struct {
	Name     string
	Repo     string // of the data set on the Hub
	Config   string // part of the data set; empty: it has none
	Split    string // split of the questions
	Examples string // split of the examples
	Fewshot  int    // default number of examples

	// firstExamples takes the first examples of the question's subject instead of drawing them.
	firstExamples bool
	// apart prevents a question from being its own example.
	apart   bool
	columns []string
	read    func(r record) (document, error)
	metrics []string // the first is the principal one
}

// Names of scores.
const (
	accuracy   = "acc"
	accNorm    = "acc_norm"
	exactMatch = "exact_match"
)

// document is one question of a data set.
type document struct {
	description string // text before the examples
	prompt      string
	example     string   // answer to the prompt if the document is an example
	choices     []string // empty: the model writes the answer
	answer      int      // index of the right choice
	letter      string   // the right written answer
	subject     string
}

// names returns the names of all tasks as one text.
func names() string {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.Name
	}
	return strings.Join(names, ", ")
}

// Parse parses a list of task names, separated by commas.
func Parse(list string) ([]Task, error) {
	var out []Task
	for name := range strings.SplitSeq(list, ",") {
		name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "-", "_")
		i := slices.IndexFunc(tasks, func(t Task) bool { return t.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w %q: want a comma-separated list from %s", errUnknownTask, name, names())
		}
		if slices.ContainsFunc(out, func(t Task) bool { return t.Name == name }) {
			return nil, fmt.Errorf("task %s is listed twice", name)
		}
		out = append(out, tasks[i])
	}
	return out, nil
}
