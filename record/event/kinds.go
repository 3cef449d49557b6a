package event

import (
	"encoding/json"
	"math"
)

// Body is the content of one event. Kind returns the name of the struct in the file.
type Body interface{ Kind() string }

// Loss is a mean cross-entropy in nats per token. A loss that is not finite is null in the file and
// NaN in memory.
type Loss float64

// MarshalJSON implements json.Marshaler.
func (l Loss) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(l)) || math.IsInf(float64(l), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(l))
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Loss) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*l = Loss(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(l))
}

// Batch is the half-open interval of a batch's sequence indices: first, last + 1.
type Batch [2]uint64

// LostBatch is a batch of a finished round without a counted result.
type LostBatch struct {
	Batch Batch  `json:"batch"`
	Owner string `json:"owner"` // base58 id of the assigned client
}

// Started is the first event of a process.
type Started struct {
	Role  string   `json:"role"` // "client", "server", "data server", "evaluation", "solo"
	ID    string   `json:"id"`   // base58
	RunID string   `json:"run_id"`
	PID   int      `json:"pid"`
	Addrs []string `json:"addrs,omitempty"` // p2p multiaddrs of the process
}

// State is a state of the coordinator as seen by the process. It is written when run state, step,
// members, pending clients or the number of witnesses has changed.
type State struct {
	RunState  string   `json:"run_state"`
	Epoch     uint32   `json:"epoch"`
	Step      uint32   `json:"step"`             // of the running or next round
	Members   []string `json:"members"`          // healthy members of the epoch, base58
	Pending   int      `json:"pending"`          // clients waiting for the next epoch
	Needed    int      `json:"needed,omitempty"` // WaitingForMembers: waiting clients that begin an epoch
	Elected   []string `json:"elected"`          // elected witnesses of the running round, base58
	Witnesses int      `json:"witnesses"`        // witness proofs accepted so far
	Quorum    int      `json:"quorum"`           // witness proofs required
	Ready     int      `json:"ready"`            // Warmup: members that hold the model
	IsMember  bool     `json:"is_member"`        // the process itself is a healthy member
	Digest    string   `json:"digest,omitempty"` // recorded checkpoint, hex

	BatchSize uint32 `json:"batch_size,omitempty"` // sequences of the running round
	DataIndex uint64 `json:"data_index,omitempty"` // number of sequences in the rounds before the running one

	Batches   int      `json:"batches,omitempty"`   // maximum number of results of the running round
	Idle      []string `json:"idle,omitempty"`      // members that train nothing in the running round, and therefore have time to audit
	Uncounted []string `json:"uncounted,omitempty"` // members whose results do not count in the running round: on probation, or with an optimizer that warms up

	// Probation is the number of rounds, with the running round, in which the results of the process do not
	// count because it is on probation.
	Probation uint32 `json:"probation,omitempty"`

	Claimed *Claimed `json:"claimed,omitempty"`  // of the newest finished round
	HeldOut *HeldOut `json:"held_out,omitempty"` // of the checkpoint

	EpochStart  uint32 `json:"epoch_start,omitempty"`  // step of the first round of the epoch
	EpochRounds uint32 `json:"epoch_rounds,omitempty"` // rounds of the epoch; 0: time ends it

	TotalSteps uint32  `json:"total_steps,omitempty"` // of the run
	Pausing    bool    `json:"pausing,omitempty"`     // the run pauses when its epoch ends
	Limit      float64 `json:"limit,omitempty"`       // maximum duration of the phase in seconds; 0: only members end it
}

// Joined is written when the coordinator has accepted a request to join.
type Joined struct {
	Epoch uint32 `json:"epoch"` // running epoch at that time
}

// Ready is written when the process holds the model of an epoch.
type Ready struct {
	Epoch   uint32  `json:"epoch"`
	Step    uint32  `json:"step"`   // of the model
	Digest  string  `json:"digest"` // hex
	Source  string  `json:"source"` // "held", "initial", "results", "peers", "disk", "archive"
	Bytes   uint64  `json:"bytes"`  // fetched from peers
	Seconds float64 `json:"seconds"`
}

// Trained is written when the process has computed a result.
type Trained struct {
	Step    uint32  `json:"step"`
	Batch   Batch   `json:"batch"`
	Loss    Loss    `json:"loss"`
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
	Memory  uint64  `json:"memory,omitempty"` // peak memory use of the process so far, in bytes
}

// Gradient describes the gradient of a step that the process has just trained.
type Gradient struct {
	Step uint32  `json:"step"`
	LR   float64 `json:"lr"`
	Norm float64 `json:"norm"` // L2, before clipping
}

// OptimizerStats contains sums of absolute values in tensors of the model.
type OptimizerStats struct {
	Step    uint32        `json:"step"`
	Tensors []TensorStats `json:"tensors"` // a part of them if there are many; the others follow in further events
}

// TensorStats are the statistics of one tensor.
type TensorStats struct {
	Name           string  `json:"name"`
	GradientEnergy float64 `json:"grad_energy"`
	DeltaEnergy    float64 `json:"delta_energy"` // momentum not yet sent
}

// Evaluated is the score of a model in a task.
type Evaluated struct {
	Step    uint32             `json:"step"` // of the model
	Task    string             `json:"task"`
	Scores  map[string]float64 `json:"scores"`
	Samples int                `json:"samples"`        // number of scored documents
	Seconds float64            `json:"seconds"`        // duration of scoring
	Text    string             `json:"text,omitempty"` // generated by the prompt task
}

// ResultSent is written when the process has announced its result.
type ResultSent struct {
	Step       uint32 `json:"step"`
	Batch      Batch  `json:"batch"`
	Bytes      int    `json:"bytes"`
	Commitment string `json:"commitment"` // hex
}

// ResultsHeld is written once in each round, when the process holds every result of the running
// round that can be expected, including its own.
type ResultsHeld struct {
	Step         uint32  `json:"step"`
	Held         int     `json:"held"`          // verified results
	Batches      int     `json:"batches"`       // of the round
	FetchSeconds float64 `json:"fetch_seconds"` // for the last result: from receiving its announcement to its verification
}

// Span is the duration of a part of a round that has just ended. New parts may be added.
type Span struct {
	Step    uint32  `json:"step"` // of the running round, or of the round that the work was for
	Part    string  `json:"part"` // one of the constants Span…
	Seconds float64 `json:"seconds"`
}

// Values of Span.Part.
const (
	SpanGradient = "gradient" // client: forward and backward passes; part of Trained.Seconds
	SpanEncode   = "encode"   // client: compressing its own result; part of Trained.Seconds
	SpanDecode   = "decode"   // client: decoding the results to apply; part of Applied.Seconds
	SpanCommit   = "commit"   // server: making accepted records durable
)

// Rejected is a peer's result that the process does not count, with the reason.
type Rejected struct {
	Step   uint32 `json:"step"`
	Batch  Batch  `json:"batch"`
	From   string `json:"from"`
	Reason string `json:"reason"`
}

// Equivocation names a peer that signed two results for one batch.
type Equivocation struct {
	Step        uint32   `json:"step"`
	Batch       Batch    `json:"batch"`
	From        string   `json:"from"`
	Commitments []string `json:"commitments"` // hex
}

// WitnessSent is written when the coordinator has accepted the process's witness proof.
type WitnessSent struct {
	Step    uint32 `json:"step"`
	Held    int    `json:"held"`    // verified results
	Batches int    `json:"batches"` // of the round
}

// HealthCheckSent lists the members that the process accused.
type HealthCheckSent struct {
	Step    uint32   `json:"step"` // of the round that they did not contribute to
	Clients []string `json:"clients"`
}

// Applied is written when the results of a round have become part of the model.
type Applied struct {
	Step       uint32      `json:"step"`
	Counted    int         `json:"counted"`
	Lost       []LostBatch `json:"lost,omitempty"`
	OwnCounted bool        `json:"own_counted"`

	Attested    int  `json:"attested,omitempty"`     // results, also in Lost, that witnesses hold but that do not count yet: of members on probation, or whose optimizer warms up
	OwnAttested bool `json:"own_attested,omitempty"` // the process's result is one of them

	Replica string  `json:"replica"` // replica hash afterwards, hex
	Seconds float64 `json:"seconds"`
}

// Wire contains totals since the process started. It is written after each step.
type Wire struct {
	Step            uint32 `json:"step"`
	P2PSent         uint64 `json:"p2p_sent"` // bytes, framing and encryption included
	P2PReceived     uint64 `json:"p2p_received"`
	PayloadSent     uint64 `json:"payload_sent"`     // bytes of the process's own results, each counted once
	PayloadReceived uint64 `json:"payload_received"` // bytes of peers' results
	ModelReceived   uint64 `json:"model_received"`   // bytes of model parameters and files
	ServerSent      uint64 `json:"server_sent"`      // to the coordinator, if known
	ServerReceived  uint64 `json:"server_received"`
}

// Served is a request for data that a data server answered. Denied requests are written as often as
// the server logs them.
type Served struct {
	To      string  `json:"to"`      // base58 id of the client
	Request string  `json:"request"` // "samples", "fingerprint"
	Batch   Batch   `json:"batch"`
	Bytes   int     `json:"bytes"` // of the sent sequences
	Seconds float64 `json:"seconds"`
	Denied  string  `json:"denied,omitempty"` // reason
}

// Paid is the total cost of the process on a chain since it started. It is written after each change.
type Paid struct {
	Transactions int    `json:"transactions"`
	Lamports     uint64 `json:"lamports"`              // paid for them
	Ticks        int    `json:"ticks,omitempty"`       // part of Transactions that only ticked
	OutOfTurn    int    `json:"out_of_turn,omitempty"` // part of Ticks sent in another member's turn
	Rent         uint64 `json:"rent,omitempty"`        // lamports deposited in accounts that the process created, refundable
}

// Checkpoint is a model that the process holds after an epoch, with the folder in which it is
// saved.
type Checkpoint struct {
	Epoch  uint32 `json:"epoch"`
	Step   uint32 `json:"step"`
	Digest string `json:"digest"`        // BLAKE3 of the manifest, hex
	Dir    string `json:"dir,omitempty"` // empty if the model was not saved
}

// Transfer is the progress of a large transfer. It is written at the start and at most once for
// each fiftieth part.
type Transfer struct {
	What  string `json:"what"` // one of the constants Transfer…
	Step  uint32 `json:"step"` // of the model
	Bytes uint64 `json:"bytes"`
	Total uint64 `json:"total"`
}

// Values of Transfer.What.
const (
	TransferModel    = "model"    // from peers
	TransferResults  = "results"  // from peers, to turn an earlier model into the one of Step
	TransferDownload = "download" // of a checkpoint, from an archive
	TransferUpload   = "upload"   // of a checkpoint, to an archive
)

// Uploaded is written when the run has recorded the location of a checkpoint's copy.
type Uploaded struct {
	Step   uint32 `json:"step"`
	Digest string `json:"digest"`
	Place  string `json:"place"` // repository and commit, or bucket and prefix
}

// Desynchronised is written when the process has lost the run's model and gives up its seat.
type Desynchronised struct {
	Epoch  uint32 `json:"epoch"`
	Step   uint32 `json:"step"`
	Reason string `json:"reason"`
}

// Rejoined is written when a process that had lost the model, or was restarted, is a member again
// and holds the model.
type Rejoined struct {
	Epoch uint32 `json:"epoch"`
	Step  uint32 `json:"step"`
}

// Finished is the last event of a process that observed the end of the run.
type Finished struct {
	Step   uint32 `json:"step"`   // of the model
	Digest string `json:"digest"` // hex; empty if the process does not hold the final model
	Epoch  uint32 `json:"epoch"`

	Closed     bool `json:"closed,omitempty"`     // the run's authority ended it before its last step
	Unrecorded bool `json:"unrecorded,omitempty"` // no quorum reported the final model: Digest is this process's own
}

// Misbehaved names a member that did what no honest member does, or that sends slowly ("stall"),
// with its score.
type Misbehaved struct {
	Peer   string  `json:"peer"`  // base58
	Fault  string  `json:"fault"` // "wrong bytes", "invalid message", "flood", "stall", "replay"
	Detail string  `json:"detail"`
	Times  int     `json:"times"` // since the last event about it
	Score  float64 `json:"score"` // 0: no penalties; the lower the worse
}

// Failed is the last event of a process that gave up.
type Failed struct {
	Error string `json:"error"`
}

// unknown is an event of a kind that this version does not know.
type unknown struct {
	Name string
	Raw  json.RawMessage // the whole line
}

// Kind implements Body.
func (Started) Kind() string { return "started" }

// Kind implements Body.
func (State) Kind() string { return "state" }

// Kind implements Body.
func (Joined) Kind() string { return "joined" }

// Kind implements Body.
func (Ready) Kind() string { return "ready" }

// Kind implements Body.
func (Trained) Kind() string { return "trained" }

// Kind implements Body.
func (Gradient) Kind() string { return "gradient" }

// Kind implements Body.
func (OptimizerStats) Kind() string { return "optimizer_stats" }

// Kind implements Body.
func (Evaluated) Kind() string { return "evaluated" }

// Kind implements Body.
func (ResultSent) Kind() string { return "result_sent" }

// Kind implements Body.
func (ResultsHeld) Kind() string { return "results_held" }

// Kind implements Body.
func (Span) Kind() string { return "span" }

// Kind implements Body.
func (Rejected) Kind() string { return "rejected" }

// Kind implements Body.
func (Equivocation) Kind() string { return "equivocation" }

// Kind implements Body.
func (WitnessSent) Kind() string { return "witness_sent" }

// Kind implements Body.
func (HealthCheckSent) Kind() string { return "health_check_sent" }

// Kind implements Body.
func (Uploaded) Kind() string { return "uploaded" }

// Kind implements Body.
func (Transfer) Kind() string { return "transfer" }

// Kind implements Body.
func (Applied) Kind() string { return "applied" }

// Kind implements Body.
func (Wire) Kind() string { return "wire" }

// Kind implements Body.
func (Served) Kind() string { return "served" }

// Kind implements Body.
func (Paid) Kind() string { return "paid" }

// Kind implements Body.
func (Checkpoint) Kind() string { return "checkpoint" }

// Kind implements Body.
func (Desynchronised) Kind() string { return "desynchronised" }

// Kind implements Body.
func (Rejoined) Kind() string { return "rejoined" }

// Kind implements Body.
func (Finished) Kind() string { return "finished" }

// Kind implements Body.
func (Failed) Kind() string { return "failed" }

// Kind implements Body.
func (Misbehaved) Kind() string { return "misbehaved" }

// Kind implements Body.
func (u unknown) Kind() string { return u.Name }
