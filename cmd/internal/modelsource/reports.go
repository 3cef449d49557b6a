package modelsource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/learn/model"
)

// Any member may report any location for the run's model, and may do so before every honest member has uploaded the model.

// claim is the claim that a location has a model.
type claim struct {
	at     coordinator.Location
	digest [32]byte
}

// errRefusedReport means that a location is no longer used.
var errRefusedReport = errors.New("this location provided a wrong model before")

// reportsDir returns the folder for downloads from reported locations. It is the same for all
// processes with a key, so that a process resumes or removes the files that a killed process left.
func reportsDir(runID string, member identity.ID) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for downloads: %w", err)
	}
	name := sha256.Sum256(append(member[:], runID...))
	return filepath.Join(cache, "psyche", "reports", fmt.Sprintf("%x", name[:16])), nil
}

// fromReport gets the wanted model from a location that a member reported. It does not trust the
// location. It downloads only if the location claims to have the model, and if the files are not larger
// than the model can be. It loads the download only if it is that model, bit for bit. It removes the
// files, unless the download was interrupted: then they remain for the next attempt.
func (s *Source) fromReport(ctx context.Context, wanted coordinator.Checkpoint, at coordinator.Location) (checkpoint.Snapshot, error) {
	claimed := claim{at, wanted.Digest}
	if s.refused[claimed] {
		return checkpoint.Snapshot{}, errRefusedReport
	}
	name := sha256.Sum256(fmt.Appendf(nil, "%x %v %q %q", wanted.Digest, at.Kind, at.Repo, at.Revision))
	folder := filepath.Join(s.dir, fmt.Sprintf("%x", name[:16]))
	dir, err := s.downloadReport(ctx, wanted, at, folder)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	snapshot, err := s.readWanted(ctx, dir, wanted)
	if ctx.Err() != nil {
		return checkpoint.Snapshot{}, err
	}
	if err != nil {
		if s.refused == nil {
			s.refused = make(map[claim]bool)
		}
		s.refused[claimed] = true
	}
	if problem := os.RemoveAll(folder); problem != nil {
		s.Logger.Warn("remove the download", "err", problem)
	}
	return snapshot, err
}

// downloadReport downloads the model from a location into a subfolder of folder.
func (s *Source) downloadReport(ctx context.Context, wanted coordinator.Checkpoint, at coordinator.Location, folder string) (dir string, err error) {
	from := coordinator.Checkpoint{Kind: at.Kind, Repo: at.Repo, Revision: at.Revision}
	limit := s.sizeLimit(ctx, wanted)
	if at.Kind == coordinator.CheckpointHub {
		place, err := s.runRepo(from)
		if err != nil {
			return "", err
		}
		place.MaxBytes, place.Client.CacheDir = limit, folder
		facts, place, err := place.Facts(ctx)
		if err != nil {
			return "", err
		}
		return s.downloadClaimed(ctx, facts, wanted, place)
	}
	bucket, err := s.runBucket(ctx, from)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	bucket.MaxBytes, bucket.CacheDir = limit, folder
	facts, err := bucket.Facts(ctx)
	if err != nil {
		return "", err
	}
	return s.downloadClaimed(ctx, facts, wanted, bucket)
}

// downloadClaimed downloads from a location that claims to have the wanted model.
func (s *Source) downloadClaimed(ctx context.Context, f checkpoint.Facts, wanted coordinator.Checkpoint, from interface {
	Download(ctx context.Context, progress remote.Progress) (string, error)
}) (string, error) {
	if err := compareFacts(f, wanted); err != nil {
		return "", err
	}
	s.Logger.Info("downloading the model from a location reported by a member", "from", from)
	return from.Download(ctx, s.arrives(wanted.Step))
}

// compareFacts returns an error unless a checkpoint claims to be the wanted one.
func compareFacts(f checkpoint.Facts, wanted coordinator.Checkpoint) error {
	if f.Digest != fmt.Sprintf("%x", wanted.Digest) {
		return fmt.Errorf("wrong model: step %d of run %q with digest %.16s, want step %d with digest %x", f.Step, f.RunID, f.Digest, wanted.Step, wanted.Digest[:8])
	}
	return nil
}

// readWanted reads a folder if it contains the wanted model, and returns an error otherwise.
func (s *Source) readWanted(ctx context.Context, dir string, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	digest, err := checkpoint.DigestDir(ctx, dir, meter.Logged(s.Logger, "verifying the model's hash"))
	if err == nil && digest != wanted.Digest {
		err = fmt.Errorf("%w: model digest %x, want %x", checkpoint.ErrInvalid, digest[:8], wanted.Digest[:8])
	}
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return readLogged(s.Logger, dir)
}

const (
	bytesOfParameter   = 4       // in the checkpoints of a run, which are F32
	bytesBeside        = 1 << 30 // for everything except parameters: buffers, headers, tokenizer
	modelConfigTimeout = 10 * time.Second
)

// sizeLimit returns the maximum size of the wanted model's files. It follows from the config.json
// of the run's starting model or, if that cannot be read, from the amount that could be shared with
// peers.
func (s *Source) sizeLimit(ctx context.Context, wanted coordinator.Checkpoint) int64 {
	origin := coordinator.Location{Kind: wanted.Origin, Repo: wanted.Repo, Revision: wanted.Revision}
	if limit, known := s.limits[origin]; known {
		return limit
	}
	limit := s.SharedMiB << 20
	config, err := s.originConfig(ctx, wanted)
	var description model.Description
	if err == nil {
		description, err = model.Describe(config)
	}
	if err != nil {
		s.Logger.Info("the size of the run's model is unknown", "limit_mib", limit>>20, "why", err)
		return limit
	}
	if n := description.NumParameters; n >= 0 && n < (limit-bytesBeside)/bytesOfParameter {
		limit = n*bytesOfParameter + bytesBeside
	}
	if s.limits == nil {
		s.limits = make(map[coordinator.Location]int64)
	}
	s.limits[origin] = limit
	return limit
}

// originConfig returns the config.json of the run's starting model.
func (s *Source) originConfig(ctx context.Context, wanted coordinator.Checkpoint) (config []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, modelConfigTimeout)
	defer cancel()
	switch {
	case s.ModelPath != "":
		return os.ReadFile(filepath.Join(s.ModelPath, checkpoint.ConfigFile))
	case wanted.Origin == coordinator.CheckpointLocal && s.AllowLocalPaths:
		return os.ReadFile(filepath.Join(wanted.Repo, checkpoint.ConfigFile))
	case wanted.Origin == coordinator.CheckpointHub:
		place, err := s.runRepo(wanted)
		if err != nil {
			return nil, err
		}
		return place.Config(ctx)
	case wanted.Origin != coordinator.CheckpointGcs:
		return nil, errors.New("the run's initial model is not available")
	}
	bucket, err := s.runBucket(ctx, wanted)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	return bucket.Config(ctx)
}
