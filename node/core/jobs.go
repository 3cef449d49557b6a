package core

import (
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// ID identifies started work.
type ID uint64

// Jobs tracks the work of a trainer, which does one thing at a time. The zero value has an idle
// trainer. It is not safe for concurrent use.
type Jobs struct {
	work   Work   // nil: the trainer is idle
	cancel func() // asks the executor of work to stop
	id     ID     // of the newest work
	since  uint64 // generation of its scope when it started

	generations [scopes]uint64
}

// Start records that the idle trainer starts work. Jobs calls cancel, perhaps more than once, if the
// work should stop early.
func (j *Jobs) Start(w Work, cancel func()) ID {
	if j.work != nil {
		panic("core: the trainer is busy")
	}
	j.id++
	j.work, j.cancel, j.since = w, cancel, j.generations[w.scope()]
	return j.id
}

// Done records that work has ended, and reports whether its result is wanted. It is not if the scope
// of the work has ended since the start, or if Done was called before.
func (j *Jobs) Done(id ID) (wanted bool) {
	if j.work == nil || id != j.id {
		return false
	}
	wanted = j.since == j.generations[j.work.scope()]
	j.work, j.cancel = nil, nil
	return wanted
}

// End ends a scope: the results of work that started before are stale.
func (j *Jobs) End(s Scope) { j.generations[s]++ }

// Idle reports whether the trainer is idle.
func (j *Jobs) Idle() bool { return j.work == nil }

// Work returns the trainer's work, or nil if the trainer is idle.
func (j *Jobs) Work() Work { return j.work }

// Cancel stops the trainer's work. A training that began ahead of its round counts as never
// started, even if the round starts before the trainer has stopped.
func (j *Jobs) Cancel() {
	if j.work == nil {
		return
	}
	j.Begin()
	j.cancel()
}

// CancelTraining stops a training unless keep returns true for its step.
func (j *Jobs) CancelTraining(keep func(step uint32) bool) {
	if t, is := j.work.(Train); is && !keep(t.Step) {
		j.Cancel()
	}
}

// CancelRecomputation stops a recomputation. It stops an urgent one only if urgent is true. All other
// work has precedence over a recomputation that is not urgent.
func (j *Jobs) CancelRecomputation(urgent bool) {
	if r, is := j.work.(Recompute); is && (urgent || !r.Urgent) {
		j.Cancel()
	}
}

// CancelLoad stops loading a model other than the wanted checkpoint. Otherwise a holder that sends a
// byte now and then could keep the client from the next epoch, or from its end. The received parts
// are kept.
func (j *Jobs) CancelLoad(wanted coordinator.Checkpoint) {
	switch w := j.work.(type) {
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
	if r, is := j.work.(Recompute); is {
		r.Urgent = false
		j.work = r
	}
}

// Ahead returns the batch of a training of the step whose round has not started. ok is false if
// there is no such training.
func (j *Jobs) Ahead(step uint32) (batch assign.BatchID, ok bool) {
	t, is := j.work.(Train)
	return t.Batch, is && t.Ahead && t.Step == step
}

// Begin records that a training is not, or no longer, ahead of its round.
func (j *Jobs) Begin() {
	if t, is := j.work.(Train); is {
		t.Ahead = false
		j.work = t
	}
}
