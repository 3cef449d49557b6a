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

// Backend is the host of the run; package backend says what it promises.
type Backend interface {
	Updates() <-chan backend.Update
	Submit(ctx context.Context, a coordinator.Action) error
	Announce(ctx context.Context, addrs []string) error
	Err() error
	Close() error
}

// Network is the peer-to-peer network of one client. Client/p2pnet is the real one,
// node/memnet the one in memory. All methods may be called from any goroutine.
type Network interface {
	peers
	gossip
	Requests
	Blobs
}

// peers decides whom the network talks to.
type peers interface {
	// Addrs returns the own addresses, as peers reach them.
	Addrs() []string
	// SetMembers replaces the peers that are dialled and listened to.
	SetMembers(peers []backend.Peer)
	// Bytes returns the bytes sent and received since the start.
	Bytes() (sent, received uint64)
}

// gossip spreads small messages to all members, without a promise that they arrive.
type gossip interface {
	Publish(ctx context.Context, message []byte) error
	// Subscribe hands every message of other members to handle, which returns quickly, until ctx
	// is done. An error of handle keeps the network from passing the message on, and is held against
	// the member that did, unless it is ErrUnasked. It may be called from several goroutines at once.
	Subscribe(ctx context.Context, handle func(from identity.ID, message []byte) error) error
}

// Requests asks single members.
type Requests interface {
	// Request sends a request and returns the answer of at most maxResponse bytes.
	Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error)
	// Handle answers requests of members that are at most maxRequest bytes long.
	Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error))
}

// ErrUnasked says of a message that nobody here needs it, and that an honest member may have passed it on.
var ErrUnasked = errors.New("it is of no use here")

// ErrNoRoom is the error of a fetch whose blob does not fit into the memory for shared data.
var ErrNoRoom = errors.New("it does not fit into the memory for shared data: give it more, with --max-blob-memory")

// Blobs shares immutable data under its BLAKE3 hash.
type Blobs interface {
	// Put makes data available to members until Drop; data is not modified afterwards.
	Put(data []byte) ([32]byte, error)
	// Lend is Put for data that the caller keeps in memory anyway until Drop.
	Lend(data []byte) ([32]byte, error)
	// LendFrom is Lend for data in a file that stays open until the collector finds that nobody has hold of it. What is
	// not the same any more, or cannot be read, is dropped, and lost is told why, once, from any goroutine.
	LendFrom(data *io.SectionReader, lost func(error)) ([32]byte, error)
	Drop(hash [32]byte)
	// Fetch gets a blob of size bytes from any of the holders, verifies it and keeps it
	// as Put does. The error is ErrNoRoom when there is no memory to keep it in.
	Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error)
	// FetchUpTo is Fetch for a blob of which only a bound of its size is known.
	FetchUpTo(ctx context.Context, hash [32]byte, maxSize uint64, holders []identity.ID) ([]byte, error)
}

// DataProvider gives the token sequences of a batch; package data has it.
type DataProvider interface {
	Batch(ctx context.Context, id assign.BatchID) (data.Batch, error)
}

// Definition is what a trainer is built from.
type Definition struct {
	coordinator.Model
	Audited bool // members audit each other's results: the trainer is an Auditor
}

// Trainer holds the model and its optimizer. The client calls all methods but Verify,
// MaxResultSize and ApplyLag from one goroutine at a time.
type Trainer interface {
	// Train computes the result of a batch: a blob in the encoding of package
	// core/codec, and the mean loss. Between the gradient and the optimizer it calls
	// begun, which returns when the round of the step has begun, or an error when it does
	// not come. When Train returns an error, also because ctx was cancelled, model and
	// optimizer are as before.
	Train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error)
	// Verify checks that payload is a well-formed result of that step, batch and
	// trainer. It is cheap and may be called at any time.
	Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error
	// Apply makes the counted results of a step part of the model. Payloads were
	// verified and are in ascending order of their batches; there may be none.
	// OwnCounted says whether the result of Train for that step is among them.
	Apply(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) error
	// Snapshot returns a copy of the model.
	Snapshot(ctx context.Context) (checkpoint.Snapshot, error)
	// Load replaces the model and resets the optimizer.
	Load(ctx context.Context, s checkpoint.Snapshot) error
	// ResetOptimizer forgets the momentum.
	ResetOptimizer(ctx context.Context) error
	// SetColdStart lets the learning rate grow from 0 at step start for that many
	// steps; 0 steps end that.
	SetColdStart(ctx context.Context, start, steps uint32) error
	// MaxResultSize returns the most bytes that a valid result can have.
	MaxResultSize() int
	// ApplyLag returns the number of rounds after which results are applied: those of a
	// step s before step s + ApplyLag is trained. 1 or 2, the same for all members.
	ApplyLag() uint32
}

// Auditor is a Trainer whose results commit to its momentum, so that others can audit them, and
// that can audit theirs. In a run with audits every Trainer is one, and its results are in the
// encoding of package core/codec.
type Auditor interface {
	// Shapes returns how the model is cut. Always the same.
	Shapes() audit.Shapes
	// Precisions returns the types that gradients can be computed in here, the own one first.
	Precisions() []audit.Precision
	// Decode reads a result. It may be called at any time.
	Decode(payload []byte) (codec.Header, []codec.TensorResult, error)
	// Open shows chunks of the momentum of the step that was trained last. It may be called at
	// any time, from begun of Train too, before the next result is made.
	Open(step uint32, chunks []uint32) (audit.Opening, error)
	// Settle says whether the result of a step, the newest that was trained, is held. One that is not
	// is rolled back: the momentum becomes what it was before.
	Settle(step uint32, held bool) error
	// CheckLight returns what is wrong with a claim, as far as it takes no gradient to know.
	CheckLight(c audit.Claim) audit.Fault
	// Recompute computes what the gradient of an earlier step should have been, whose batch it is
	// given. Afterwards, and when it returns an error, model and optimizer are as before.
	Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error)
}

// Foreseer is a Trainer that can go on from the results of a step before it is decided that they count.
type Foreseer interface {
	// Foresee moves the weights as Apply would, if done. Train of a later step then goes on from there, and must have
	// Confirm before begun returns. Whatever else is called takes it back first, but Apply of the same.
	Foresee(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) (done bool, err error)
	// Confirm stands for Apply of what was foreseen. It returns false if that was taken back. It may be called at any
	// time, also while Train waits in begun.
	Confirm(step uint32) bool
}

// Lender is a Trainer whose model can be read where it is.
type Lender interface {
	// Lend hands the model to use, without a copy, and changes nothing of it until that returns.
	Lend(ctx context.Context, use func(s checkpoint.Snapshot) error) error
}

// OptimizerSaver is a Trainer whose optimizer can survive a restart of the process.
type OptimizerSaver interface {
	// SaveOptimizer returns what writes the momentum, as it is now, to a file, in one step, from any goroutine, and how
	// many bytes it has. Up to most of them are copied, so that the trainer can go on meanwhile; with more it has
	// to wait. Everything that was trained has been applied.
	SaveOptimizer(ctx context.Context, most int) (bytes int, write func(path string) error, err error)
	// LoadOptimizer continues from a file that was saved together with the model that is
	// loaded. When it returns an error the optimizer is as before.
	LoadOptimizer(ctx context.Context, path string) error
}
