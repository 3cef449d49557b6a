package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/meter"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/learn/model"
)

// reports is what is known of the places at which members say that the run's model lies. Any
// member may name any place, in time before every honest upload.
type reports struct {
	dir     string         // for what comes from them, of this client alone; removed at its end
	refused map[claim]bool // they gave another model
	limits  map[coordinator.Place]int64
}

// claim is that a place has a model.
type claim struct {
	at     coordinator.Place
	digest [32]byte
}

// errRefusedReport says that a place is not asked any more.
var errRefusedReport = errors.New("it provided a wrong model before")

// reportsDir is where a client keeps what comes from reported places. It is the same for all
// processes with a key: one that was killed leaves nothing that the next does not take up or
// remove.
func reportsDir(runID string, member identity.ID) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for downloads: %w", err)
	}
	name := sha256.Sum256(append(member[:], runID...))
	return filepath.Join(cache, "psyche", "reports", fmt.Sprintf("%x", name[:16])), nil
}

// fromReport gets the wanted model from a place that a member reported. Nothing is believed:
// it is downloaded if the place says at least that it has it, and has no more bytes than the
// model may have; it is read into memory if it is that model, bit for bit; and nothing of it
// stays on the disk. Only what is interrupted stays, for the next attempt.
func (a *archives) fromReport(ctx context.Context, wanted coordinator.Checkpoint, at coordinator.Place) (checkpoint.Snapshot, error) {
	claimed := claim{at, wanted.Digest}
	if a.reports.refused[claimed] {
		return checkpoint.Snapshot{}, errRefusedReport
	}
	name := sha256.Sum256(fmt.Appendf(nil, "%x %v %q %q", wanted.Digest, at.Kind, at.Repo, at.Revision))
	folder := filepath.Join(a.reports.dir, fmt.Sprintf("%x", name[:16]))
	dir, err := a.downloadReport(ctx, wanted, at, folder)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	snapshot, err := a.readWanted(ctx, dir, wanted)
	if ctx.Err() != nil {
		return checkpoint.Snapshot{}, err
	}
	if err != nil {
		if a.reports.refused == nil {
			a.reports.refused = make(map[claim]bool)
		}
		a.reports.refused[claimed] = true
	}
	if problem := os.RemoveAll(folder); problem != nil {
		a.logger.Warn("remove the download", "err", problem)
	}
	return snapshot, err
}

// downloadReport puts what a place has into a folder below the given one.
func (a *archives) downloadReport(ctx context.Context, wanted coordinator.Checkpoint, at coordinator.Place, folder string) (dir string, err error) {
	from := coordinator.Checkpoint{Kind: at.Kind, Repo: at.Repo, Revision: at.Revision}
	limit := a.sizeLimit(ctx, wanted)
	if at.Kind == coordinator.CheckpointHub {
		place, err := a.runRepo(from)
		if err != nil {
			return "", err
		}
		place.MaxBytes, place.Client.CacheDir = limit, folder
		facts, place, err := place.Facts(ctx)
		if err != nil {
			return "", err
		}
		return a.downloadClaimed(ctx, facts, wanted, place)
	}
	bucket, err := a.runBucket(ctx, from)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	bucket.MaxBytes, bucket.CacheDir = limit, folder
	facts, err := bucket.Facts(ctx)
	if err != nil {
		return "", err
	}
	return a.downloadClaimed(ctx, facts, wanted, bucket)
}

// downloadClaimed downloads from a place that says of itself to have the wanted model.
func (a *archives) downloadClaimed(ctx context.Context, f checkpoint.Facts, wanted coordinator.Checkpoint, from interface {
	Download(ctx context.Context, progress remote.Progress) (string, error)
}) (string, error) {
	if err := compareFacts(f, wanted); err != nil {
		return "", err
	}
	a.logger.Info("downloading the model from a location reported by a member", "from", from)
	return from.Download(ctx, a.arrives(wanted.Step))
}

// compareFacts returns an error unless a checkpoint says of itself to be the wanted one.
func compareFacts(f checkpoint.Facts, wanted coordinator.Checkpoint) error {
	if f.Digest != fmt.Sprintf("%x", wanted.Digest) {
		return fmt.Errorf("wrong model: step %d of run %q with digest %.16s, want step %d with digest %x", f.Step, f.RunID, f.Digest, wanted.Step, wanted.Digest[:8])
	}
	return nil
}

// readWanted reads a folder that has the wanted model, and nothing of any other.
func (a *archives) readWanted(ctx context.Context, dir string, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	digest, err := checkpoint.DigestDir(ctx, dir, meter.Logged(a.logger, "verifying the model's hash"))
	if err == nil && digest != wanted.Digest {
		err = fmt.Errorf("%w: model digest %x, want %x", checkpoint.ErrInvalid, digest[:8], wanted.Digest[:8])
	}
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return readLogged(a.logger, dir)
}

const (
	bytesOfParameter   = 4       // in the checkpoints of a run, which are F32
	bytesBeside        = 1 << 30 // for all that is no parameter: buffers, headers, tokenizer
	modelConfigTimeout = 10 * time.Second
)

// sizeLimit is how many bytes the wanted model's files may have: what the config.json that
// the run began with says, and where it cannot be read, what could be shared with peers.
func (a *archives) sizeLimit(ctx context.Context, wanted coordinator.Checkpoint) int64 {
	origin := coordinator.Place{Kind: wanted.Origin, Repo: wanted.Repo, Revision: wanted.Revision}
	if limit, known := a.reports.limits[origin]; known {
		return limit
	}
	limit := a.shared << 20
	config, err := a.originConfig(ctx, wanted)
	var description model.Description
	if err == nil {
		description, err = model.Describe(config)
	}
	if err != nil {
		a.logger.Info("the size of the run's model is unknown", "at most, in MiB", limit>>20, "why", err)
		return limit
	}
	if n := description.NumParameters; n >= 0 && n < (limit-bytesBeside)/bytesOfParameter {
		limit = n*bytesOfParameter + bytesBeside
	}
	if a.reports.limits == nil {
		a.reports.limits = make(map[coordinator.Place]int64)
	}
	a.reports.limits[origin] = limit
	return limit
}

// originConfig returns the config.json of the model that the run began with.
func (a *archives) originConfig(ctx context.Context, wanted coordinator.Checkpoint) (config []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, modelConfigTimeout)
	defer cancel()
	switch {
	case a.ModelPath != "":
		return os.ReadFile(filepath.Join(a.ModelPath, checkpoint.ConfigFile))
	case wanted.Origin == coordinator.CheckpointLocal && a.AllowLocalPaths:
		return os.ReadFile(filepath.Join(wanted.Repo, checkpoint.ConfigFile))
	case wanted.Origin == coordinator.CheckpointHub:
		place, err := a.runRepo(wanted)
		if err != nil {
			return nil, err
		}
		return place.Config(ctx)
	case wanted.Origin != coordinator.CheckpointGcs:
		return nil, errors.New("the run's initial model is not available")
	}
	bucket, err := a.runBucket(ctx, wanted)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	return bucket.Config(ctx)
}
