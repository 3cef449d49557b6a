package coordinator

import "github.com/psyche-go/psyche/core/bloom"

// Action is an input of the state machine, signed by its sender.
type Action interface{ action() }

// Join asks for a seat in the next epoch. Unless Holds is set, it means that the sender holds no
// model. A member of the running epoch that joins loses its seat in that epoch, and a pending client
// that was a member moves behind the other former members. Members that continue into the next epoch
// need not join.
//
// With Holds, the sender claims that it can load the run's checkpoint by itself, for example from
// its disk after all members left. A false claim costs the other members a Warmup.
//
// Commitment is the SHA-256 of the value that the sender will reveal in its first Ready, as a
// contribution to the draws of rounds. Zero commits to nothing. A pending client may replace its
// commitment.
//
// Name is shown to people. No rule uses it, and the state does not contain it.
type Join struct {
	Epoch      uint32 // Progress.Epoch as seen by the sender: prevents the replay of an old Join
	Commitment [32]byte
	Holds      [32]byte // digest of the checkpoint that the sender holds; zero for none
	Name       string   // name that the sender chose, at most MaxMemberName bytes; may be empty
}

// MaxMemberName is the maximum length of a member's name, in bytes.
const MaxMemberName = 32

// Ready reports that a member holds the epoch's model (Warmup). It reveals the value that the member
// committed to, and commits to the value that the member's next Ready will reveal.
type Ready struct {
	Epoch  uint32
	Reveal [32]byte // zero if the sender had committed to nothing
	Next   [32]byte // the new commitment; zero commits to nothing
}

// Return asks for the sender's seat in the running epoch, after the sender left or was dropped
// (RoundTrain, RoundWitness). It means that the sender holds the model of the running round.
type Return struct {
	Epoch uint32
}

// WitnessRound is an elected witness's proof for the running round (RoundTrain, RoundWitness).
type WitnessRound struct {
	Step            uint32
	Participants    bloom.Filter // IDs of members whose verified result the witness holds, keyed by Round.Seed
	Commitments     bloom.Filter // at most one commitment for each batch, keyed by Round.Seed
	CommitmentsRoot [32]byte     // merkle.Root over all batches in ascending order; the leaf of a batch without a held result is zero
	Replica         [32]byte
	Reveal          [32]byte // committed value, mixed into Round.Challenge; zero reveals nothing
	Claim           Claim
}

// Offer states the speed at which the sender can train from now on (Warmup, RoundTrain, RoundWitness). A
// member may send one in each round. It determines the size of the sender's batches two rounds later. An
// offer below the level of the running round also means that the sender may not finish its batch in time.
type Offer struct {
	Step  uint32 // Progress.Step as seen by the sender
	Level uint8  // 8 × log₂ of the tokens per second, rounded down; not 0
}

// HealthCheck accuses members whose results, according to the witnesses of the previous round,
// cannot have a quorum. An accused member becomes late. A member that was already late is dropped or
// becomes slow.
type HealthCheck struct {
	Step    uint32 // of the accused members' round
	Clients []ClientID
}

// ReportCheckpoint reports the model that a member holds after applying everything up to a step: in
// Cooldown the last step, during rounds any finished step.
type ReportCheckpoint struct {
	Step    uint32 // first step that the model does not include; Progress.Step in Cooldown
	Digest  [32]byte
	HeldOut uint16 // unverified mean loss of the model on held-out data, in units of Claim.Loss; 0: no claim
}

// ReportUpload reports a public location of a checkpoint that the run recorded. Members may send it,
// and so may a pending client that holds the model, even while the run is paused. The checkpoint may
// also be a recent earlier one, because an upload may take longer than an epoch.
type ReportUpload struct {
	Step   uint32   // of the checkpoint
	Digest [32]byte // of the checkpoint
	Place  Location
}

// Withdraw removes a client from the epoch and from the pending list. The client itself or the host
// may send it.
type Withdraw struct {
	Client ClientID
}

// SetPaused pauses or resumes the run. Only the main authority may send it.
type SetPaused struct {
	Paused bool
}

// UpdateConfig replaces the rules and the model of a paused run. It keeps progress, members and
// seeds. Only the main authority may send it.
//
// If Model.Checkpoint is the run's current checkpoint, or the origin of that checkpoint, the run
// keeps its current checkpoint. Any other checkpoint must be available without peers, and the next
// epoch starts from it. MaxSeqLen cannot change after the run has trained on data.
type UpdateConfig struct {
	Config Config
	Model  Model
}

// Authorize admits a key to a permissioned run, or ends its admission together with the admission
// of its delegates. Pending clients that lose their admission are withdrawn; members stay until the
// epoch's end. Only the join authority may send it.
type Authorize struct {
	Grantee ClientID
	Allowed bool
}

// SetDelegates replaces the keys that may join in the sender's name. The sender must itself be
// authorized.
type SetDelegates struct {
	Number    uint32 // of the sender's authorization: prevents the replay of actions sent under an earlier authorization
	Delegates []ClientID
}

// Admit makes a permissioned run's authorizations agree with a grant, which is an account on the
// chain that authorizes keys for all runs of a join authority. Allowed adds an authorization for
// the client if the grant covers it; only the client may send that. Otherwise the authorization
// ends because the grant no longer covers the client; any key may send that. The caller of Apply
// must have verified the grant, which only a chain can do.
type Admit struct {
	Grant   ClientID // address of the account
	Client  ClientID
	Allowed bool // the grant covers the client
}

// Eject removes a client: a pending client at once, a member at the end of the running round. A
// client that has already left loses its right to return. The client is excluded for the rest of the
// epoch and for the whole next epoch. Only the main authority may send it.
type Eject struct {
	Client ClientID
}

// Equivocation proves that a member signed two results for one batch of a round. The member is
// ejected as by Eject, even if it has left since then. Any member and any pending client may send
// it. The caller of Apply must have verified the proof (package wire).
type Equivocation struct {
	Client  ClientID
	Step    uint32 // of both results
	Results [2]SignedResult
}

// SignedResult is the announcement of a result, signed by its trainer.
type SignedResult struct {
	Signature [64]byte
	Message   string // the signed bytes
}

// Accuse starts the trial of a result (RoundTrain, RoundWitness, Cooldown). Only members past their
// probation may send it.
type Accuse struct {
	Step   uint32 // of the result
	Client ClientID
	Fault  Fault
}

// Vote is a juror's vote in the trial of one client's result of one step. A pending juror may also
// send it.
type Vote struct {
	Step   uint32
	Client ClientID
	Guilty bool
}

// Close ends a paused run permanently, or marks a finished one as closed. Only the main authority
// may send it.
type Close struct{}

func (Join) action()             {}
func (Ready) action()            {}
func (Return) action()           {}
func (WitnessRound) action()     {}
func (Offer) action()            {}
func (HealthCheck) action()      {}
func (ReportCheckpoint) action() {}
func (ReportUpload) action()     {}
func (Withdraw) action()         {}
func (SetPaused) action()        {}
func (UpdateConfig) action()     {}
func (Authorize) action()        {}
func (SetDelegates) action()     {}
func (Admit) action()            {}
func (Eject) action()            {}
func (Equivocation) action()     {}
func (Accuse) action()           {}
func (Vote) action()             {}
func (Close) action()            {}
