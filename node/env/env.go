package env

import (
	"context"
	"errors"
	"io"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/record/backend"
)

// Backend is the host of the run. Package backend documents the contract.
type Backend interface {
	Updates() <-chan backend.Update
	Submit(ctx context.Context, a coordinator.Action) error
	Announce(ctx context.Context, addrs []string) error
	Err() error
	Close() error
}

// Network is the peer-to-peer network of one client. node/p2pnet implements it for real networks
// and node/memnet in memory. All methods may be called from any goroutine.
type Network interface {
	Peers
	Gossip
	Requests
	Blobs
}

// Peers manages the peers that the network connects to.
type Peers interface {
	// Addrs returns this client's addresses, as peers reach them.
	Addrs() []string
	// SetMembers replaces the list of peers that may connect and that are dialled.
	SetMembers(peers []backend.Peer)
	// Bytes returns the bytes sent and received since the start.
	Bytes() (sent, received uint64)
}

// Gossip broadcasts small messages to all members, without guaranteed delivery.
type Gossip interface {
	Publish(ctx context.Context, message []byte) error
	// Subscribe passes every message of other members to handle, which must return quickly, until
	// ctx is done. If handle returns an error, the network does not forward the message. It
	// penalises the member that forwarded the message to this client, unless the error is
	// ErrUnasked. handle may be called concurrently.
	Subscribe(ctx context.Context, handle func(from identity.ID, message []byte) error) error
}

// Requests sends requests to single members and answers theirs.
type Requests interface {
	// Request sends a request and returns the response of at most maxResponse bytes.
	Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error)
	// Handle answers members' requests of at most maxRequest bytes.
	Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error))
}

// ErrUnasked means that this client does not need a message, but that an honest member may have
// forwarded it.
var ErrUnasked = errors.New("message not needed")

// ErrNoRoom means that a blob does not fit into the memory for shared data.
var ErrNoRoom = errors.New("not enough memory for shared data; raise --max-blob-memory")

// Blobs shares immutable data, addressed by its BLAKE3 hash.
type Blobs interface {
	// Put makes data available to members until Drop. The caller must not modify data afterwards.
	Put(data []byte) ([32]byte, error)
	// Keep is Put for data that another member sent. The error is ErrNoRoom if there is no memory to keep it.
	Keep(data []byte) ([32]byte, error)
	// Lend is Put for data that the caller keeps in memory until Drop anyway.
	Lend(data []byte) ([32]byte, error)
	// LendFrom is Lend for data in a file. The caller must not close the file; the garbage
	// collector closes it when it is unused. If the data has changed or cannot be read, the network
	// drops the blob, and calls lost once with the reason, from any goroutine.
	LendFrom(data *io.SectionReader, lost func(error)) ([32]byte, error)
	Drop(hash [32]byte)
	// Fetch gets a blob of size bytes from any of the holders, verifies it and keeps it as Put
	// does. The error is ErrNoRoom if there is no memory to keep it.
	Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error)
	// FetchUpTo is Fetch for a blob of unknown size, at most maxSize bytes.
	FetchUpTo(ctx context.Context, hash [32]byte, maxSize uint64, holders []identity.ID) ([]byte, error)
}

// DataProvider returns the token sequences of a batch. Package data implements it.
type DataProvider interface {
	Batch(ctx context.Context, id assign.BatchID) (data.Batch, error)
}

// Definition contains the parameters of a trainer.
type Definition struct {
	coordinator.Model
	Audited bool // members audit each other's results, so the trainer must be an Auditor
}

// Trainer holds the model and its optimizer. The client calls all methods except Verify,
// MaxResultSize and ApplyLag from one goroutine at a time.
type Trainer interface {
	// Train computes the result of a batch: a blob in the encoding of package core/codec, and the
	// mean loss. When Train has computed the gradient, and before it changes the optimizer, it
	// calls begun. begun returns when the round of the step has started, or returns an error if the
	// round will not start. If Train returns an error, including cancellation by ctx, model and
	// optimizer are unchanged.
	Train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error)
	// Verify checks that payload is a well-formed result of that step, batch and
	// trainer. It is cheap and may be called at any time.
	Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error
	// Apply applies the counted results of a step to the model. The payloads have been verified and
	// are in ascending order of their batches; the list may be empty. votes contains the vote of
	// each, from 1 to assign.FullVote. ownCounted reports whether the result of Train for that step
	// is among them.
	Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error
	// Snapshot returns a copy of the model.
	Snapshot(ctx context.Context) (checkpoint.Snapshot, error)
	// Load replaces the model and resets the optimizer.
	Load(ctx context.Context, s checkpoint.Snapshot) error
	// ResetOptimizer resets the momentum to zero.
	ResetOptimizer(ctx context.Context) error
	// SetColdStart makes the learning rate grow from 0 at step start over the given number of
	// steps. With 0 steps it ends a cold start.
	SetColdStart(ctx context.Context, start, steps uint32) error
	// MaxResultSize returns the maximum size of a valid result in bytes.
	MaxResultSize() int
	// ApplyLag returns the number of rounds after which results are applied: a member applies the
	// results of step s before it trains step s + ApplyLag. The number is 1 or 2, and the same for
	// all members.
	ApplyLag() uint32
}

// Auditor is a Trainer whose results commit to its momentum, so that other members can audit them.
// It can also audit the results of other members. In a run with audits every Trainer is an Auditor,
// and its results are in the encoding of package core/codec.
type Auditor interface {
	// Shapes returns how the model is cut into chunks. Every call returns the same value.
	Shapes() audit.Shapes
	// Precisions returns the types in which this trainer can compute gradients, its default first.
	Precisions() []audit.Precision
	// Decode decodes a result. It may be called at any time.
	Decode(payload []byte) (codec.Header, []codec.TensorResult, error)
	// Open opens chunks of the momentum of the step that was trained last. It may be called at any
	// time before the next result is made, also while Train waits in begun.
	Open(step uint32, chunks []uint32) (audit.Opening, error)
	// SetAttested tells the trainer whether a quorum of witnesses holds its newest result, which is
	// from the given step. If not, the trainer rolls the momentum back to its previous value.
	SetAttested(step uint32, attested bool) error
	// CheckLight returns the fault in a claim, or FaultNone. It makes only the checks that need no
	// gradient.
	CheckLight(c audit.Claim) audit.Fault
	// Recompute recomputes the gradient of an earlier step, given its batch. Afterwards, also after
	// an error, model and optimizer are unchanged. If ctx is cancelled, the trainer may keep the progress
	// of this one recomputation, and a later call continues from there.
	Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error)
	// Abandon drops the kept progress of a trainer's result of a step. It may be called at any time, and
	// does not wait.
	Abandon(step uint32, trainer [32]byte)
}

// Speculator is a Trainer that can continue speculatively from the results of a step, before it is
// decided that they count.
type Speculator interface {
	// Speculate changes the weights as Apply would; done reports whether it did. Train of a later
	// step then continues from there, and needs Confirm before begun returns. Any other call except
	// Apply of the same results undoes Speculate first.
	Speculate(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) (done bool, err error)
	// Confirm makes the changes of Speculate final, in place of Apply. It returns false if the
	// changes have been undone. It may be called at any time, also while Train waits in begun.
	Confirm(step uint32) bool
}

// Progressive is a Trainer that knows the progress of a training.
type Progressive interface {
	// Progress returns the parts of the running training's batch whose computation is complete, and
	// has begun: 0 to 1. It may be called at any time.
	Progress() (complete, begun float64)
}

// Lender is a Trainer whose model can be read without a copy.
type Lender interface {
	// Lend calls use with the model, without copying it, and does not change the model until use
	// returns.
	Lend(ctx context.Context, use func(s checkpoint.Snapshot) error) error
}

// OptimizerSaver is a Trainer whose optimizer state can survive a restart of the process.
type OptimizerSaver interface {
	// SaveOptimizer returns the size of the momentum, and a function that writes the momentum to a
	// file atomically. The function may be called from any goroutine. If the size is at most limit
	// bytes, SaveOptimizer copies the momentum, so that the trainer can continue before the file is
	// written; otherwise the trainer must not be used until then. All trained results must have
	// been applied.
	SaveOptimizer(ctx context.Context, limit int) (bytes int, write func(path string) error, err error)
	// LoadOptimizer restores the momentum from a file that was saved together with the loaded
	// model. After an error the optimizer is unchanged.
	LoadOptimizer(ctx context.Context, path string) error
}

// Measurer is a Trainer that can measure its model on held-out sequences.
type Measurer interface {
	// HeldOut returns the numbers of held-out sequences and of their tokens, or zeros if there are none.
	HeldOut() (sequences, tokens int)
	// Measure returns the mean loss of the model on the held-out sequences, in nats per token.
	Measure(ctx context.Context) (loss float64, err error)
}
