package background

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/event"
)

// idleDelay is how long the model must have been unused before a question is asked. Within a round,
// the model is unused for shorter times, which are too short for a question.
const idleDelay = 50 * time.Millisecond

// crowdedShare is the length of the pause after a question, as a multiple of the question's time,
// if other programs keep all processors busy. It leaves a two-hundredth of one processor for
// questions. With a fiftieth, rounds of five clients on two processors took 3.3 % longer.
const crowdedShare = 200

// Options are the settings of a Runner.
type Options struct {
	Exams  []*eval.Exam
	Prompt bool // also write a text in each pass
	Seed   uint64
	// Report is called after every completed task. It must not block.
	Report func(event.Evaluated)
	Logger *slog.Logger
	// Crowded reports whether other programs keep all processors busy, such as other trainers of
	// the run. If so, the Runner asks few questions. nil: never.
	Crowded func() bool
}

// Runner measures a model. Its methods are safe for concurrent use.
type Runner struct {
	options      Options
	tasks        []*task
	end          context.CancelFunc
	done         chan struct{}
	lastQuestion time.Time // when the last question ended; used only by run, like took
	took         time.Duration

	mu     sync.Mutex
	reader *eval.Reader // nil: no model
	step   uint32       // of the model
	users  int          // number of users that need the model now
	since  time.Time    // when the last user stopped needing it
	change chan struct{}
	asking context.CancelFunc // cancels the current question; nil: none
}

// task is an exam, or the generation of a text, in progress.
type task struct {
	exam    *eval.Exam // nil: a text is generated
	next    int        // next question
	tally   eval.Tally
	seconds float64
	first   uint32 // step of the model that answered the first question
	through uint32 // step of the model at the last complete pass
	ever    bool
	dropped bool // its questions cannot be asked
}

// Start starts a Runner, which waits for a model.
func Start(o Options) *Runner {
	ctx, end := context.WithCancel(context.Background())
	r := &Runner{options: o, end: end, done: make(chan struct{}), change: make(chan struct{})}
	for _, exam := range o.Exams {
		r.tasks = append(r.tasks, &task{exam: exam})
	}
	if o.Prompt {
		r.tasks = append(r.tasks, &task{})
	}
	go r.run(ctx)
	return r
}

// Close cancels the current question and stops the Runner.
func (r *Runner) Close() {
	r.end()
	<-r.done
}

// SetModel sets the model to measure; nil removes it.
func (r *Runner) SetModel(reader *eval.Reader, step uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reader, r.step = reader, step
	r.changed()
}

// SetStep reports that the model is now the model of another step.
func (r *Runner) SetStep(step uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = step
	r.changed()
}

// Busy records that the caller needs the model, until the caller calls done.
func (r *Runner) Busy() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users++
	if r.asking != nil {
		r.asking()
	}
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.users--
		r.since = time.Now()
		r.changed()
	})
}

// changed wakes up all waiters. The caller must hold the lock.
func (r *Runner) changed() {
	close(r.change)
	r.change = make(chan struct{})
}

// Complete measures the current model in every task, until ctx ends. If another model has answered
// some questions of a task, Complete restarts that task from its first question.
func (r *Runner) Complete(ctx context.Context) {
	r.Close()
	for _, t := range r.tasks {
		r.mu.Lock()
		reader, step := r.reader, r.step
		r.mu.Unlock()
		if reader == nil || t.ever && t.through == step && t.next == 0 {
			continue
		}
		if t.next > 0 && t.first != step {
			t.restart()
		}
		for ctx.Err() == nil && !t.dropped {
			r.ask(ctx, t, reader, step)
			if t.next == 0 {
				break
			}
		}
	}
}

func (r *Runner) run(ctx context.Context) {
	defer close(r.done)
	for {
		t := r.wait(ctx)
		if t == nil {
			return
		}
		asking, end := context.WithCancel(ctx)
		r.mu.Lock()
		free := r.users == 0 && r.reader != nil
		reader, step := r.reader, r.step
		if free {
			r.asking = end
		}
		r.mu.Unlock()
		if free {
			begun := time.Now()
			r.ask(asking, t, reader, step)
			r.lastQuestion, r.took = time.Now(), time.Since(begun)
		}
		r.mu.Lock()
		r.asking = nil
		r.mu.Unlock()
		end()
	}
}

// wait returns the next task once the model is unused, or nil at the end.
func (r *Runner) wait(ctx context.Context) *task {
	for {
		r.mu.Lock()
		t, change := r.due(), r.change
		pause := time.Duration(math.MaxInt64)
		if r.reader != nil && r.users == 0 && t != nil {
			if pause = idleDelay - time.Since(r.since); pause <= 0 && ctx.Err() == nil {
				if pause = r.rest(); pause <= 0 {
					r.mu.Unlock()
					return t
				}
			}
		}
		r.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-change:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// rest returns how long to wait before the load of the processors is checked again, or 0 if a
// question may be asked now.
func (r *Runner) rest() time.Duration {
	rest := crowdedShare*r.took - time.Since(r.lastQuestion)
	if rest <= 0 || r.options.Crowded == nil || !r.options.Crowded() {
		return 0
	}
	return min(rest, idleDelay)
}

// due returns the task to continue or start: a started task, or else a task that was never
// completed, or else the task whose last completion is the oldest. A task that this model completed
// is not due.
func (r *Runner) due() *task {
	var oldest *task
	for _, t := range r.tasks {
		switch {
		case t.dropped:
		case t.next > 0:
			return t
		case t.ever && t.through == r.step:
		case oldest == nil, !t.ever && oldest.ever, t.ever == oldest.ever && t.through < oldest.through:
			oldest = t
		}
	}
	return oldest
}

// ask asks the next question of a task. A question that was cancelled, or answered by two models,
// is asked again.
func (r *Runner) ask(ctx context.Context, t *task, reader *eval.Reader, step uint32) {
	begun := time.Now()
	if t.next == 0 {
		t.first = step
	}
	var question eval.Question
	var answer eval.Answer
	var err error
	name, questions := eval.PromptTask, 1
	if t.exam == nil {
		prompt := eval.Prompt(uint64(step))
		answer.Text, err = reader.GoOn(ctx, prompt, r.options.Seed)
		answer.Text = prompt + answer.Text
	} else {
		name, questions = t.exam.Task.Name, t.exam.Len()
		question = t.exam.Question(t.next)
		answer, err = reader.Ask(ctx, question)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.Is(err, train.ErrChanged), errors.Is(err, train.ErrClosed):
		return
	default:
		r.options.Logger.Warn("a task failed; this client no longer measures it", "task", name, "err", err)
		t.dropped = true
		return
	}
	t.tally.Add(question, answer)
	t.seconds += time.Since(begun).Seconds()
	if t.next++; t.next < questions {
		return
	}
	report := event.Evaluated{Step: step, Task: name, Samples: t.tally.Questions, Seconds: t.seconds, Text: answer.Text, Scores: map[string]float64{}}
	if t.exam != nil {
		report.Scores, report.Text = t.tally.Scores(t.exam.Metrics()), ""
	}
	t.restart()
	t.ever, t.through = true, step
	r.options.Report(report)
}

func (t *task) restart() { t.next, t.tally, t.seconds = 0, eval.Tally{}, 0 }
