package background

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/event"
)

// slow is a model that needs a second per question and selects the first choice.
type slow struct {
	mu      sync.Mutex
	asked   int
	ended   int
	failing error
}

func (s *slow) MaxTokens() int { return 1 << 16 }

func (s *slow) LogLikelihoods(ctx context.Context, _ []int32, continuations [][]int32) ([]float64, error) {
	s.mu.Lock()
	s.asked++
	failing := s.failing
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		s.mu.Lock()
		s.ended++
		s.mu.Unlock()
		return nil, ctx.Err()
	}
	out := make([]float64, len(continuations))
	for i := range out {
		out[i] = -float64(1 + 1000*i)
	}
	return out, failing
}

func (s *slow) Write(_ context.Context, _ []int32, _ int, _ float64, _ uint64, emit func(int32) bool) error {
	emit('!')
	return nil
}

// exam returns questions whose correct answer is the first choice, except for the last question.
func exam(t *testing.T, questions int) *eval.Exam {
	t.Helper()
	line := `{"goal":"g","sol1":"a","sol2":"b","label":0}` + "\n"
	text := strings.Repeat(line, questions-1) + strings.Replace(line, ":0}", ":1}", 1)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "piqa"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "piqa", "validation.jsonl"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	tasks, err := eval.Parse("piqa")
	if err != nil {
		t.Fatal(err)
	}
	e, err := eval.Library{Folder: dir}.Open(t.Context(), tasks[0], eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// start returns a Runner of one exam, and the results that it has reported so far.
func start(t *testing.T, prompt bool) (r *Runner, reports func() []event.Evaluated) {
	t.Helper()
	var mu sync.Mutex
	var all []event.Evaluated
	r = Start(Options{Exams: []*eval.Exam{exam(t, 4)}, Prompt: prompt, Logger: slog.New(slog.DiscardHandler), Report: func(e event.Evaluated) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e)
	}})
	return r, func() []event.Evaluated {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestMeasuresEveryModelOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lm := &slow{}
		r, reports := start(t, true)
		defer r.Close()
		time.Sleep(time.Minute)
		if lm.asked > 0 {
			t.Fatal("asked without a model")
		}
		r.SetModel(&eval.Reader{LM: lm, Coder: tokenizer.Bytes()}, 7)
		time.Sleep(time.Minute)
		got := reports()
		if len(got) != 2 || got[0].Step != 7 || got[0].Samples != 4 || got[0].Scores["acc"] != 0.75 || got[0].Seconds != 4 || got[1].Task != eval.PromptTask || !strings.HasSuffix(got[1].Text, "!") {
			t.Fatalf("reported %+v", got)
		}
		r.SetStep(8)
		time.Sleep(time.Minute)
		if got = reports(); len(got) != 4 || got[2].Step != 8 || lm.asked != 8 {
			t.Errorf("reported %+v, asked %d times", got, lm.asked)
		}
		r.SetModel(nil, 0)
		r.SetStep(9)
		time.Sleep(time.Minute)
		if lm.asked != 8 {
			t.Errorf("asked %d times", lm.asked)
		}
	})
}

// TestQuestionYieldsAtOnce has a training that is active most of the time.
func TestQuestionYieldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lm := &slow{}
		r, reports := start(t, false)
		defer r.Close()
		r.SetModel(&eval.Reader{LM: lm, Coder: tokenizer.Bytes()}, 0)
		for step := range uint32(3) {
			time.Sleep(1500 * time.Millisecond) // for one and a half questions
			done := r.Busy()
			synctest.Wait()
			asked := lm.asked
			if lm.ended != int(step)+1 {
				t.Errorf("step %d: %d questions were ended", step, lm.ended)
			}
			time.Sleep(10 * time.Second)
			if lm.asked != asked {
				t.Fatal("asked while the model was needed")
			}
			r.SetStep(step + 1)
			done()
			done()
			time.Sleep(idleDelay - time.Millisecond)
			if synctest.Wait(); lm.asked != asked {
				t.Fatal("asked too early")
			}
		}
		time.Sleep(10 * time.Second)
		got := reports()
		if len(got) == 0 || got[0].Samples != 4 || got[0].Step != 3 || got[0].Scores["acc"] != 0.75 {
			t.Errorf("reported %+v", got)
		}
	})
}

func TestCompleteMeasuresOneModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lm := &slow{}
		r, reports := start(t, false)
		r.SetModel(&eval.Reader{LM: lm, Coder: tokenizer.Bytes()}, 1)
		time.Sleep(2500 * time.Millisecond)
		r.SetStep(2)
		synctest.Wait()
		r.Complete(t.Context())
		got := reports()
		if len(got) != 1 || got[0].Step != 2 || got[0].Samples != 4 {
			t.Fatalf("reported %+v", got)
		}
		asked := lm.asked
		if r.Complete(t.Context()); lm.asked != asked {
			t.Error("measured twice")
		}
		r.SetStep(3)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if r.Complete(ctx); len(reports()) != 1 {
			t.Error("reported an unfinished task")
		}
	})
}

func TestTasksThatCannotBeAskedAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lm := &slow{failing: os.ErrInvalid}
		r, reports := start(t, true)
		defer r.Close()
		r.SetModel(&eval.Reader{LM: lm, Coder: tokenizer.Bytes()}, 1)
		time.Sleep(time.Minute)
		if got := reports(); lm.asked != 1 || len(got) != 1 || got[0].Task != eval.PromptTask {
			t.Errorf("asked %d times, reported %+v", lm.asked, got)
		}
	})
}

func TestChangedModelsAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lm := &slow{failing: train.ErrChanged}
		r, reports := start(t, false)
		defer r.Close()
		r.SetModel(&eval.Reader{LM: lm, Coder: tokenizer.Bytes()}, 1)
		time.Sleep(3500 * time.Millisecond)
		lm.mu.Lock()
		lm.failing = nil
		lm.mu.Unlock()
		time.Sleep(time.Minute)
		if got := reports(); len(got) != 1 || got[0].Samples != 4 || lm.asked < 6 {
			t.Errorf("asked %d times, reported %+v", lm.asked, got)
		}
	})
}

// TestFewQuestionsInACrowd checks that the questions use a two-hundredth of the time while other
// processes want the processors.
func TestFewQuestionsInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lm := &slow{}
		crowded := true
		var mu sync.Mutex
		r := Start(Options{Exams: []*eval.Exam{exam(t, 400)}, Logger: slog.New(slog.DiscardHandler), Report: func(event.Evaluated) {}, Crowded: func() bool {
			mu.Lock()
			defer mu.Unlock()
			return crowded
		}})
		defer r.Close()
		r.SetModel(&eval.Reader{LM: lm, Coder: tokenizer.Bytes()}, 1)
		asked := func() int {
			lm.mu.Lock()
			defer lm.mu.Unlock()
			return lm.asked
		}
		time.Sleep(40 * time.Minute)
		before := asked()
		if before < 11 || before > 13 {
			t.Errorf("%d questions of a second each in forty minutes, want twelve", before)
		}
		mu.Lock()
		crowded = false
		mu.Unlock()
		time.Sleep(time.Minute)
		if more := asked() - before; more < 58 {
			t.Errorf("%d questions in the minute after the other processes have ended", more)
		}
	})
}
