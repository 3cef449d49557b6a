package eval

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// errExamples means that there are fewer examples than requested.
var errExamples = errors.New("too few examples")

// maxFewshot is the maximum number of examples before a question.
const maxFewshot = 64

// Options are the settings of an Exam.
type Options struct {
	Fewshot *int   // number of examples before a question; nil: the task's default
	Seed    uint64 // of the draws of examples
	MaxDocs int    // maximum number of questions; of a task with many subjects, some from each; 0: all
}

// Exam contains the questions of a task.
type Exam struct {
	Task    Task
	Fewshot int
	docs    []document
	pool    []document // source of the examples
	shots   [][]int32  // indices in pool, for each question
}

// Question is one question to a model.
type Question struct {
	Task    string
	Index   int // index in the task
	Subject string
	Context string   // full prompt before the answer
	Choices []string // empty: the model writes the answer
	Answer  int      // index of the right choice
	Letter  string   // the right written answer
}

// Len returns the number of questions.
func (e *Exam) Len() int { return len(e.docs) }

// Metrics returns the names of the task's scores, the principal one first.
func (e *Exam) Metrics() []string { return e.Task.metrics }

// Question returns a question with its examples.
func (e *Exam) Question(i int) Question {
	d := e.docs[i]
	var b strings.Builder
	b.WriteString(d.description)
	for _, shot := range e.shots[i] {
		example := e.pool[shot]
		answer := example.example
		if len(example.choices) > 0 {
			answer = example.choices[example.answer]
		}
		b.WriteString(example.prompt + " " + answer + "\n\n")
	}
	b.WriteString(d.prompt)
	return Question{
		Task: e.Task.Name, Index: i, Subject: d.subject, Context: b.String(), Choices: d.choices, Answer: d.answer, Letter: d.letter,
	}
}

// Open reads the documents of a task and chooses the examples.
func (l Library) Open(ctx context.Context, t Task, o Options) (*Exam, error) {
	e := &Exam{Task: t, Fewshot: t.Fewshot}
	if o.Fewshot != nil {
		e.Fewshot = *o.Fewshot
	}
	if e.Fewshot < 0 || e.Fewshot > maxFewshot || o.MaxDocs < 0 {
		return nil, fmt.Errorf("task %[1]s: %[2]d examples, want 0 to %[4]d; document limit %[3]d, want at least 0", t.Name, e.Fewshot, o.MaxDocs, maxFewshot)
	}
	docs, rows, err := l.documents(ctx, t, t.Split, o.MaxDocs)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("task %s: %w: split %s has no documents", t.Name, ErrDocument, t.Split)
	}
	e.docs, e.shots = docs, make([][]int32, len(docs))
	if e.Fewshot == 0 {
		return e, nil
	}
	pool, poolRows, err := l.documents(ctx, t, t.Examples, 0)
	if err != nil {
		return nil, fmt.Errorf("task %s: examples: %w", t.Name, err)
	}
	e.pool = pool
	if t.firstExamples {
		err = e.takeFirst()
	} else {
		err = e.draw(rows, poolRows, o.Seed)
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	return e, nil
}

// documents reads the first documents of a split. limit is the maximum number of documents; 0: all.
func (l Library) documents(ctx context.Context, t Task, split string, limit int) ([]document, []map[string]any, error) {
	paths, err := l.find(ctx, t, split)
	if err != nil {
		return nil, nil, err
	}
	rows := maxRows
	if limit > 0 && !t.firstExamples { // those are chosen by subject
		rows = limit
	}
	table, err := readSplit(ctx, paths, t.columns, rows)
	if err != nil {
		return nil, nil, err
	}
	docs := make([]document, len(table))
	for i, row := range table {
		if docs[i], err = t.read(newRecord(row)); err != nil {
			return nil, nil, fmt.Errorf("split %s, document %d: %w", split, i, err)
		}
		if n := len(docs[i].choices); n > 0 && docs[i].answer >= n {
			return nil, nil, fmt.Errorf("split %s, document %d: %w: answer %d, want 0 to %d", split, i, ErrDocument, docs[i].answer, n-1)
		}
	}
	if limit > 0 && len(docs) > limit {
		docs = someOfEach(docs, limit)
	}
	return docs, table, nil
}

// someOfEach selects documents so that every subject has the same number, as far as possible, and keeps
// their order. limit is the number of documents to select.
func someOfEach(docs []document, limit int) []document {
	bySubject := map[string][]int{}
	var subjects []string
	for i, d := range docs {
		if bySubject[d.subject] == nil {
			subjects = append(subjects, d.subject)
		}
		bySubject[d.subject] = append(bySubject[d.subject], i)
	}
	var kept []int
	for round := 0; len(kept) < limit; round++ {
		for _, subject := range subjects {
			if own := bySubject[subject]; round < len(own) && len(kept) < limit {
				kept = append(kept, own[round])
			}
		}
	}
	slices.Sort(kept)
	out := make([]document, len(kept))
	for i, at := range kept {
		out[i] = docs[at]
	}
	return out
}

// takeFirst gives every question the first examples of its subject.
func (e *Exam) takeFirst() error {
	first := map[string][]int32{}
	for i, d := range e.pool {
		if own := first[d.subject]; len(own) < e.Fewshot {
			first[d.subject] = append(own, int32(i))
		}
	}
	for i, d := range e.docs {
		if e.shots[i] = first[d.subject]; len(e.shots[i]) < e.Fewshot {
			return fmt.Errorf("%w: split %s has %d documents of %s, want %d", errExamples, e.Task.Examples, len(e.shots[i]), d.subject, e.Fewshot)
		}
	}
	return nil
}

// draw draws the examples for each question in order.
func (e *Exam) draw(rows, pool []map[string]any, seed uint64) error {
	n := e.Fewshot
	if e.Task.apart {
		n++
	}
	if n > len(pool) {
		return fmt.Errorf("%w: split %s has %d documents, want %d", errExamples, e.Task.Examples, len(pool), n)
	}
	random := newMersenne(seed)
	for i := range e.docs {
		own := func(j int) bool { return e.Task.apart && reflect.DeepEqual(rows[i], pool[j]) }
		drawn := slices.DeleteFunc(random.sample(len(pool), n), own)
		if len(drawn) < e.Fewshot { // the document is in the pool more than once
			var others []int
			for j := range pool {
				if !own(j) {
					others = append(others, j)
				}
			}
			if len(others) < e.Fewshot {
				return fmt.Errorf("%w: split %s has %d documents that differ from question %d, want %d", errExamples, e.Task.Examples, len(others), i, e.Fewshot)
			}
			drawn = drawn[:0]
			for _, at := range random.sample(len(others), e.Fewshot) {
				drawn = append(drawn, others[at])
			}
		}
		for _, at := range drawn[:e.Fewshot] {
			e.shots[i] = append(e.shots[i], int32(at))
		}
	}
	return nil
}
