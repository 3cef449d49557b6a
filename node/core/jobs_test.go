package core

import (
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// TestResultsOfAnEndedScope checks for each kind of work which ends make its result stale. The
// trainer is busy until its work has ended, stale or not.
func TestResultsOfAnEndedScope(t *testing.T) {
	for _, w := range []Work{Load{}, Prepare{}, Train{}, Apply{}, Speculate{}, Snapshot{}, Keep{}, Measure{}, Replay{}, Recompute{}, Check{}, Read{}, Hash{}, WriteIntermediate{}, Write{}} {
		for end := Process; end < scopes; end++ {
			var j Jobs
			j.End(end)
			before := j.Start(w, func() {})
			if j.End(end); j.Idle() {
				t.Errorf("%T: the trainer is idle before the work has ended", w)
			}
			if wanted := j.Done(before); wanted == (w.scope() == end) {
				t.Errorf("%T: wanted %v after the end of scope %d", w, wanted, end)
			}
			if !j.Idle() || j.Done(before) {
				t.Errorf("%T: it ends twice", w)
			}
			if after := j.Start(w, func() {}); j.Done(before) || !j.Done(after) {
				t.Errorf("%T: the next work is not wanted", w)
			}
		}
	}
}

// TestTasks checks that tasks run concurrently with the trainer's work, and that only the dropped
// one of two is stale.
func TestTasks(t *testing.T) {
	var j Jobs
	one, two := j.Spawn(Read{}), j.Spawn(Hash{})
	if !j.Idle() || j.Work() != nil {
		t.Error("a task makes the trainer busy")
	}
	train := j.Start(Train{}, func() {})
	if j.Drop(one); j.Wanted(one) || !j.Wanted(two) || !j.Wanted(train) {
		t.Error("the wrong result is dropped")
	}
	if j.Done(one) || !j.Done(two) || j.Idle() || !j.Done(train) || !j.Idle() || j.Wanted(two) {
		t.Error("the wrong work has ended")
	}
	j.Drop(one) // it has ended
}

// TestCancel checks which work each call stops.
func TestCancel(t *testing.T) {
	one, two := coordinator.Checkpoint{Repo: "one"}, coordinator.Checkpoint{Repo: "two"}
	calls := map[string]func(j *Jobs){
		"all":       (*Jobs).Cancel,
		"training":  func(j *Jobs) { j.cancelTraining(func(step uint32) bool { return step == 2 }) },
		"audit":     func(j *Jobs) { j.cancelRecomputation(false) },
		"any audit": func(j *Jobs) { j.cancelRecomputation(true) },
		"measuring": (*Jobs).cancelMeasurement,
		"load":      func(j *Jobs) { j.cancelLoad(one) },
	}
	for _, test := range []struct {
		work  Work
		stops []string
	}{
		{Train{Step: 1}, []string{"all", "training"}},
		{Train{Step: 2}, []string{"all"}},
		{Apply{Step: 1}, []string{"all"}},
		{Measure{}, []string{"all", "measuring"}},
		{Recompute{}, []string{"all", "audit", "any audit"}},
		{Recompute{Urgent: true}, []string{"all", "any audit"}},
		{Load{From: one}, []string{"all"}},
		{Load{From: two}, []string{"all", "load"}},
		{Replay{From: two}, []string{"all", "load"}},
	} {
		stops := map[string]bool{}
		for _, name := range test.stops {
			stops[name] = true
		}
		for name, call := range calls {
			var j Jobs
			call(&j) // nothing to stop
			stopped := false
			id := j.Start(test.work, func() { stopped = true })
			if call(&j); stopped != stops[name] || !j.Done(id) {
				t.Errorf("%s stops %#v: %v", name, test.work, stopped)
			}
		}
	}
}

// TestAhead checks that a training ahead of its round is one until its round begins or it is
// cancelled, and that a recomputation that yields is stopped by other work.
func TestAhead(t *testing.T) {
	batch := assign.BatchID{Start: 3, End: 5}
	for name, end := range map[string]func(j *Jobs){"its round begins": (*Jobs).begin, "it is cancelled": (*Jobs).Cancel} {
		var j Jobs
		j.Start(Train{Step: 7, Batch: batch, Ahead: true}, func() {})
		if got, ok := j.ahead(7); !ok || got != batch {
			t.Errorf("it trains %v ahead: %v", got, ok)
		}
		if _, ok := j.ahead(6); ok {
			t.Error("it trains another step ahead")
		}
		if end(&j); j.Idle() {
			t.Error("it has ended")
		}
		if _, ok := j.ahead(7); ok {
			t.Errorf("it is ahead although %s", name)
		}
	}
	var j Jobs
	stopped := false
	j.Yield()
	j.Start(Recompute{Urgent: true}, func() { stopped = true })
	j.Yield()
	if j.cancelRecomputation(false); !stopped {
		t.Error("a recomputation that is not urgent any more continues")
	}
}
