package core

import (
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// ID identifies started work.
type ID uint64

// Jobs tracks the work of a member: of its trainer, which does one thing at a time, and of tasks that
// run concurrently with it. In the zero value nothing runs. It is not safe for concurrent use.
type Jobs struct {
	trainer *job // nil: the trainer is idle
	running map[ID]*job
	newest  ID

	generations [scopes]uint64 // number of times that each scope ended
}

// job is work in progress.
type job struct {
	work   Work
	cancel func() // asks the executor to stop; only for work of the trainer
	since  uint64 // generation of its scope when it started
}

// dropped is a generation that no scope reaches.
const dropped = ^uint64(0)

// Start records that the idle trainer starts work. Jobs calls cancel, perhaps more than once, if the
// work should stop early.
func (j *Jobs) Start(w Work, cancel func()) ID {
	if j.trainer != nil {
		panic("core: the trainer is busy")
	}
	id := j.Spawn(w)
	j.trainer = j.running[id]
	j.trainer.cancel = cancel
	return id
}

// Spawn records that work starts that does not use the trainer.
func (j *Jobs) Spawn(w Work) ID {
	if j.running == nil {
		j.running = make(map[ID]*job)
	}
	j.newest++
	j.running[j.newest] = &job{work: w, since: j.generations[w.scope()]}
	return j.newest
}

// Wanted reports whether the result of work in progress is wanted. It is not if the scope of the work
// has ended since the start, or if the work was dropped or has ended.
func (j *Jobs) Wanted(id ID) bool {
	w := j.running[id]
	return w != nil && w.since == j.generations[w.work.scope()]
}

// Done records that work has ended, and reports whether its result is wanted.
func (j *Jobs) Done(id ID) (wanted bool) {
	wanted = j.Wanted(id)
	if j.trainer == j.running[id] {
		j.trainer = nil
	}
	delete(j.running, id)
	return wanted
}

// Drop makes the result of work in progress stale. The work continues.
func (j *Jobs) Drop(id ID) {
	if w := j.running[id]; w != nil {
		w.since = dropped
	}
}

// End ends a scope: the results of work that started before are stale.
func (j *Jobs) End(s Scope) { j.generations[s]++ }

// Idle reports whether the trainer is idle.
func (j *Jobs) Idle() bool { return j.trainer == nil }

// Work returns the trainer's work, or nil if the trainer is idle.
func (j *Jobs) Work() Work {
	if j.trainer == nil {
		return nil
	}
	return j.trainer.work
}

// Cancel stops the trainer's work. A training that began ahead of its round counts as never
// started, even if the round starts before the trainer has stopped.
func (j *Jobs) Cancel() {
	if j.trainer != nil {
		j.begin()
		j.trainer.cancel()
	}
}

// cancelTraining stops a training unless keep returns true for its step.
func (j *Jobs) cancelTraining(keep func(step uint32) bool) {
	if t, is := j.Work().(Train); is && !keep(t.Step) {
		j.Cancel()
	}
}

// none is an argument of cancelTraining that keeps no training.
func none(uint32) bool { return false }

// cancelRecomputation stops a recomputation. It stops an urgent one only if urgent is true. All other
// work has precedence over a recomputation that is not urgent.
func (j *Jobs) cancelRecomputation(urgent bool) {
	if r, is := j.Work().(Recompute); is && (urgent || !r.Urgent) {
		j.Cancel()
	}
}

// cancelMeasurement stops a measurement.
func (j *Jobs) cancelMeasurement() {
	if _, is := j.Work().(Measure); is {
		j.Cancel()
	}
}

// cancelRehearsal stops a rehearsal.
func (j *Jobs) cancelRehearsal() {
	if _, is := j.Work().(Rehearse); is {
		j.Cancel()
	}
}

// cancelLoad stops loading a model other than the wanted checkpoint. Otherwise a holder that sends a
// byte now and then could keep the client from the next epoch, or from its end. The received parts
// are kept.
func (j *Jobs) cancelLoad(wanted coordinator.Checkpoint) {
	switch w := j.Work().(type) {
	case Load:
		if w.From != wanted {
			j.Cancel()
		}
	case Replay:
		if w.From != wanted {
			j.Cancel()
		}
	}
}

// Yield ends the urgency of a recomputation.
func (j *Jobs) Yield() {
	if r, is := j.Work().(Recompute); is {
		r.Urgent = false
		j.trainer.work = r
	}
}

// ahead returns the batch of a training of the step whose round has not started. ok is false if
// there is no such training.
func (j *Jobs) ahead(step uint32) (batch assign.BatchID, ok bool) {
	t, is := j.Work().(Train)
	return t.Batch, is && t.Ahead && t.Step == step
}

// begin records that a training is not, or no longer, ahead of its round.
func (j *Jobs) begin() {
	if t, is := j.Work().(Train); is {
		t.Ahead = false
		j.trainer.work = t
	}
}
