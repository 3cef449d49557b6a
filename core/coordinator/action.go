package coordinator

import "github.com/psyche-go/psyche/core/bloom"

// Action is an input of the state machine that somebody signed.
type Action interface{ action() }

// Join asks for a place in the next epoch. It says that the sender holds no model: a
// member of the running epoch that joins loses its place in that epoch, and a pending
// client that was a member goes behind the others. Members that go on need not join.
//
// With Holds it says that it can load the run's checkpoint by itself, such as from its
// disk after everybody was gone. A client that says so falsely costs the others a Warmup.
//
// Its Commitment is the SHA-256 of what it reveals next, by its first Ready for the draws of rounds;
// zero commits to nothing. A pending client may replace it.
//
// Its Name is for people. The rules do not look at it, and no state keeps it.
type Join struct {
	Epoch      uint32 // Progress.Epoch that the sender saw: an old Join cannot be replayed
	Commitment [32]byte
	Holds      [32]byte // digest of the checkpoint that it holds; zero for none
	Name       string   // that the sender gives itself, at most MaxMemberName bytes; empty for none
}

// MaxMemberName bounds the name that a member gives itself, in bytes.
const MaxMemberName = 32

// Ready says that a member holds the epoch's model (Warmup). It reveals what the member
// committed to, and commits to what its next Ready will reveal.
type Ready struct {
	Epoch  uint32
	Reveal [32]byte // zero when it had committed to nothing
	Next   [32]byte // the new commitment; zero commits to nothing
}

// Return asks for the own seat in the running epoch back, which the sender left or was dropped
// from (RoundTrain, RoundWitness). It says that the sender holds the model of the running round.
type Return struct {
	Epoch uint32
}

// WitnessRound is an elected witness's proof for the running round (RoundTrain, RoundWitness).
type WitnessRound struct {
	Step            uint32
	Participants    bloom.Filter // IDs of members whose verified result it holds, keyed by Round.Seed
	Commitments     bloom.Filter // at most one commitment for each batch, keyed by Round.Seed
	CommitmentsRoot [32]byte     // merkle.Root over all batches ascending, zero leaf where none is held
	Replica         [32]byte
	Reveal          [32]byte // what the sender had committed to, for Round.Challenge; zero reveals nothing
	Claim           Claim
}

// HealthCheck accuses members whose results the quorum of the previous round's
// witnesses did not see: they are late, or, late before, dropped or slow.
type HealthCheck struct {
	Step    uint32 // of the round that the accusation is about
	Clients []ClientID
}

// ReportCheckpoint says which model a member holds after applying everything up to a step: in Cooldown
// the last one, else any that is done.
type ReportCheckpoint struct {
	Step   uint32 // the first that the model has not seen; Progress.Step in Cooldown
	Digest [32]byte
}

// ReportUpload says where anybody can get a checkpoint that the run recorded. A member may
// send it, and a pending client that holds the model, also while the run is paused. An upload may take
// longer than epochs: the checkpoint may be one of the newest before the present one.
type ReportUpload struct {
	Step   uint32   // of the checkpoint
	Digest [32]byte // of the checkpoint
	Place  Place
}

// Withdraw takes a client out of the epoch and of the pending list. The client itself
// or the host may send it.
type Withdraw struct {
	Client ClientID
}

// SetPaused pauses or resumes the run. Only the main authority may send it.
type SetPaused struct {
	Paused bool
}

// UpdateConfig replaces the rules and the model of a paused run. Progress, members and
// seeds are kept. Only the main authority may send it.
//
// A Model.Checkpoint that is the run's present one, or the origin that it came from,
// keeps the present one; any other must be one that can be had without peers, and is
// what the next epoch starts from. MaxSeqLen cannot change once data was trained on.
type UpdateConfig struct {
	Config Config
	Model  Model
}

// Authorize admits a key to a permissioned run, or ends its admission together with
// that of its delegates: those of them that wait are withdrawn, those that are members stay until
// the epoch's end. Only the join authority may send it.
type Authorize struct {
	Grantee ClientID
	Allowed bool
}

// SetDelegates replaces the keys that may join in the sender's name. The sender must
// be authorized itself.
type SetDelegates struct {
	Number    uint32 // of the sender's authorization: what it sent before a new one cannot be replayed
	Delegates []ClientID
}

// Eject removes a client: a pending one at once, a member at the running round's end; one that has
// left does not come back. It sits out the rest of the epoch and the whole next one. Only the main
// authority may send it.
type Eject struct {
	Client ClientID
}

// Equivocation proves that a member signed two results for one batch of a round: it is ejected, as
// by Eject, also when it has left since. Any member may send it, and any pending client. The caller of Apply has verified the
// proof (package wire).
type Equivocation struct {
	Client  ClientID
	Step    uint32 // of both
	Results [2]SignedResult
}

// SignedResult is an announcement of a result as its trainer signed it.
type SignedResult struct {
	Signature [64]byte
	Message   string // the bytes that the signature covers
}

// Accuse begins a trial of a result (RoundTrain, RoundWitness, Cooldown). Members that are past their
// probation may send it.
type Accuse struct {
	Step   uint32 // of the result
	Client ClientID
	Fault  Fault
}

// Vote is a juror's, of the trial of that client's result of that step. A juror that is pending may
// send it as well.
type Vote struct {
	Step   uint32
	Client ClientID
	Guilty bool
}

// Close ends a paused run for good, or marks a finished one as closed. Only the main
// authority may send it.
type Close struct{}

func (Join) action()             {}
func (Ready) action()            {}
func (Return) action()           {}
func (WitnessRound) action()     {}
func (HealthCheck) action()      {}
func (ReportCheckpoint) action() {}
func (ReportUpload) action()     {}
func (Withdraw) action()         {}
func (SetPaused) action()        {}
func (UpdateConfig) action()     {}
func (Authorize) action()        {}
func (SetDelegates) action()     {}
func (Eject) action()            {}
func (Equivocation) action()     {}
func (Accuse) action()           {}
func (Vote) action()             {}
func (Close) action()            {}
