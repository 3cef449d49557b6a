package models

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// Copy is a copy of an intermediate checkpoint: the model after a step of the running epoch.
type Copy struct {
	coordinator.Recorded
	Memory *checkpoint.Snapshot // nil: it is on the disk
	Facts  checkpoint.Facts     // zero: unknown, because the model is from another member
}

// Size returns the bytes of a model's tensors.
func Size(s checkpoint.Snapshot) (size int) {
	for _, tensor := range s.Tensors {
		size += len(tensor.Data)
	}
	return size
}

// isRecorded reports whether the run has recorded a model.
func isRecorded(s *coordinator.State, r coordinator.Recorded) bool {
	c := s.Model.Checkpoint
	return r == s.Epoch.Commit || c.FromPeers() && r.Digest == c.Digest || slices.Contains(s.Earlier, r)
}

// inRound reports whether a round is running.
func inRound(s *coordinator.State) bool {
	return s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness
}
