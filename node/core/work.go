package core

import (
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Work is an operation of the trainer, or a task that runs concurrently with it. Its types are in this
// file.
type Work interface{ scope() Scope }

// Scope is the part of a member's state that the result of work belongs to. When a scope ends, all
// results of work that started before are stale.
type Scope uint8

// Scopes.
const (
	Process      Scope = iota // never ends: the result describes the trainer itself, or its disk
	ReplicaScope              // ends when the member leaves its replica of an epoch
	Return                    // ends when the member's return to an epoch begins again
	Weights                   // ends when the member's weights prove to differ from the run's

	scopes
)

type (
	// Load loads the model of a checkpoint into the trainer.
	Load struct{ From coordinator.Checkpoint }

	// Prepare sets the optimizer up.
	Prepare struct{}

	// Train trains a batch.
	Train struct {
		Step  uint32
		Batch assign.BatchID
		Ahead bool // the round of the step has not started
	}

	// Rehearse measures the speed of training.
	Rehearse struct{}

	// Apply applies the counted results of a step to the weights.
	Apply struct{ Step uint32 }

	// Speculate moves the weights by the results of a step before a quorum confirms that they count.
	Speculate struct{ Step uint32 }

	// Snapshot copies the model after a step, or lends it to the task that writes it to the disk.
	Snapshot struct{ Step uint32 }

	// Keep copies the optimizer's state, or writes it to the disk, with or without the trainer.
	Keep struct{}

	// Measure measures the model after a step on held-out data.
	Measure struct{ Step uint32 }

	// Replay applies the results of the running epoch, up to a step, to the model of a checkpoint.
	Replay struct {
		From  coordinator.Checkpoint
		Until uint32
	}

	// Recompute recomputes another member's result of a step.
	Recompute struct {
		Step   uint32
		Urgent bool // other work waits for it
	}
)

// Work without the trainer.
type (
	// Check checks whether the member can do its part in the run.
	Check struct{}

	// Read reads the tokens of a batch.
	Read struct{ Batch assign.BatchID }

	// Hash hashes a copy of the model after a step, an intermediate checkpoint.
	Hash struct{ Step uint32 }

	// WriteIntermediate writes an intermediate checkpoint to the disk.
	WriteIntermediate struct{ Step uint32 }

	// Write writes the model at the end of an epoch to the disk, from the trainer's memory.
	Write struct{ Step uint32 }
)

func (Load) scope() Scope              { return Process }
func (Prepare) scope() Scope           { return Process }
func (Train) scope() Scope             { return ReplicaScope }
func (Rehearse) scope() Scope          { return Process }
func (Apply) scope() Scope             { return ReplicaScope }
func (Speculate) scope() Scope         { return ReplicaScope }
func (Snapshot) scope() Scope          { return ReplicaScope }
func (Keep) scope() Scope              { return Process }
func (Measure) scope() Scope           { return Weights }
func (Replay) scope() Scope            { return Return }
func (Recompute) scope() Scope         { return Process }
func (Check) scope() Scope             { return Process }
func (Read) scope() Scope              { return Process }
func (Hash) scope() Scope              { return Weights }
func (WriteIntermediate) scope() Scope { return Weights }
func (Write) scope() Scope             { return ReplicaScope }
