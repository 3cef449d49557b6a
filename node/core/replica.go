package core

import "github.com/psyche-go/psyche/core/coordinator"

// Replica is the state of a member that follows an epoch with the epoch's model.
type Replica struct {
	Epoch   Epoch
	Hash    [32]byte // after Step
	Before  [32]byte // after Step - 1; in the first round Hash
	Step    uint32   // newest applied step; before the first round the epoch's start step - 1
	Has     uint32   // newest step whose results the weights include; may exceed Step after a return to the epoch
	Closing bool     // the epoch's rounds are over

	ColdSteps   uint32   // length of the epoch's cold start
	From        [32]byte // digest of the model that the epoch started with
	OtherModels bool     // other members were found to have started from another model
}

// IsAfter reports whether the weights are too new for the results of a round.
func (r *Replica) IsAfter(step, lag uint32) bool {
	return r != nil && r.Has >= r.Epoch.StartStep && r.Has+lag > step
}

// follows reports whether a member has a replica of an epoch with further rounds.
func (r *Replica) follows() bool { return r != nil && !r.Closing }

// Recorded returns the newest step that the run's model includes after the replica's epoch. known is
// false until the epoch's Cooldown is over.
func (r *Replica) Recorded(s *coordinator.State) (known bool, step uint32) {
	switch s.RunState {
	case coordinator.RoundTrain, coordinator.RoundWitness, coordinator.Cooldown:
		if s.Epoch.StartStep == r.Epoch.StartStep {
			return false, 0
		}
	}
	if c := s.Model.Checkpoint; c.FromPeers() {
		return true, c.Step
	}
	return true, s.OriginStep - 1
}
