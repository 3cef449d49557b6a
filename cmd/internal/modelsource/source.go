package modelsource

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

// Options contain the user's locations, and the permissions for locations that the run or its members name.
type Options struct {
	RunID  string
	Member identity.ID

	ModelPath string   // folder of the initial model, instead of the run's location; may be empty
	OtherDirs []string // checkpoint folders of other members
	Repo      string   // repository of this member's checkpoints; may be empty
	Bucket    string   // bucket of this member's checkpoints; may be empty
	Prefix    string   // in Bucket
	SharedMiB int64    // maximum size of models that members share

	AllowLocalPaths   bool // the run may name folders of this machine
	AllowPrivateRepos bool // the run may name repositories that need the user's token
	Credentials       bool // for buckets that the run or its members name

	Hub    func(withToken bool) (*hub.Client, error)
	Hosted *Hosted // may be nil
	Logger *slog.Logger
	Events *event.Log
}

// Source gets models. Its methods must not be called concurrently.
type Source struct {
	Options
	dir     string         // folder for downloads from reported locations; used by this client only, removed by Close
	refused map[claim]bool // claims that provided a wrong model
	limits  map[coordinator.Location]int64
}

// New returns the source of a member.
func New(o Options) (*Source, error) {
	dir, err := reportsDir(o.RunID, o.Member)
	return &Source{Options: o, dir: dir}, err
}

// Close removes the files from locations that members reported.
func (s *Source) Close() error { return os.RemoveAll(s.dir) }

// Initial loads the model of a checkpoint from a source other than peers.
func (s *Source) Initial(ctx context.Context, from coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	switch {
	case s.ModelPath != "" && from.Kind != coordinator.CheckpointDummy:
		return readLogged(s.Logger, s.ModelPath)
	case from.Kind == coordinator.CheckpointLocal && !s.AllowLocalPaths:
		snapshot, err := s.Hosted.initial(ctx)
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrLocalPath, Missing(from.Repo, err))
		}
		return snapshot, err
	case from.Kind == coordinator.CheckpointLocal:
		return readLogged(s.Logger, from.Repo)
	case from.Kind == coordinator.CheckpointDummy:
		return dummy.Model(), nil
	case from.Kind == coordinator.CheckpointHub, from.Kind == coordinator.CheckpointGcs:
		return s.fetchFrom(ctx, from)
	default:
		return checkpoint.Snapshot{}, fmt.Errorf("this version cannot download the run's initial model %s: download it yourself and pass its folder with --model-path", from.Repo)
	}
}

// readLogged reads a model, and logs the progress.
func readLogged(logger *slog.Logger, dir string) (checkpoint.Snapshot, error) {
	return checkpoint.ReadDirWatched(dir, meter.Logged(logger, "reading the model"))
}

// ErrLocalPath prevents an untrusted run from making members read private files.
var ErrLocalPath = errors.New("the run names a folder of this machine; choose the folder yourself, or pass --allow-local-paths if you trust the run")

// Missing returns advice for a model that the run's host has but does not offer. why is the
// host's reason.
func Missing(name string, why error) error {
	return fmt.Errorf("the model %s is not available from the run's server (%w); name a folder with --model-path", name, why)
}

// errPrivateRepo prevents an untrusted run from making members share private models.
var errPrivateRepo = errors.New("the run names a repository that is not public; if you trust the run, let it use your token with --allow-private-repos")

// runRepo returns the Hub repository that a run's checkpoint names: the repository of the checkpoint, or of the
// model that the run began with.
func (s *Source) runRepo(from coordinator.Checkpoint) (remote.HubRepo, error) {
	client, err := s.Hub(s.AllowPrivateRepos)
	return remote.HubRepo{Client: client, Repo: from.Repo, Revision: from.Revision, Public: !s.AllowPrivateRepos}, err
}

// download gets a checkpoint from the Hub, or from its cache on this machine.
func (s *Source) download(ctx context.Context, place remote.HubRepo, step uint32) (checkpoint.Snapshot, error) {
	s.Logger.Info("downloading the model from the Hub", "from", place)
	dir, err := place.Download(ctx, s.arrives(step))
	if err != nil {
		denied := errors.Is(err, hub.ErrUnauthorized) || errors.Is(err, hub.ErrForbidden) || errors.Is(err, hub.ErrGated)
		if denied && place.Client.Token == "" || errors.Is(err, hub.ErrNotPublic) {
			err = fmt.Errorf("%w: %w", errPrivateRepo, err)
		}
		return checkpoint.Snapshot{}, err
	}
	return readLogged(s.Logger, dir)
}

// fetchFrom gets a model from a run's location. It uses credentials only if the user trusts the
// run.
func (s *Source) fetchFrom(ctx context.Context, at coordinator.Checkpoint) (snapshot checkpoint.Snapshot, err error) {
	if at.Kind == coordinator.CheckpointHub {
		place, err := s.runRepo(at)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		return s.download(ctx, place, at.Step)
	}
	bucket, err := s.runBucket(ctx, at)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	return s.downloadBucket(ctx, bucket, at.Step)
}

// runBucket returns the location in a bucket that a run's checkpoint names: the location of the checkpoint, or of
// the model that the run began with. The caller must close the location's store.
func (s *Source) runBucket(ctx context.Context, from coordinator.Checkpoint) (remote.Bucket, error) {
	return OpenBucket(ctx, from.Repo, strings.Trim(from.Revision, "/"), s.Credentials)
}

func (s *Source) downloadBucket(ctx context.Context, bucket remote.Bucket, step uint32) (checkpoint.Snapshot, error) {
	s.Logger.Info("downloading the model from a bucket", "from", bucket)
	dir, err := bucket.Download(ctx, s.arrives(step))
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return readLogged(s.Logger, dir)
}

// arrives returns a callback that reports the progress of downloading a step's model to the log and the
// event log.
func (s *Source) arrives(step uint32) remote.Progress {
	logged := meter.Logged(s.Logger, "downloading the model")
	written := remote.InParts(func(done, all int64) {
		Record(s.Events, s.Logger, event.Transfer{What: event.TransferDownload, Step: step, Bytes: uint64(done), Total: uint64(all)})
	})
	return func(done, all int64) {
		logged(done, all)
		written(done, all)
	}
}

// Record writes the progress of a transfer. An error does not stop the transfer.
func Record(events *event.Log, logger *slog.Logger, now event.Transfer) {
	events.Note(logger, now)
}

// fromOthers searches for the wanted checkpoint in the locations where other members save
// checkpoints.
func (s *Source) fromOthers(ctx context.Context, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	err := errors.New("no --other-checkpoint-dir is given")
	for i, dir := range s.OtherDirs {
		at := keep.Folder{Dir: dir, RunID: s.RunID}.Checkpoint(wanted.Step)
		facts, problem := checkpoint.ReadFacts(at)
		if problem == nil {
			problem = compareFacts(facts, wanted)
		}
		if problem == nil {
			var snapshot checkpoint.Snapshot
			if snapshot, problem = s.readWanted(ctx, at, wanted); problem == nil {
				s.Logger.Info("read the model from another member's folder", "dir", at)
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

// Archive gets a model that no member shares. It uses the location that a member reported. Without
// one, it tries other members' folders, this client's upload location, and the run's origin.
func (s *Source) Archive(ctx context.Context, wanted coordinator.Checkpoint, at coordinator.Location) (checkpoint.Snapshot, error) {
	if at != (coordinator.Location{}) {
		return s.fromReport(ctx, wanted, at)
	}
	if len(s.OtherDirs) > 0 {
		snapshot, err := s.fromOthers(ctx, wanted)
		if err == nil || ctx.Err() != nil {
			return snapshot, err
		}
		s.Logger.Info("the model is not in --other-checkpoint-dir", "why", err)
	}
	if s.Bucket != "" {
		snapshot, err := s.fromOwnBucket(ctx, wanted)
		if err == nil {
			return snapshot, nil
		}
		s.Logger.Info("the model is not in --gcs-bucket", "why", err)
	}
	var places []remote.HubRepo
	if s.Repo != "" {
		client, err := s.Hub(true)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		places = append(places, remote.HubRepo{Client: client, Repo: s.Repo})
	}
	if wanted.Origin == coordinator.CheckpointHub && wanted.Repo != s.Repo {
		place, err := s.runRepo(wanted)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		places = append(places, place)
	}
	return s.firstOf(ctx, places, wanted)
}

// fromOwnBucket searches --gcs-bucket for the checkpoint of the wanted step.
func (s *Source) fromOwnBucket(ctx context.Context, wanted coordinator.Checkpoint) (snapshot checkpoint.Snapshot, err error) {
	bucket, err := OpenBucket(ctx, s.Bucket, s.Prefix, true)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	bucket = bucket.Folder(s.RunID, wanted.Step)
	facts, err := bucket.Facts(ctx)
	if err == nil {
		err = compareFacts(facts, wanted)
	}
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("%s: %w", bucket, err)
	}
	return s.downloadBucket(ctx, bucket, wanted.Step)
}

// firstOf gets the wanted checkpoint from the first repository that claims to have it.
func (s *Source) firstOf(ctx context.Context, places []remote.HubRepo, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	err := errors.New("neither --hub-repo nor the run names a repository")
	for i, place := range places {
		facts, pinned, problem := place.Facts(ctx)
		if problem == nil {
			problem = compareFacts(facts, wanted)
		}
		if problem == nil {
			return s.download(ctx, pinned, wanted.Step)
		}
		problem = fmt.Errorf("%s: %w", place, problem)
		if i == 0 {
			err = nil
		}
		err = errors.Join(err, problem)
	}
	return checkpoint.Snapshot{}, err
}

// BucketScheme starts the address of a location in a bucket.
const BucketScheme = "gs://"

// SplitBucketURL returns the bucket and the prefix of gs://BUCKET/PREFIX.
func SplitBucketURL(address string) (bucket, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(address, BucketScheme)
	bucket, prefix, _ = strings.Cut(rest, "/")
	return bucket, strings.Trim(prefix, "/"), ok
}

// OpenBucket opens a location in a bucket of Google Cloud Storage. The caller must close its store.
func OpenBucket(ctx context.Context, name, prefix string, credentials bool) (remote.Bucket, error) {
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
