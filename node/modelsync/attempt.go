package modelsync

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
)

// Reasons why an attempt failed.
var (
	ErrNoHolder = errors.New("no member has the model")
	// ErrReplay means that the results named by peers did not lead to the run's model, so that the
	// whole model must be fetched.
	ErrReplay = errors.New("catching up by results failed")
)

// Network is the part of env.Network that a model transfer uses.
type Network interface {
	env.Requests
	Lend(data []byte) ([32]byte, error)
	LendFrom(data *io.SectionReader, lost func(error)) ([32]byte, error)
	Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error)
}

// Options are the options of all attempts of a client.
type Options struct {
	Network           Network
	Tasks             *env.Tasks
	Folder            keep.Folder
	Log               *slog.Logger
	ParameterRequests int // concurrent requests for parts of a model
	Downloads         int // concurrent downloads of results
	Emit              func(body event.Body)

	// NewTrainer builds a trainer. client.Options documents this field and the fields below.
	NewTrainer func(ctx context.Context, s checkpoint.Snapshot, run env.Definition) (env.Trainer, error)
	Initial    func(ctx context.Context, c coordinator.Checkpoint) (checkpoint.Snapshot, error)
	Archive    func(ctx context.Context, c coordinator.Checkpoint, at coordinator.Location) (checkpoint.Snapshot, error)
}

// Attempt is one attempt to load the model of a checkpoint.
type Attempt struct {
	*Options
	Request

	// Model is the loaded model.
	Model *Model
	// Rounds are the rounds whose results were applied to an earlier model; empty if the whole
	// model was loaded.
	Rounds []exchange.AppliedRound

	known      *Model        // the model itself, if this client already shares it; nil: it does not
	Tries      int           // attempts to get this model, with this one
	base       *base         // an earlier model in memory, from which to catch up by results; nil: none
	replayTime time.Duration // time limit for catching up by results
	results    [][32]byte    // blobs that were fetched to catch up
}

// triesPerWarning is the number of attempts between two warnings that no source has the model.
const triesPerWarning = 30

// Level returns the level for logging that the newest of a number of attempts found no source.
func Level(tries int) slog.Level {
	if tries%triesPerWarning == 1 {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// source gets the model from one place. If it fails, more reports whether to try the next source.
type source func(ctx context.Context) (s checkpoint.Snapshot, more bool, err error)

// Run gets the model and loads it into the trainer of the request. If the request has none, Run
// creates one and sets a.Trainer.
func (a *Attempt) Run(ctx context.Context) error {
	begun := a.Tasks.Now()
	err := a.run(ctx)
	a.Model.Seconds = a.Tasks.Now().Sub(begun).Seconds()
	return err
}

func (a *Attempt) run(ctx context.Context) error {
	snapshot, err := a.snapshot(ctx)
	if err != nil {
		return err
	}
	a.Model.Size = sizeOf(snapshot)
	if a.Trainer, err = a.loaded(ctx, snapshot); err == nil {
		a.restoreOptimizer(ctx)
	}
	return err
}

// loaded returns the trainer with a model. It creates the trainer if the request has none.
func (a *Attempt) loaded(ctx context.Context, s checkpoint.Snapshot) (env.Trainer, error) {
	if a.Trainer == nil {
		return a.NewTrainer(ctx, s, a.Definition)
	}
	return a.Trainer, a.Trainer.Load(ctx, s)
}

// snapshot gets the model's content from the first source that succeeds.
func (a *Attempt) snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	var before error // ErrNoHolder of a previous source, which is added to a later source's error
	for _, from := range a.Sources {
		snapshot, more, err := a.source(from)(ctx)
		if err == nil {
			return snapshot, nil
		}
		if before != nil {
			err = fmt.Errorf("%w; %w", before, err)
		}
		if !more {
			return snapshot, err
		}
		if errors.Is(err, ErrNoHolder) {
			before = err
		}
	}
	return checkpoint.Snapshot{}, before
}

// source returns the function that gets the model from a source.
func (a *Attempt) source(from core.Source) source {
	return map[core.Source]source{
		core.SharedModel: a.fromMemory, core.OwnCopy: a.fromCopy, core.OwnDisk: a.fromDisk, core.OwnResults: a.fromResults,
		core.OtherMembers: a.fromPeers, core.Archives: a.fromArchive, core.FirstModel: a.fromStart,
	}[from]
}

func (a *Attempt) checkpoint() *coordinator.Checkpoint { return &a.Definition.Checkpoint }

// fromMemory gets a model that this client already shares: from memory or, if it is large, from its
// disk.
func (a *Attempt) fromMemory(ctx context.Context) (checkpoint.Snapshot, bool, error) {
	if a.known == nil {
		return checkpoint.Snapshot{}, true, errNoBase
	}
	snapshot, err := a.read(ctx, a.known)
	if err != nil {
		a.Log.Warn("cannot read the shared model", "step", a.known.Step, "err", err)
		a.known = nil
		return snapshot, true, err
	}
	copied := *a.known
	copied.Snapshot = snapshot
	copied.Origin, copied.Fresh, copied.Source, copied.Fetched = *a.checkpoint(), true, "held", 0
	a.Model = &copied
	return snapshot, false, nil
}

// fromCopy uses a copy of the model in memory, taken during the model's epoch.
func (a *Attempt) fromCopy(ctx context.Context) (checkpoint.Snapshot, bool, error) {
	if a.Copy == nil {
		return checkpoint.Snapshot{}, true, errNoBase
	}
	err := a.adopt(ctx, *a.Copy, "held")
	return *a.Copy, true, err
}

// fromStart gets the run's first model.
func (a *Attempt) fromStart(ctx context.Context) (checkpoint.Snapshot, bool, error) {
	snapshot, err := a.Initial(ctx, *a.checkpoint())
	if err != nil {
		return snapshot, false, err
	}
	snapshot.Step = 0 // reset, so that all members agree on the digest
	if err := snapshot.Validate(); err != nil {
		return snapshot, false, err
	}
	manifest := snapshot.Manifest()
	a.Model.Digest, a.Model.Source = manifest.Digest(), "initial"
	return snapshot, false, nil
}

// adopt verifies by the digest that a snapshot is the wanted model, bit for bit. If it is, the
// attempt uses it, and peers can fetch it.
func (a *Attempt) adopt(ctx context.Context, snapshot checkpoint.Snapshot, source string) error {
	if err := snapshot.Validate(); err != nil {
		return err
	}
	if digest := snapshot.Manifest().Digest(); digest != a.checkpoint().Digest {
		return fmt.Errorf("%w: digest %s, want %s", checkpoint.ErrInvalid, short(digest), short(a.checkpoint().Digest))
	}
	if err := a.Model.Publish(ctx, a.Tasks, Idle, a.Network.Lend, snapshot); err != nil {
		return err
	}
	a.Model.Step, a.Model.Source = a.checkpoint().Step, source
	return nil
}

// restoreOptimizer loads the momentum that an earlier process of this client saved, if it was saved
// with exactly the loaded model. Otherwise the optimizer is reset, which is logged if this client
// trained before. In a run with audits, clients do not save the momentum, because auditors could not
// verify where it came from.
func (a *Attempt) restoreOptimizer(ctx context.Context) {
	saver, ok := a.Trainer.(env.OptimizerSaver)
	c := a.checkpoint()
	if !ok || a.Folder.Dir == "" || a.known != nil {
		return
	}
	found, why := false, "in a run with audits, clients do not save the optimizer's state"
	var err error
	if !a.Definition.Audited {
		found, err = a.Folder.RestoreOptimizer(ctx, saver, c.Step, c.Digest)
		why = "no optimizer state was saved with this model"
	}
	switch {
	case err != nil:
		a.Log.Warn("optimizer reset: its saved state cannot be used", "step", c.Step, "err", err)
	case found:
		a.Model.Fresh = false
		a.Log.Info("optimizer state restored", "step", c.Step)
	case a.Folder.Trained():
		a.Log.Info("optimizer reset", "step", c.Step, "because", why)
	}
}

// short returns the first 8 bytes of a digest in hexadecimal, for messages.
func short(digest [32]byte) string { return hex.EncodeToString(digest[:8]) }

// progressParts is the maximum number of progress reports of a transfer.
const progressParts = 50

// progress reports the progress of a transfer. It is safe for concurrent use.
type progress struct {
	emit func(body event.Body) // nil: no reports

	mu       sync.Mutex
	now      event.Transfer
	reported uint64 // number of progressParts reported
}

// progress returns a progress for a transfer of total bytes of the model of a step.
func (o *Options) progress(kind string, step uint32, total uint64) *progress {
	p := &progress{emit: o.Emit, now: event.Transfer{What: kind, Step: step, Total: total}}
	p.tell()
	return p
}

// add counts received bytes.
func (p *progress) add(bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Bytes += bytes
	if parts := p.now.Bytes * progressParts / max(p.now.Total, 1); parts != p.reported {
		p.reported = parts
		p.tell()
	}
}

func (p *progress) tell() {
	if p.emit != nil && p.now.Total > 0 {
		p.emit(p.now)
	}
}
