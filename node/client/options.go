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

// errInvalidOptions says which option is missing or out of range.
var errInvalidOptions = errors.New("invalid client options")

// Options are everything a client is made of. Zero durations and limits mean the
// defaults named beside them.
type Options struct {
	Key     identity.Key
	RunID   string
	Name    string      // that it gives itself; empty for none
	Backend env.Backend // closed by the caller
	Network env.Network // closed by the caller
	Data    env.DataProvider

	// NewTrainer builds the model from the first snapshot that the client gets; later
	// ones are given to Trainer.Load. It is called again after the run was configured
	// anew, and replaces the trainer then. Its ctx ends with the call.
	NewTrainer func(ctx context.Context, s checkpoint.Snapshot, run env.Definition) (env.Trainer, error)
	// CheckRun finds out, before the client asks for a place in the run, whether it could do
	// its part; an error ends the client. It is called in a goroutine of its own, again when
	// the run is configured anew, or falls back to the model that it began with. May be nil.
	CheckRun func(ctx context.Context, run env.Definition) error
	// Initial loads the model of a checkpoint that does not come from peers.
	Initial func(ctx context.Context, c coordinator.Checkpoint) (checkpoint.Snapshot, error)

	CheckpointDir   string // folder for the checkpoint of each epoch; empty: save none
	KeepCheckpoints int    // newest checkpoints of the run that stay in the folder; 0: all

	// Saved is told of each checkpoint in the folder, before older ones are removed. It
	// is called from any goroutine and must not wait. May be nil.
	Saved func(dir string, f checkpoint.Facts)
	// MakeRoom frees what it can of the disk when a checkpoint does not fit, and returns how many bytes
	// that were. It is called from any goroutine. May be nil.
	MakeRoom func() int64
	// Archive gets a model that no member gives any more: from a place that a member
	// reported or, for the zero Place, from wherever the caller knows it to lie. What it
	// returns is checked against the digest in c. May be nil.
	Archive func(ctx context.Context, c coordinator.Checkpoint, at coordinator.Place) (checkpoint.Snapshot, error)

	// AcceptLoss joins at once although the newest model that the run recorded is not here, an older one
	// is, and nobody else who is there has it. Without it the client waits for somebody who has.
	AcceptLoss bool

	// FollowUpdates goes on with a run whose main authority put another model in the place of the one
	// that was trained. Without it the client ends with ErrReplaced.
	FollowUpdates bool

	Downloads         int // results of peers on their way at once; 8
	ParameterRequests int // parts of a model on their way at once; 8

	// ResultMemory bounds the bytes of counted results that are kept for members that
	// were away; of epochs that are over no more are kept than the model has. 256 MiB.
	ResultMemory uint64

	// AuditIdle lets this client audit also in rounds in which it trains, whenever its trainer is idle.
	AuditIdle bool

	// Misbehaved is told of members that send what no honest member sends. It is called
	// from any goroutine and must not wait. May be nil.
	Misbehaved func(peer identity.ID, detail string)

	Events *event.Log   // may be nil
	Logger *slog.Logger // may be nil

	// DiskHangs is told when Run gives up what is on its way to a disk that does not answer: goroutines of this client
	// wait for it still, and whatever else needs that disk may wait as well. May be nil.
	DiskHangs func()

	// Computes is called when Run returns after the end of its context while tasks that write nothing still run, such as
	// the loading of a large model. These tasks use the trainer and its data. May be nil.
	Computes func()

	Runtime       env.Runtime       // nil: goroutines and the wall clock
	Announcements env.Announcements // nil: those of package wire, signed with Key
	Draws         env.Draws         // nil: those of package coordinator

	RepublishInterval time.Duration // between attempts to heal lost gossip; 2 s
	SettleTimeout     time.Duration // to complete a finished round; the run's MaxRoundTrainTime
	LeaveTimeout      time.Duration // to report the model before a client that is told to end withdraws; 5 s
	WithdrawTimeout   time.Duration // for the farewell; 2 s
	// FinalWait is how long a client stays when the run is finished: to find the final model
	// when it was cut off in the last epoch, or for members that were to come. Getting it may
	// take the run's WarmupTime more. 30 s; negative: not at all.
	FinalWait time.Duration
}

// Defaults of Options, and intervals that nobody needs to change.
const (
	defaultRepublishInterval = 2 * time.Second
	defaultLeaveTimeout      = 5 * time.Second
	defaultWithdrawTimeout   = 2 * time.Second
	defaultFinalWait         = 30 * time.Second
	defaultDownloads         = 8
	defaultParameterRequests = 8
	defaultResultMemory      = 256 << 20

	heartbeat      = 200 * time.Millisecond // at most so late a deadline is noticed
	requestTimeout = 5 * time.Second        // for one question to one peer

	maxHeardAtOnce = coordinator.MaxClients // announcements, before the loop looks at anything else
)

// withDefaults returns the options with defaults filled in, or what is wrong with them.
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

// folder is where this client keeps what it has of the run.
func (o *Options) folder() keep.Folder {
	return keep.Folder{Dir: o.CheckpointDir, RunID: o.RunID, ID: o.Key.ID()}
}
