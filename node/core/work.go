package core

import (
	"time"

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
	// Load loads a model into the trainer.
	Load struct {
		From    coordinator.Checkpoint // the run's checkpoint
		Taken   coordinator.Recorded   // the intermediate checkpoint of the running epoch to load instead; Step 0: none
		Sources []Source               // tried in this order
		Rebuild bool                   // the trainer is built again
		Again   bool                   // ask the same holders as in the attempt before
		Limit   time.Duration          // time limit; 0: none
		Answer  time.Duration          // time limit of the first request to a holder; 0: the usual one
	}

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
	Apply struct {
		Step uint32
		Take bool // also take the model after the step
	}

	// Speculate moves the weights by the results of a step before a quorum confirms that they count.
	Speculate struct{ Step uint32 }

	// Snapshot copies the model after a step, or lends it to the task that writes it to the disk.
	Snapshot struct{ Step uint32 }

	// Keep copies the optimizer's state, or writes it to the disk, with or without the trainer.
	Keep struct{}

	// Measure measures a model on held-out data.
	Measure struct{ coordinator.Recorded }

	// Replay applies the results of the running epoch after a step, up to another, and takes the replica
	// hash of a quorum. If both steps are the same, it only takes the hash.
	Replay struct {
		From         coordinator.Checkpoint // the run's checkpoint
		After, Until uint32
		Hash         [32]byte // replica hash after After; zero: unknown
		Quorum
	}

	// Recompute recomputes another member's result of a step.
	Recompute struct {
		Step   uint32
		Urgent bool // other work waits for it
	}
)

// Source is a source of a model.
type Source uint8

// Sources of a model. A source that lacks the model is skipped.
const (
	SharedModel  Source = iota // the model itself, which peers can fetch from this member
	OwnCopy                    // a copy in memory that was taken during the model's epoch
	OwnDisk                    // the checkpoint folder
	OwnResults                 // an older model, and the results that were counted since then
	OtherMembers               // members that hold it
	Archives                   // locations that members reported, or that the user configured
	FirstModel                 // the location of the model that the run started with
)

// Wanted returns the checkpoint that a Load loads.
func (w *Load) Wanted() coordinator.Checkpoint {
	if w.Taken.Step != 0 {
		return w.From.Recorded(w.Taken)
	}
	return w.From
}

// Quorum is the replica value that a quorum of a round's witnesses signed.
type Quorum struct {
	Step  uint32   // newest step that the replica includes
	Round uint32   // step of the round
	Said  [32]byte // replica value, bound to the head of the log at the start of the round
}

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
