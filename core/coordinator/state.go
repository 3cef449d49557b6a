package coordinator

import (
	"github.com/psyche-go/psyche/core/bloom"
)

// Bounds of a State. They hold for every host, the on-chain one included, whose addresses
// leave room for 32 bytes of MaxRunIDLength (package chain/layout).
const (
	MaxClients        = 256  // members of an epoch; pending, exited and departed each
	MaxWitnesses      = 32   // per round
	StoredRounds      = 4    // ring of the newest rounds of an epoch
	MaxRunIDLength    = 64   // bytes
	MaxRepoLength     = 192  // bytes of a checkpoint's repository and revision
	MaxDefinitionSize = 8192 // bytes of Model.Definition
	MaxAuthorizations = 256  // grantees of a permissioned run at a time
	MaxDelegates      = 4    // keys that may join in one grantee's name
	MaxEjections      = 256  // in force at a time; the oldest is forgotten
	MaxUploads        = 4    // that members reported, one of each
	MaxUploadTries    = 3    // Warmups in which nobody got the model before an upload is dropped
	MaxEarlier        = 8    // recorded checkpoints whose upload may still be reported
	MaxLapses         = 8    // the oldest is forgotten
	TermRounds        = 32   // rounds of an epoch after which lateness and returns are forgiven
	MaxReturns        = 3    // of a member in one term
	MaxTrials         = 8    // at a time
	MaxJury           = 96   // of a trial
	MaxComplaints     = 3    // of a member in one epoch
	MaxTrialsOfOne    = 2    // trials of one client at a time

	// MaxTime bounds every time of Config, in milliseconds: 10⁹ seconds, or 31 years. Hosts
	// may add up a few of them as nanoseconds of 64 bits.
	MaxTime = 1_000_000_000_000
)

// ClientID is the ed25519 public key of a participant.
type ClientID [32]byte

// RunState is the phase of a run.
type RunState uint8

// The phases, in the order in which a run goes through them.
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

// ClientState says why a client is, or no longer is, a member of the epoch.
type ClientState uint8

// The states of a client.
const (
	Healthy   ClientState = iota
	Dropped               // found unhealthy by witnesses
	Withdrawn             // left by itself, or its connection ended
	Ejected               // removed by the run's authority, or as a cheat
)

// Config holds the rules of a run. Times are milliseconds, at most MaxTime.
type Config struct {
	WarmupTime                  uint64
	CooldownTime                uint64
	RoundsPerEpoch              uint32 // 0 when EpochTime ends epochs
	EpochTime                   uint64 // 0 when RoundsPerEpoch ends epochs
	MaxRoundTrainTime           uint64
	RoundWitnessTime            uint64
	WaitingForMembersExtraTime  uint64
	GlobalBatchSizeWarmupTokens uint64
	GlobalBatchSizeStart        uint32 // sequences of a round
	GlobalBatchSizeEnd          uint32
	TotalSteps                  uint32
	InitMinClients              uint16
	MinClients                  uint16
	WitnessNodes                uint16 // 0: every client, at most MaxWitnesses
	VerificationPercent         uint8
	ProbationSteps              uint32 // of a new member of a permissionless run; 0: none, and as many new ones as there are seats
	EjectionEpochs              uint16 // that a cheat sits out after the running one
}

// CheckpointKind says where a joining client gets the model from.
type CheckpointKind uint8

// The kinds of a checkpoint. P2P and P2PGcs remember the repository they came from as
// the origin to fall back to.
const (
	CheckpointHub CheckpointKind = iota + 1
	CheckpointP2P
	CheckpointGcs
	CheckpointP2PGcs
	CheckpointLocal // a folder that every client has, for runs on one machine
	CheckpointDummy
)

// Checkpoint names the model that a joining client starts from.
type Checkpoint struct {
	Kind     CheckpointKind
	Repo     string         // Hub repository, bucket or folder
	Revision string         // Hub revision or bucket prefix, may be empty
	Digest   [32]byte       // P2P kinds: BLAKE3 of the checkpoint manifest that a quorum reported
	Step     uint32         // P2P kinds: step after which it was taken
	Origin   CheckpointKind // P2P kinds: what it falls back to; else 0
}

// Model is what the coordinator knows of the model. Everything that only clients need
// (architecture, data, learning-rate schedule, optimizer) is in Definition, in the
// canonical encoding of package config.
type Model struct {
	MaxSeqLen            uint32 // tokens of a sequence
	ColdStartWarmupSteps uint32
	Checkpoint           Checkpoint
	Definition           []byte
}

// Progress counts over the whole run.
type Progress struct {
	Epoch     uint32
	Step      uint32 // of the round that is running or comes next; the first is 1
	DataIndex uint64 // first sequence that no round holds yet
}

// Client is a member, or a former member, of an epoch.
type Client struct {
	ID             ClientID
	State          ClientState
	Nonce          uint64   // of its newest accepted action
	ExitedHeight   uint32   // round of the epoch in which it left
	OptimizerSince uint32   // first step that its optimizer remembers; 0 when it remembers none
	Commitment     [32]byte // SHA-256 of what it reveals next; zero when it committed to nothing
	HoldsModel     bool     // it said that it holds the model of Model.Checkpoint, and did not join since
	HoldsEarlier   uint32   // step of the newest other recorded model that it said it holds, Epoch.Commit's or one of Earlier; 0: none
	Report         Recorded // model that it reported last in this epoch; Step 0: none
	Active         bool     // an action of it was accepted in this epoch, and since its lateness was forgiven
	Lateness       Lateness
	ProbationUntil uint32 // first step whose result of it counts; 0 of a client that was never a member, as far as is known
	Waited         bool   // it is pending since before the newest round began: nobody knew the draw when it joined
	Returns        uint8  // how often it took its seat back in this term of the epoch
	Juror          uint8  // bit i: it is a juror of the trial in slot i
	Voted          uint8  // bit i: it has voted there
	Complaints     uint8  // accusations of its that ended without a conviction in this epoch
}

// Lateness reports how witnesses have found a member without a result in this term of the epoch.
type Lateness uint8

// How late a member was found.
const (
	OnTime    Lateness = iota
	FoundLate          // by witnesses of the newest finished round
	Late               // by those of an earlier one
	Slow               // by those of two rounds, not all of whom lacked its result: nobody waits for it any more
)

// Witness is one elected member's proof of what it holds of a round.
type Witness struct {
	Member          uint16       // index in Round.Members
	Participants    bloom.Filter // members whose verified result it holds
	Commitments     bloom.Filter // commitments of those results
	CommitmentsRoot [32]byte     // Merkle root over all batches of the round in ascending order
	Replica         [32]byte     // its replica hash when the round began
	Claim           Claim
}

// Round is one step of training. Everything but Witnesses is fixed at its start.
type Round struct {
	Height           uint32 // 0 for the first round of an epoch
	Step             uint32
	Seed             uint64 // elects the witnesses and keys their filters; nobody knew it before
	BatchSeed        uint64 // draws committee and batches; known since the round before began
	DataIndex        uint64
	BatchSize        uint32     // sequences of all batches together
	Members          []ClientID // healthy members at its start
	Warming          MemberSet  // trainers whose results do not count: they are on probation, or their optimizers warm up
	WitnessesNeeded  uint16     // quorum, fixed at the start
	WitnessesElected uint16
	Witnesses        []Witness // accepted so far, in order of acceptance
	Challenge        [32]byte  // what its witnesses revealed together; once it is over, its audit seed
}

// MemberSet is a set of indices in Round.Members.
type MemberSet [MaxClients / 8]byte

// Has reports whether the member is in the set.
func (m *MemberSet) Has(member int) bool {
	return member >= 0 && member < MaxClients && m[member/8]>>(member%8)&1 == 1
}

func (m *MemberSet) add(member int) { m[member/8] |= 1 << (member % 8) }

func (m *MemberSet) remove(member int) { m[member/8] &^= 1 << (member % 8) }

// Epoch is the membership and the newest rounds between two checkpoints.
type Epoch struct {
	StartStep uint32
	LastStep  uint32 // step of the last round once EpochTime has passed, else 0
	StartTime uint64 // of its Warmup
	ColdStart bool
	Clients   []Client   // members; empty between epochs
	Exited    []Client   // who left during the epoch
	Rounds    []Round    // newest last, at most StoredRounds
	Ready     []ClientID // members that hold the model, in Warmup
	Commit    Recorded   // newest model that enough members reported while its rounds ran; Step 0: none yet
}

// Recorded names the model that has seen every step up to one.
type Recorded struct {
	Step   uint32
	Digest [32]byte // BLAKE3 of its checkpoint manifest
}

// Place is where anybody can get a model: a repository of the Hub at a commit, or a bucket
// and the prefix of its objects.
type Place struct {
	Kind     CheckpointKind // CheckpointHub or CheckpointGcs
	Repo     string
	Revision string
}

// Upload is one client's statement where a recorded checkpoint lies. Only the digest tells
// whether it is there.
type Upload struct {
	Reporter ClientID
	Step     uint32
	Digest   [32]byte
	Place    Place
	Since    uint32 // the lower, the longer its reporter was a member when it reported; see State.seniority
	Tries    uint8  // Warmups that gave nobody its model since a checkpoint was last recorded
}

// Lapse is a stretch of steps whose results the run's model does not have, though the run
// counted them: it went on from an earlier model. Their data is not trained on again.
type Lapse struct {
	First, Last uint32
}

// Authority is who governs the run, and whom a permissioned run admits.
type Authority struct {
	Main           ClientID // configures, pauses, ejects and closes
	Join           ClientID // authorizes the keys that may join
	MainNonce      uint64   // of the newest accepted action of Main
	JoinNonce      uint64   // of the newest accepted action of Join
	Permissioned   bool     // only authorized keys and their delegates may join
	Grants         uint32   // number of the newest authorization; the first is 1
	Authorizations []Authorization
	Ejections      []Ejection // in force, oldest first
}

// Authorization admits a key, and the keys that it delegates to, to a permissioned run.
type Authorization struct {
	Grantee   ClientID
	Number    uint32     // of all authorizations of the run, in their order
	Nonce     uint64     // of the grantee's newest accepted action
	Delegates []ClientID // may join as well, each with a place of its own
}

// EjectionReason says why a client was ejected.
type EjectionReason uint8

// The reasons of an ejection.
const (
	ByAuthority    EjectionReason = iota // the main authority said so
	TwoResults                           // it signed two results for one batch
	FoundGuilty                          // a jury found that what it was accused of is true
	AccusedWrongly                       // a jury found that what it accused another one of is not
)

// Ejection keeps an ejected client out.
type Ejection struct {
	Client ClientID
	Until  uint32 // epoch number from which on it may join again
	Reason EjectionReason
}

// State is the whole shared truth of a run.
type State struct {
	RunID        string
	Host         ClientID // whose ticks count, and who may withdraw clients that lost their connection
	Authority    Authority
	RunState     RunState
	StateStart   uint64 // Unix time, milliseconds, as all times here
	Config       Config
	Model        Model
	Progress     Progress
	Epoch        Epoch
	MinimumSince uint64   // since when InitMinClients wait; 0 while fewer do, see waitsAnew
	SeedChain    [32]byte // SHA-256 chain over the draws of rounds and Reveals; bytes 8 to 15 are the next round's BatchSeed

	// DrawCommitment is the SHA-256 of the draw that the next round begins with, which takes its
	// place then. Zero where draws come from elsewhere, as on a chain.
	DrawCommitment [32]byte
	Reveals        [32]byte // what all members together have revealed

	HostNonce uint64 // of the host's newest accepted action

	Pending  []Client // wait for an epoch, in the order in which they become members
	Departed []Client // left Pending since the epoch number changed: their nonces are still known; see forgetAllDeparted

	PendingPause  bool // pause as soon as the running epoch allows
	PendingResume bool // leave Paused at the next tick
	ColdStart     bool // the next epoch starts with fresh optimizers
	Closed        bool // for good, by Close: Finished, or Paused and Finished at the next tick

	OriginStep uint32     // first step that the model of the checkpoint's origin has not seen
	Earlier    []Recorded // checkpoints before Model.Checkpoint, oldest first; only of a P2P kind's
	Uploads    []Upload   // in order of acceptance
	Lapses     []Lapse    // ascending
	Trials     []Trial    // in order of accusation, at most MaxTrials
}
