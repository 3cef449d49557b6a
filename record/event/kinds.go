package event

import (
	"encoding/json"
	"math"
)

// Body is the content of one event. Its kind names the struct in the file.
type Body interface{ Kind() string }

// Loss is a mean cross-entropy in nats per token. A loss that is not finite is null in
// the file and NaN when it is read.
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

// Batch is the half-open interval of sequence indices of a batch: first, last + 1.
type Batch [2]uint64

// LostBatch is a batch of a finished round of which no result counted.
type LostBatch struct {
	Batch Batch  `json:"batch"`
	Owner string `json:"owner"` // base58 id of the client it was assigned to
}

// Started is the first event of a process.
type Started struct {
	Role  string   `json:"role"` // "client", "server", "data server", "evaluation", "solo"
	ID    string   `json:"id"`   // base58
	RunID string   `json:"run_id"`
	PID   int      `json:"pid"`
	Addrs []string `json:"addrs,omitempty"` // own p2p multiaddrs
}

// State is a state of the coordinator as the process saw it. It is written when run
// state, step, members, pending clients or the count of witnesses changed.
type State struct {
	RunState  string   `json:"run_state"`
	Epoch     uint32   `json:"epoch"`
	Step      uint32   `json:"step"`             // of the round that is running or comes next
	Members   []string `json:"members"`          // healthy members of the epoch, base58
	Pending   int      `json:"pending"`          // clients that wait for the next epoch
	Elected   []string `json:"elected"`          // elected witnesses of the running round, base58
	Witnesses int      `json:"witnesses"`        // witness proofs accepted so far
	Quorum    int      `json:"quorum"`           // witness proofs needed
	Ready     int      `json:"ready"`            // Warmup: members that hold the model
	IsMember  bool     `json:"is_member"`        // the process itself is a healthy member
	Digest    string   `json:"digest,omitempty"` // recorded checkpoint, hex

	BatchSize uint32 `json:"batch_size,omitempty"` // sequences of the running round
	DataIndex uint64 `json:"data_index,omitempty"` // the first of them

	Batches   int      `json:"batches,omitempty"`   // results that the running round can have
	Idle      []string `json:"idle,omitempty"`      // members that train nothing in the running round, and have the time to audit
	Uncounted []string `json:"uncounted,omitempty"` // members whose results do not count in the running round: on probation, or with an optimizer that warms up

	Claimed *Claimed `json:"claimed,omitempty"` // of the newest round that is over

	EpochStart  uint32 `json:"epoch_start,omitempty"`  // step of the first round of the epoch
	EpochRounds uint32 `json:"epoch_rounds,omitempty"` // that the epoch has; 0: time ends it

	TotalSteps uint32  `json:"total_steps,omitempty"` // of the run
	Limit      float64 `json:"limit,omitempty"`       // seconds that the phase lasts at most; 0: only members end it
}

// Joined says that the coordinator accepted a request to join.
type Joined struct {
	Epoch uint32 `json:"epoch"` // that was running
}

// Ready says that the process holds the model of an epoch.
type Ready struct {
	Epoch   uint32  `json:"epoch"`
	Step    uint32  `json:"step"`   // the model's
	Digest  string  `json:"digest"` // hex
	Source  string  `json:"source"` // "held", "initial", "results", "peers", "disk", "archive"
	Bytes   uint64  `json:"bytes"`  // fetched from peers
	Seconds float64 `json:"seconds"`
}

// Trained says that the process computed a result.
type Trained struct {
	Step    uint32  `json:"step"`
	Batch   Batch   `json:"batch"`
	Loss    Loss    `json:"loss"`
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
	Memory  uint64  `json:"memory,omitempty"` // most bytes that the process had of the machine's memory so far
}

// Gradient is what the gradient of a step was like that the process has just trained.
type Gradient struct {
	Step uint32  `json:"step"`
	LR   float64 `json:"lr"`
	Norm float64 `json:"norm"` // L2, before it is clipped
}

// OptimizerStats are sums of absolute values in tensors of the model.
type OptimizerStats struct {
	Step    uint32        `json:"step"`
	Tensors []TensorStats `json:"tensors"` // not all, where there are many: the others follow
}

// TensorStats are the figures of one tensor.
type TensorStats struct {
	Name           string  `json:"name"`
	GradientEnergy float64 `json:"grad_energy"`
	DeltaEnergy    float64 `json:"delta_energy"` // momentum that was not sent yet
}

// Evaluated is what a model reached in a task.
type Evaluated struct {
	Step    uint32             `json:"step"` // of the model
	Task    string             `json:"task"`
	Scores  map[string]float64 `json:"scores"`
	Samples int                `json:"samples"`        // documents that were scored
	Seconds float64            `json:"seconds"`        // that scoring took
	Text    string             `json:"text,omitempty"` // of the prompt task
}

// ResultSent says that the process announced its result.
type ResultSent struct {
	Step       uint32 `json:"step"`
	Batch      Batch  `json:"batch"`
	Bytes      int    `json:"bytes"`
	Commitment string `json:"commitment"` // hex
}

// ResultsHeld says that the process holds every result of a running round that can be
// expected, its own included. It is written once a round, when the last one has come.
type ResultsHeld struct {
	Step         uint32  `json:"step"`
	Held         int     `json:"held"`          // verified results
	Batches      int     `json:"batches"`       // of the round
	FetchSeconds float64 `json:"fetch_seconds"` // of the last one: from its announcement's coming until it was verified
}

// Span is a part of a round that has just ended and how long it took. Names of parts may
// be added.
type Span struct {
	Step    uint32  `json:"step"` // of the round that runs or was worked at
	Part    string  `json:"part"` // one of the constants Span…
	Seconds float64 `json:"seconds"`
}

// Parts of a Span.
const (
	SpanEncode = "encode" // client: compressing the own result; within what Trained tells
	SpanDecode = "decode" // client: reading the results to apply; within what Applied tells
	SpanCommit = "commit" // server: making what was accepted durable
)

// Rejected is a peer's result that does not count here, and why.
type Rejected struct {
	Step   uint32 `json:"step"`
	Batch  Batch  `json:"batch"`
	From   string `json:"from"`
	Reason string `json:"reason"`
}

// Equivocation is a peer that signed two results for one batch.
type Equivocation struct {
	Step        uint32   `json:"step"`
	Batch       Batch    `json:"batch"`
	From        string   `json:"from"`
	Commitments []string `json:"commitments"` // hex
}

// WitnessSent says that the coordinator accepted the process's witness proof.
type WitnessSent struct {
	Step    uint32 `json:"step"`
	Held    int    `json:"held"`    // verified results
	Batches int    `json:"batches"` // of the round
}

// HealthCheckSent says which members the process accused.
type HealthCheckSent struct {
	Step    uint32   `json:"step"` // of the round that they did not contribute to
	Clients []string `json:"clients"`
}

// Applied says that the results of a round became part of the model.
type Applied struct {
	Step       uint32      `json:"step"`
	Counted    int         `json:"counted"`
	Lost       []LostBatch `json:"lost,omitempty"`
	OwnCounted bool        `json:"own_counted"`
	Replica    string      `json:"replica"` // replica hash afterwards, hex
	Seconds    float64     `json:"seconds"`
}

// Wire is written after each step: totals since the process started.
type Wire struct {
	Step            uint32 `json:"step"`
	P2PSent         uint64 `json:"p2p_sent"` // bytes, framing and encryption included
	P2PReceived     uint64 `json:"p2p_received"`
	PayloadSent     uint64 `json:"payload_sent"`     // bytes of own results, each counted once
	PayloadReceived uint64 `json:"payload_received"` // bytes of peers' results
	ModelReceived   uint64 `json:"model_received"`   // bytes of model parameters and files
	ServerSent      uint64 `json:"server_sent"`      // to the coordinator, when known
	ServerReceived  uint64 `json:"server_received"`
}

// Served is a request for data that a data server answered. Those that it denied are written
// as often as it logs them.
type Served struct {
	To      string  `json:"to"`      // base58 id of the client
	Request string  `json:"request"` // "samples", "fingerprint"
	Batch   Batch   `json:"batch"`
	Bytes   int     `json:"bytes"` // of the sequences that were sent
	Seconds float64 `json:"seconds"`
	Denied  string  `json:"denied,omitempty"` // why
}

// Paid is written when it changed: what the process has paid on a chain since it started.
type Paid struct {
	Transactions int    `json:"transactions"`
	Lamports     uint64 `json:"lamports"`              // for them
	Ticks        int    `json:"ticks,omitempty"`       // of Transactions: they did nothing but tick
	OutOfTurn    int    `json:"out_of_turn,omitempty"` // of Ticks: it was another member's turn
	Rent         uint64 `json:"rent,omitempty"`        // lamports in accounts that the process made, which come back
}

// Checkpoint is a model that the process holds after an epoch, and where it saved it.
type Checkpoint struct {
	Epoch  uint32 `json:"epoch"`
	Step   uint32 `json:"step"`
	Digest string `json:"digest"`        // BLAKE3 of the manifest, hex
	Dir    string `json:"dir,omitempty"` // empty when it was not saved
}

// Transfer is how much of something large is here, or there. It is written when it begins and at most
// once for each fiftieth part.
type Transfer struct {
	What  string `json:"what"` // one of the constants Transfer…
	Step  uint32 `json:"step"` // of the model
	Bytes uint64 `json:"bytes"`
	Total uint64 `json:"total"`
}

// What is transferred.
const (
	TransferModel    = "model"    // from peers
	TransferResults  = "results"  // from peers, by which an earlier model becomes that one
	TransferDownload = "download" // of a checkpoint, from an archive
	TransferUpload   = "upload"   // of a checkpoint, to one
)

// Uploaded says that the run knows where a copy of a checkpoint lies.
type Uploaded struct {
	Step   uint32 `json:"step"`
	Digest string `json:"digest"`
	Place  string `json:"place"` // repository and commit, or bucket and prefix
}

// Desynchronised says that the process lost the run's model and gives its place up.
type Desynchronised struct {
	Epoch  uint32 `json:"epoch"`
	Step   uint32 `json:"step"`
	Reason string `json:"reason"`
}

// Rejoined says that a process that had lost the model, or had been restarted, is a
// member again and holds it.
type Rejoined struct {
	Epoch uint32 `json:"epoch"`
	Step  uint32 `json:"step"`
}

// Finished is the last event of a process that saw the end of the run.
type Finished struct {
	Step   uint32 `json:"step"`   // the model's
	Digest string `json:"digest"` // hex; empty when the process does not hold the final model
	Epoch  uint32 `json:"epoch"`

	Closed     bool `json:"closed,omitempty"`     // the run's authority ended it before its last step
	Unrecorded bool `json:"unrecorded,omitempty"` // no quorum reported the final model: only this process vouches for Digest
}

// Misbehaved is a member that did what no honest member does, or that sends slowly ("stall"), and what is held against it.
type Misbehaved struct {
	Peer   string  `json:"peer"`  // base58
	Fault  string  `json:"fault"` // "wrong bytes", "invalid message", "flood", "stall", "replay"
	Detail string  `json:"detail"`
	Times  int     `json:"times"` // since it was last written
	Score  float64 `json:"score"` // 0: nothing is held against it; the lower the worse
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
