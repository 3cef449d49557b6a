package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// errInvalidOptions means that an option is missing or out of range.
var errInvalidOptions = errors.New("invalid client options")

// Options are the parts and settings of a client. A duration or limit of zero means the default
// named in its comment.
type Options struct {
	Key     identity.Key
	RunID   string
	Name    string      // name of the client for people; may be empty
	Backend env.Backend // closed by the caller
	Network env.Network // closed by the caller
	Data    env.DataProvider

	// NewTrainer builds the model from the first snapshot that the client gets; later snapshots go
	// to Trainer.Load. It is called again after a change of the run's configuration, and then
	// replaces the trainer. Its ctx ends with the call.
	NewTrainer func(ctx context.Context, s checkpoint.Snapshot, run env.Definition) (env.Trainer, error)
	// CheckRun checks, before the client joins the run, whether the client could do its part. An
	// error ends the client. CheckRun runs in its own goroutine. It is called again if the run's
	// configuration changes, or if the run falls back to the model that it started with. May be
	// nil.
	CheckRun func(ctx context.Context, run env.Definition) error
	// Initial loads the model of a checkpoint that does not come from peers.
	Initial func(ctx context.Context, c coordinator.Checkpoint) (checkpoint.Snapshot, error)

	CheckpointDir   string // folder for the checkpoint of each epoch; empty: save none
	KeepCheckpoints int    // newest checkpoints of the run to keep in the folder; 0: all

	// Saved is called for each new checkpoint in the folder, before older checkpoints are removed.
	// It is called from any goroutine and must not block. May be nil.
	Saved func(dir string, f checkpoint.Facts)
	// MakeRoom frees disk space if a checkpoint does not fit, and returns the number of bytes that
	// it freed. It is called from any goroutine. May be nil.
	MakeRoom func() int64
	// Archive loads a model that no member provides any more: from a location that a member
	// reported or, for the zero Location, from a location that the caller knows. The client checks the
	// result against the digest in c. May be nil.
	Archive func(ctx context.Context, c coordinator.Checkpoint, at coordinator.Location) (checkpoint.Snapshot, error)

	// AcceptLoss makes the client join at once if it has an older model of the run, but neither it
	// nor any peer that is present has the newest model that the run recorded. Without AcceptLoss
	// the client waits for a peer that has the newest model.
	AcceptLoss bool

	// FollowUpdates keeps the client in a run after the main authority replaced the model that was
	// being trained. Without it the client ends with ErrReplaced.
	FollowUpdates bool

	Downloads         int // concurrent downloads of peers' results; default 8
	ParameterRequests int // concurrent requests for parts of a model; default 8

	// ResultMemory bounds the bytes of counted results that the client keeps for members that were
	// away. Results of earlier epochs additionally take no more than the size of the model. The
	// default is 256 MiB.
	ResultMemory uint64

	// AuditIdle lets this client audit also in rounds in which it trains, while its trainer is
	// idle.
	AuditIdle bool

	// Misbehaved is called for a member that sends a message that no honest member sends. It is
	// called from any goroutine and must not block. May be nil.
	Misbehaved func(peer identity.ID, detail string)

	Events *event.Log   // may be nil
	Logger *slog.Logger // may be nil

	// DiskHangs is called when Run returns although the disk has not answered some operations:
	// goroutines of this client still wait for it, and other users of that disk may wait as well.
	// May be nil.
	DiskHangs func()

	// Computes is called when Run returns after the end of its context while tasks that write
	// nothing still run, such as the loading of a large model. These tasks use the trainer and its
	// data. May be nil.
	Computes func()

	Runtime       env.Runtime       // nil: goroutines and the wall clock
	Announcements env.Announcements // nil: package wire, signed with Key
	Draws         env.Draws         // nil: package coordinator

	RepublishInterval time.Duration // time between attempts to repair lost gossip; default 2 s
	CompletionTimeout time.Duration // time limit to complete a finished round; default: the run's MaxRoundTrainTime
	LeaveTimeout      time.Duration // time limit to report the model, after the context ended and before the client withdraws; default 5 s
	WithdrawTimeout   time.Duration // time limit to withdraw; default 2 s
	// FinalWait is how long a client stays after the run is finished: to fetch the final model if
	// the client was disconnected in the last epoch, to serve it to members that are still expected,
	// or to save it if the disk was full. Fetching the model may take the run's WarmupTime more. The
	// default is 30 s; with a negative value, the client does not stay.
	FinalWait time.Duration
}

// Defaults of Options, and internal intervals.
const (
	defaultRepublishInterval = 2 * time.Second
	defaultLeaveTimeout      = 5 * time.Second
	defaultWithdrawTimeout   = 2 * time.Second
	defaultFinalWait         = 30 * time.Second
	defaultDownloads         = 8
	defaultParameterRequests = 8
	defaultResultMemory      = 256 << 20

	heartbeat      = 200 * time.Millisecond // maximum delay in noticing a deadline
	requestTimeout = 5 * time.Second        // for one request to one peer

	maxReceivedAtOnce = coordinator.MaxClients // announcements that the loop processes before other events
)

// withDefaults returns the options with defaults filled in, or the error of an invalid option.
func (o Options) withDefaults() (Options, error) {
	missing := ""
	switch {
	case o.Key.Private() == nil:
		missing = "Key"
	case o.RunID == "" || len(o.RunID) > coordinator.MaxRunIDLength:
		return o, fmt.Errorf("%w: RunID %q must have 1 to %d bytes", errInvalidOptions, o.RunID, coordinator.MaxRunIDLength)
	case o.Backend == nil:
		missing = "Backend"
	case o.Network == nil:
		missing = "Network"
	case o.Data == nil:
		missing = "Data"
	case o.NewTrainer == nil:
		missing = "NewTrainer"
	case o.Initial == nil:
		missing = "Initial"
	}
	if missing != "" {
		return o, fmt.Errorf("%w: %s is missing", errInvalidOptions, missing)
	}
	if err := wire.CheckName(o.Name); o.Name != "" && err != nil {
		return o, fmt.Errorf("%w: Name %q: %w", errInvalidOptions, o.Name, err)
	}
	if o.KeepCheckpoints < 0 {
		return o, fmt.Errorf("%w: KeepCheckpoints is %d, must not be negative", errInvalidOptions, o.KeepCheckpoints)
	}
	if o.Downloads < 0 || o.ParameterRequests < 0 {
		return o, fmt.Errorf("%w: Downloads is %d, ParameterRequests %d; must not be negative", errInvalidOptions, o.Downloads, o.ParameterRequests)
	}
	o.Downloads = cmp.Or(o.Downloads, defaultDownloads)
	o.ParameterRequests = cmp.Or(o.ParameterRequests, defaultParameterRequests)
	o.ResultMemory = cmp.Or(o.ResultMemory, defaultResultMemory)
	if o.Misbehaved == nil {
		o.Misbehaved = func(identity.ID, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Announcements == nil {
		o.Announcements = env.Signed{Key: o.Key}
	}
	if o.Draws == nil {
		o.Draws = env.Drawn{}
	}
	setDefault(&o.RepublishInterval, defaultRepublishInterval)
	setDefault(&o.LeaveTimeout, defaultLeaveTimeout)
	setDefault(&o.WithdrawTimeout, defaultWithdrawTimeout)
	o.FinalWait = cmp.Or(o.FinalWait, defaultFinalWait)
	return o, nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// folder returns the folder of this client's files of the run.
func (o *Options) folder() keep.Folder {
	return keep.Folder{Dir: o.CheckpointDir, RunID: o.RunID, ID: o.Key.ID()}
}
