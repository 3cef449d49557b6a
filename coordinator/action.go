package coordinator

import "github.com/psyche-go/psyche/bloom"

// Action is an input of the state machine that somebody signed.
type Action interface{ action() }

// Join asks for a place in the next epoch. It says that the sender holds no model: a
// member of the running epoch that joins loses its place in that epoch, and a pending
// client that was a member goes behind the others. Members that go on need not join.
type Join struct {
	Epoch uint32 // Progress.Epoch that the sender saw: an old Join cannot be replayed
}

// Ready says that a member holds the epoch's model (Warmup).
type Ready struct {
	Epoch uint32
}

// WitnessRound is an elected witness's proof for the running round (RoundTrain, RoundWitness).
type WitnessRound struct {
	Step            uint32
	Participants    bloom.Filter // IDs of members whose verified result it holds, keyed by Round.Seed
	Commitments     bloom.Filter // at most one commitment for each batch, keyed by Round.Seed
	CommitmentsRoot [32]byte     // merkle.Root over all batches ascending, zero leaf where none is held
	Replica         [32]byte
}

// HealthCheck accuses members whose results the quorum of the previous round's
// witnesses did not see.
type HealthCheck struct {
	Step    uint32 // of the round that the accusation is about
	Clients []ClientID
}

// ReportCheckpoint says which model a member holds after applying everything
// outstanding (Cooldown).
type ReportCheckpoint struct {
	Step   uint32 // Progress.Step in Cooldown: the last round's step plus one
	Digest [32]byte
}

// Withdraw takes a client out of the epoch and of the pending list. The client itself
// or the host may send it.
type Withdraw struct {
	Client ClientID
}

// SetPaused pauses or resumes the run. Only the host may send it.
type SetPaused struct {
	Paused bool
}

func (Join) action()             {}
func (Ready) action()            {}
func (WitnessRound) action()     {}
func (HealthCheck) action()      {}
func (ReportCheckpoint) action() {}
func (Withdraw) action()         {}
func (SetPaused) action()        {}
