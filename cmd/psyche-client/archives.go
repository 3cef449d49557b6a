package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/objstore/gcs"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
)

// archives gets models that no member shares, from the locations that the run, its members or the
// flags name.
type archives struct {
	runID  string
	shared int64 // MiB that can be shared with peers
	sourceFlags
	uploadFlags
	hubFlags
	logger  *slog.Logger
	events  *event.Log
	reports reports
	hosted  *hosted // may be nil
}

// archives returns the archives of a member of a run.
func (c *trainCommand) archives(member identity.ID, events *event.Log, logger *slog.Logger) (*archives, error) {
	dir, err := reportsDir(c.RunID, member)
	return &archives{
		runID: c.RunID, shared: max(c.MaxBlobDisk, c.MaxBlobMemory),
		sourceFlags: c.sourceFlags, uploadFlags: c.uploadFlags, hubFlags: c.hubFlags,
		logger: logger, events: events, reports: reports{dir: dir},
	}, err
}

// close removes the files from locations that members reported.
func (a *archives) close() error { return os.RemoveAll(a.reports.dir) }

// initial loads the model of a checkpoint from a source other than peers.
func (a *archives) initial(ctx context.Context, from coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	switch {
	case a.ModelPath != "" && from.Kind != coordinator.CheckpointDummy:
		return readLogged(a.logger, a.ModelPath)
	case a.wantsModelPath(from):
		snapshot, err := a.hosted.initial(ctx)
		if err != nil {
			err = fmt.Errorf("%w: %w", errLocalPath, missingModel(from.Repo, err))
		}
		return snapshot, err
	case from.Kind == coordinator.CheckpointLocal:
		return readLogged(a.logger, from.Repo)
	case from.Kind == coordinator.CheckpointDummy:
		return dummy.Model(), nil
	case from.Kind == coordinator.CheckpointHub, from.Kind == coordinator.CheckpointGcs:
		return a.fetchFrom(ctx, from)
	default:
		return checkpoint.Snapshot{}, fmt.Errorf("this version cannot download the run's initial model %s: download it yourself and pass its folder with --model-path", from.Repo)
	}
}

// readLogged reads a model, and logs the progress.
func readLogged(logger *slog.Logger, dir string) (checkpoint.Snapshot, error) {
	return checkpoint.ReadDirWatched(dir, meter.Logged(logger, "reading the model"))
}

// errPrivateRepo prevents an untrusted run from making members share private models.
var errPrivateRepo = errors.New("the run names a repository that is not public; if you trust the run, let it use your token with --allow-private-repos")

// runRepo returns the Hub repository that a run's checkpoint names: the repository of the checkpoint, or of the
// model that the run began with.
func (a *archives) runRepo(from coordinator.Checkpoint) (remote.HubRepo, error) {
	client, err := a.client(a.logger, a.AllowPrivateRepos)
	return remote.HubRepo{Client: client, Repo: from.Repo, Revision: from.Revision, Public: !a.AllowPrivateRepos}, err
}

// download gets a checkpoint from the Hub, or from its cache on this machine.
func (a *archives) download(ctx context.Context, place remote.HubRepo, step uint32) (checkpoint.Snapshot, error) {
	a.logger.Info("downloading the model from the Hub", "from", place)
	dir, err := place.Download(ctx, a.arrives(step))
	if err != nil {
		denied := errors.Is(err, hub.ErrUnauthorized) || errors.Is(err, hub.ErrForbidden) || errors.Is(err, hub.ErrGated)
		if denied && place.Client.Token == "" || errors.Is(err, hub.ErrNotPublic) {
			err = fmt.Errorf("%w: %w", errPrivateRepo, err)
		}
		return checkpoint.Snapshot{}, err
	}
	return readLogged(a.logger, dir)
}

// fetchFrom gets a model from a run's location. It uses credentials only if the user trusts the
// run.
func (a *archives) fetchFrom(ctx context.Context, at coordinator.Checkpoint) (snapshot checkpoint.Snapshot, err error) {
	if at.Kind == coordinator.CheckpointHub {
		place, err := a.runRepo(at)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		return a.download(ctx, place, at.Step)
	}
	bucket, err := a.runBucket(ctx, at)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	return a.downloadBucket(ctx, bucket, at.Step)
}

// runBucket returns the location in a bucket that a run's checkpoint names: the location of the checkpoint, or of
// the model that the run began with. The caller must close the location's store.
func (a *archives) runBucket(ctx context.Context, from coordinator.Checkpoint) (remote.Bucket, error) {
	return openBucket(ctx, from.Repo, strings.Trim(from.Revision, "/"), a.GCSCredentials)
}

func (a *archives) downloadBucket(ctx context.Context, bucket remote.Bucket, step uint32) (checkpoint.Snapshot, error) {
	a.logger.Info("downloading the model from a bucket", "from", bucket)
	dir, err := bucket.Download(ctx, a.arrives(step))
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return readLogged(a.logger, dir)
}

// arrives returns a callback that reports the progress of downloading a step's model to the log and the
// event log.
func (a *archives) arrives(step uint32) remote.Progress {
	logged := meter.Logged(a.logger, "downloading the model")
	written := remote.InParts(func(done, all int64) {
		transfer(a.events, a.logger, event.Transfer{What: event.TransferDownload, Step: step, Bytes: uint64(done), Total: uint64(all)})
	})
	return func(done, all int64) {
		logged(done, all)
		written(done, all)
	}
}

// transfer writes the progress of a transfer. An error does not stop the transfer.
func transfer(events *event.Log, logger *slog.Logger, now event.Transfer) {
	if err := events.Append(now); err != nil {
		logger.Error("write event", "err", err)
	}
}

// fromOthers searches for the wanted checkpoint in the locations where other members save
// checkpoints.
func (a *archives) fromOthers(ctx context.Context, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	err := errors.New("no --other-checkpoint-dir is given")
	for i, dir := range a.OtherCheckpointDir {
		at := keep.Folder{Dir: dir, RunID: a.runID}.Checkpoint(wanted.Step)
		facts, problem := checkpoint.ReadFacts(at)
		if problem == nil {
			problem = compareFacts(facts, wanted)
		}
		if problem == nil {
			var snapshot checkpoint.Snapshot
			if snapshot, problem = a.readWanted(ctx, at, wanted); problem == nil {
				a.logger.Info("read the model from another member's folder", "dir", at)
				return snapshot, nil
			}
		}
		if i == 0 {
			err = nil
		}
		err = errors.Join(err, fmt.Errorf("%s: %w", at, problem))
	}
	return checkpoint.Snapshot{}, err
}

// archive gets a model that no member shares. It uses the location that a member reported. Without
// one, it tries other members' folders, this client's upload location, and the run's origin.
func (a *archives) archive(ctx context.Context, wanted coordinator.Checkpoint, at coordinator.Place) (checkpoint.Snapshot, error) {
	if at != (coordinator.Place{}) {
		return a.fromReport(ctx, wanted, at)
	}
	if len(a.OtherCheckpointDir) > 0 {
		snapshot, err := a.fromOthers(ctx, wanted)
		if err == nil || ctx.Err() != nil {
			return snapshot, err
		}
		a.logger.Info("the model is not in --other-checkpoint-dir", "why", err)
	}
	if a.GCSBucket != "" {
		snapshot, err := a.fromOwnBucket(ctx, wanted)
		if err == nil {
			return snapshot, nil
		}
		a.logger.Info("the model is not in --gcs-bucket", "why", err)
	}
	var places []remote.HubRepo
	if a.HubRepo != "" {
		client, err := a.client(a.logger, true)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		places = append(places, remote.HubRepo{Client: client, Repo: a.HubRepo})
	}
	if wanted.Origin == coordinator.CheckpointHub && wanted.Repo != a.HubRepo {
		place, err := a.runRepo(wanted)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		places = append(places, place)
	}
	return a.firstOf(ctx, places, wanted)
}

// fromOwnBucket searches --gcs-bucket for the checkpoint of the wanted step.
func (a *archives) fromOwnBucket(ctx context.Context, wanted coordinator.Checkpoint) (snapshot checkpoint.Snapshot, err error) {
	bucket, err := openBucket(ctx, a.GCSBucket, a.GCSPrefix, true)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	bucket = bucket.Folder(a.runID, wanted.Step)
	facts, err := bucket.Facts(ctx)
	if err == nil {
		err = compareFacts(facts, wanted)
	}
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("%s: %w", bucket, err)
	}
	return a.downloadBucket(ctx, bucket, wanted.Step)
}

// firstOf gets the wanted checkpoint from the first repository that claims to have it.
func (a *archives) firstOf(ctx context.Context, places []remote.HubRepo, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	err := errors.New("neither --hub-repo nor the run names a repository")
	for i, place := range places {
		facts, pinned, problem := place.Facts(ctx)
		if problem == nil {
			problem = compareFacts(facts, wanted)
		}
		if problem == nil {
			return a.download(ctx, pinned, wanted.Step)
		}
		problem = fmt.Errorf("%s: %w", place, problem)
		if i == 0 {
			err = nil
		}
		err = errors.Join(err, problem)
	}
	return checkpoint.Snapshot{}, err
}

// bucketScheme starts the address of a location in a bucket.
const bucketScheme = "gs://"

// splitBucketURL returns the bucket and the prefix of gs://BUCKET/PREFIX.
func splitBucketURL(address string) (bucket, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(address, bucketScheme)
	bucket, prefix, _ = strings.Cut(rest, "/")
	return bucket, strings.Trim(prefix, "/"), ok
}

// openBucket opens a location in a bucket of Google Cloud Storage. The caller must close its store.
func openBucket(ctx context.Context, name, prefix string, credentials bool) (remote.Bucket, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return remote.Bucket{}, fmt.Errorf("find a folder for downloads: %w", err)
	}
	if name == "" || strings.ContainsAny(name, "/\\") || path.Clean("/"+prefix) != "/"+prefix {
		return remote.Bucket{}, fmt.Errorf("gs://%s/%s is not a location in a bucket: want gs://BUCKET/PREFIX", name, prefix)
	}
	store, err := gcs.Open(ctx, name, gcs.Options{Credentials: credentials})
	if err != nil {
		return remote.Bucket{}, err
	}
	return remote.Bucket{Store: store, Name: name, Prefix: prefix, CacheDir: filepath.Join(cache, "psyche", "gcs")}, nil
}
