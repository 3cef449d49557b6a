package coordinator

import (
	"github.com/psyche-go/psyche/core/bloom"
)

// Bounds of a State. They hold for every host. A chain also limits a run ID to 32 bytes (package
// chain/layout).
const (
	MaxClients        = 256  // members of an epoch; also the bound of the pending, the exited and the departed clients
	MaxWitnesses      = 32   // per round
	StoredRounds      = 4    // newest rounds of an epoch that the state keeps
	MaxRunIDLength    = 64   // bytes
	MaxRepoLength     = 192  // bytes of a checkpoint's repository, and of its revision
	MaxDefinitionSize = 8192 // bytes of Model.Definition
	MaxAuthorizations = 256  // grantees of a permissioned run
	MaxDelegates      = 4    // keys that may join in one grantee's name
	MaxEjections      = 256  // in force at the same time; the oldest is forgotten
	MaxUploads        = 4    // reported by members, one for each member
	MaxUploadTries    = 3    // Warmups in which no member got the model before an upload is dropped
	MaxEarlier        = 8    // recorded checkpoints whose upload may still be reported
	MaxRollbackGaps   = 8    // the oldest is forgotten
	TermRounds        = 32   // rounds after which an epoch forgives lateness and returns
	MaxReturns        = 3    // of one member in one term
	MaxTrials         = 8    // at the same time
	MaxJury           = 96   // of a trial
	MaxComplaints     = 3    // of one member in one epoch
	MaxExcuses        = 2    // of one member in one term
	maxTrialsOfOne    = 2    // trials of one client at the same time

	// MaxTime is the maximum of every time in Config, in milliseconds: 10⁹ seconds, or 31 years.
	// The sum of a few such times in nanoseconds fits into 64 bits.
	MaxTime = 1_000_000_000_000
)

// ClientID is the ed25519 public key of a participant.
type ClientID [32]byte

// RunState is the phase of a run.
type RunState uint8

// Phases, in the order in which a run passes through them.
const (
	Uninitialized RunState = iota
	WaitingForMembers
	Warmup
	RoundTrain
	RoundWitness
	Cooldown
	Finished
	Paused
)

// ClientState is the status of a client in the epoch: healthy, or the reason why it left.
type ClientState uint8

// States of a client.
const (
	Healthy   ClientState = iota
	Dropped               // found unhealthy by witnesses
	Withdrawn             // left, or lost its connection
	Ejected               // removed by the run's authority, or for cheating
)

// Config holds the rules of a run. Times are milliseconds, at most MaxTime.
type Config struct {
	WarmupTime                  uint64
	CooldownTime                uint64
	RoundsPerEpoch              uint32 // 0 if EpochTime ends epochs
	EpochTime                   uint64 // 0 if RoundsPerEpoch ends epochs
	MaxRoundTrainTime           uint64
	RoundWitnessTime            uint64
	WaitingForMembersExtraTime  uint64
	GlobalBatchSizeWarmupTokens uint64
	GlobalBatchSizeStart        uint32 // sequences of a round
	GlobalBatchSizeEnd          uint32
	TotalSteps                  uint32
	InitMinClients              uint16
	MinClients                  uint16
	WitnessNodes                uint16 // 0: all clients, at most MaxWitnesses
	VerificationPercent         uint8
	ProbationSteps              uint32 // of a new member of a permissionless run; 0: no probation, and newcomers may take all free seats
	EjectionEpochs              uint16 // number of epochs after the running one for which a cheater is excluded
	SharesBySpeed               bool   // the sizes of batches follow the members' offers; otherwise all batches have nearly the same size
	RetryLost                   bool   // later rounds train the sequences whose results did not count
}

// CheckpointKind is the kind of source from which a joining client gets the model.
type CheckpointKind uint8

// Kinds of a checkpoint. P2P and P2PGcs keep their original repository as the fallback.
const (
	CheckpointHub CheckpointKind = iota + 1
	CheckpointP2P
	CheckpointGcs
	CheckpointP2PGcs
	CheckpointLocal // a folder that every client can read, for runs on one machine
	CheckpointDummy
)

// Checkpoint names the model that a joining client starts from.
type Checkpoint struct {
	Kind     CheckpointKind
	Repo     string         // Hub repository, bucket or folder
	Revision string         // Hub revision or bucket prefix, may be empty
	Digest   [32]byte       // P2P kinds: BLAKE3 of the checkpoint manifest that a quorum reported
	Step     uint32         // P2P kinds: step after which the model was taken
	Origin   CheckpointKind // P2P kinds: kind of the fallback; else 0
}

// Model is the coordinator's part of the model's description. Everything that only clients need
// (architecture, data, learning-rate schedule, optimizer) is in Definition, in the canonical
// encoding of package config.
type Model struct {
	MaxSeqLen            uint32 // tokens per sequence
	ColdStartWarmupSteps uint32
	Checkpoint           Checkpoint
	Definition           []byte
}

// Progress contains counters over the whole run.
type Progress struct {
	Epoch     uint32
	Step      uint32 // of the running or next round; the first is 1
	DataIndex uint64 // first sequence that is not yet in any round
}

// Client is a member, or a former member, of an epoch.
type Client struct {
	ID             ClientID
	State          ClientState
	Nonce          uint64   // of its newest accepted action
	ExitedHeight   uint32   // round of the epoch in which the client left
	OptimizerSince uint32   // first step that its optimizer state includes; 0: none
	Commitment     [32]byte // SHA-256 of the value that it reveals next; zero: no commitment
	HoldsModel     bool     // the client claimed to hold the model of Model.Checkpoint, and has not sent a new Join since
	HoldsEarlier   uint32   // step of the newest other model, Epoch.Commit or one of Earlier, that the client claimed to hold; 0: none
	Report         Recorded // model that it last reported in this epoch; Step 0: none
	HeldOut        uint16   // held-out loss that it claims for Report or, without a Report, for the epoch's first model, in units of Claim.Loss; 0: none
	Active         bool     // one of its actions was accepted in this epoch, since its lateness was forgiven
	Lateness       Lateness
	ProbationUntil uint32 // first step whose result counts; 0 for a client that is not known to have been a member
	Waited         bool   // it joined before the newest round started, so it could not know that round's draw
	Returns        uint8  // number of times it took back its seat in this term of the epoch
	Juror          uint8  // bit i: it is a juror of the trial in slot i
	Voted          uint8  // bit i: it has voted in the trial in slot i
	Complaints     uint8  // its accusations in this epoch (if it is pending: since it became pending) that ended without a conviction
	Offer          uint8  // 8 × log₂ of the tokens per second that it last offered to train; 0: no offer
	Level          uint8  // speed, as in Offer, that determines its share of the next round; 0: none yet
	Offered        bool   // it sent an Offer since the newest round, or Warmup, started
	Excuses        uint8  // number of its results in this term that were missing after a lower offer, and did not make it late
}

// Lateness is the finding of witnesses about a member without a result in this term of the epoch.
type Lateness uint8

// Degrees of lateness.
const (
	OnTime    Lateness = iota
	FoundLate          // found by witnesses of the newest finished round
	Late               // found by witnesses of an earlier round
	Slow               // found in two rounds, the second time by too few witnesses to drop it: rounds no longer wait for it
)

// Witness is an elected member's proof of the results that it holds in a round.
type Witness struct {
	Member          uint16       // index in Round.Members
	Participants    bloom.Filter // members whose verified result the witness holds
	Commitments     bloom.Filter // commitments of the results that the witness holds
	CommitmentsRoot [32]byte     // Merkle root over all batches of the round in ascending order
	Replica         [32]byte     // the witness's replica hash at the start of the round
	Claim           Claim
}

// Round is one step of training. All fields except Witnesses, Challenge and Excused are fixed at its start.
type Round struct {
	Height           uint32 // 0 for the first round of an epoch
	Step             uint32
	Seed             uint64            // elects the witnesses and keys their filters; unknown before the round
	BatchSeed        uint64            // draws committee and batches; known since the start of the previous round
	DataIndex        uint64            // first fresh sequence
	BatchSize        uint32            // sequences of all batches
	Position         uint64            // of its first sequence among all sequences of the run's rounds
	Retries          []Stretch         // sequences that earlier rounds lost; they come before the fresh ones
	Members          []ClientID        // healthy members at the start of the round
	Warming          MemberSet         // trainers whose results do not count, because they are on probation or their optimizers warm up
	Levels           [MaxClients]uint8 // Client.Level of each member; all 0 unless Config.SharesBySpeed
	WitnessesNeeded  uint16            // quorum, fixed at the start of the round
	WitnessesElected uint16
	Witnesses        []Witness // accepted so far, in order of acceptance
	Challenge        [32]byte  // combined reveals of its witnesses; after the round, its audit seed
	Excused          MemberSet // after the round: members that offered less in time and therefore may lack a result (see seal)
}

// MemberSet is a set of indices in Round.Members.
type MemberSet [MaxClients / 8]byte

// Has reports whether the member is in the set.
func (m *MemberSet) Has(member int) bool {
	return member >= 0 && member < MaxClients && m[member/8]>>(member%8)&1 == 1
}

func (m *MemberSet) add(member int) { m[member/8] |= 1 << (member % 8) }

func (m *MemberSet) remove(member int) { m[member/8] &^= 1 << (member % 8) }

// Epoch contains the members and the newest rounds between two checkpoints.
type Epoch struct {
	StartStep uint32
	LastStep  uint32 // step of the last round once EpochTime is over, else 0
	StartTime uint64 // of its Warmup
	ColdStart bool
	Clients   []Client   // members; empty between epochs
	Exited    []Client   // clients that left during the epoch
	Rounds    []Round    // at most StoredRounds, newest last
	Ready     []ClientID // members that hold the model, in Warmup
	Commit    Recorded   // newest model that enough members reported during the rounds; Step 0: none yet
}

// Recorded names a model that includes all steps up to Step.
type Recorded struct {
	Step   uint32
	Digest [32]byte // BLAKE3 of its checkpoint manifest
}

// Location is a public location of a model: a repository of the Hub at a commit, or a bucket and the
// prefix of its objects.
type Location struct {
	Kind     CheckpointKind // CheckpointHub or CheckpointGcs
	Repo     string
	Revision string
}

// Upload is one client's report of the location of a recorded checkpoint. The digest verifies a
// download from there.
type Upload struct {
	Reporter ClientID
	Step     uint32
	Digest   [32]byte
	Place    Location
	Since    uint32 // State.seniority of the reporter at the time of its report: lower for older members
	Tries    uint8  // Warmups since the newest recorded checkpoint in which no member got the model from this upload
}

// RollbackGap is a range of steps that the run counted but its model does not include, because the run
// continued from an earlier model. Their data is not trained on again.
type RollbackGap struct {
	First, Last uint32
}

// Authority contains the keys that govern the run. In a permissioned run, it also contains the
// admitted keys.
type Authority struct {
	Main           ClientID // may configure, pause, eject and close
	Join           ClientID // may authorize the keys that may join
	MainNonce      uint64   // of the newest accepted action of Main
	JoinNonce      uint64   // of the newest accepted action of Join
	Permissioned   bool     // only authorized keys and their delegates may join
	Grants         uint32   // number of the newest authorization; the first is 1
	Authorizations []Authorization
	Ejections      []Ejection // in force, oldest first
}

// Authorization admits a grantee and its delegates to a permissioned run.
type Authorization struct {
	Grantee   ClientID
	Number    uint32     // counts all authorizations of the run in their order
	Nonce     uint64     // of the grantee's newest accepted action
	Delegates []ClientID // may join as well, each with its own seat
}

// EjectionReason is the reason why a client was ejected.
type EjectionReason uint8

// Reasons for an ejection.
const (
	ByAuthority    EjectionReason = iota // the main authority ejected it
	TwoResults                           // it signed two results for one batch
	FoundGuilty                          // a jury convicted it
	AccusedWrongly                       // a jury acquitted the member that it accused
)

// Ejection excludes a client.
type Ejection struct {
	Client ClientID
	Until  uint32 // number of the first epoch that it may join again
	Reason EjectionReason
}

// State is the complete shared state of a run.
type State struct {
	RunID        string
	Host         ClientID // sends the ticks that count, and may withdraw clients that lost their connection
	Authority    Authority
	RunState     RunState
	StateStart   uint64 // Unix time in milliseconds, as all times here
	Config       Config
	Model        Model
	Progress     Progress
	Epoch        Epoch
	MinimumSince uint64   // time since when enough clients are pending; 0 while too few are (see waitsAgain)
	SeedChain    [32]byte // SHA-256 chain over the draws of rounds and Reveals; bytes 8 to 15 are the next round's BatchSeed

	// DrawCommitment is the SHA-256 of the draw that the next round starts with. That draw then
	// replaces it. Zero if draws come from elsewhere, as on a chain.
	DrawCommitment [32]byte
	Reveals        [32]byte // combined reveals of all members

	HostNonce uint64 // of the host's newest accepted action

	Pending  []Client // clients waiting for an epoch, in the order in which they become members
	Departed []Client // clients that left Pending since the epoch number changed, kept for their nonces (see forgetAllDeparted)

	PendingPause  bool // pause as soon as the running epoch permits
	PendingResume bool // leave Paused at the next tick
	ColdStart     bool // the next epoch starts with fresh optimizers
	Closed        bool // ended permanently by Close: Finished, or Paused and Finished at the next tick

	OriginStep   uint32        // first step that the model of the checkpoint's origin does not include
	Earlier      []Recorded    // checkpoints before Model.Checkpoint, oldest first; only if Model.Checkpoint has a P2P kind
	Uploads      []Upload      // in order of acceptance
	RollbackGaps []RollbackGap // ascending
	Trials       []Trial       // in order of accusation, at most MaxTrials

	Position uint64    // number of sequences in rounds so far, counted again for each round that trains them
	Lost     []Stretch // sequences that wait to be trained again, those lost first at the beginning
	Marks    []Mark    // models from which the run may continue, ascending; only with Config.RetryLost
}
