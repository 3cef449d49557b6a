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
	"time"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/checkpoint/remote"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/hub"
	"github.com/psyche-go/psyche/objstore"
	"github.com/psyche-go/psyche/objstore/gcs"
)

// uploadFlags say where a client that joined a run publishes its checkpoints.
type uploadFlags struct {
	HubRepo       string        `placeholder:"OWNER/NAME" xor:"upload" help:"Repository of the Hugging Face Hub to upload the checkpoint of each epoch to. It is made if it is missing; needs --checkpoint-dir and a token that may write."`
	HubPrivate    bool          `help:"Make the repository of --hub-repo private. The run is not told of it then, see --report-private."`
	ReportPrivate bool          `help:"Tell the run, which everybody can read, the name and the commits of --hub-repo also when not everybody may read it."`
	GCSBucket     string        `name:"gcs-bucket" placeholder:"BUCKET" xor:"upload" help:"Bucket of Google Cloud Storage to upload the checkpoint of each epoch to, in place of --hub-repo, with your credentials."`
	GCSPrefix     string        `name:"gcs-prefix" placeholder:"PREFIX" help:"Where in --gcs-bucket: each checkpoint gets a folder below it."`
	UploadTimeout time.Duration `default:"10m" help:"How long to wait at the end for the last upload (${default}). A second Ctrl-C does not wait; the next start takes the upload up."`
}

// errPrivateRepo refuses what a stranger's run could use to have private models shared.
var errPrivateRepo = errors.New("the run names a repository that not everybody may read; if you trust the run, let it use your token with --allow-private-repos")

// runRepo is the repository that a run's checkpoint names, or came from.
func (c *trainCommand) runRepo(from coordinator.Checkpoint) (remote.HubRepo, error) {
	client, err := c.client(c.logTo, c.AllowPrivateRepos)
	return remote.HubRepo{Client: client, Repo: from.Repo, Revision: from.Revision, Public: !c.AllowPrivateRepos}, err
}

// download gets a checkpoint from the Hub, or from its cache on this machine.
func (c *trainCommand) download(ctx context.Context, place remote.HubRepo, step uint32) (checkpoint.Snapshot, error) {
	c.logTo.Info("getting the model from the Hub", "from", place)
	dir, err := place.Download(ctx, c.arrives(step))
	if err != nil {
		denied := errors.Is(err, hub.ErrUnauthorized) || errors.Is(err, hub.ErrForbidden) || errors.Is(err, hub.ErrGated)
		if denied && place.Client.Token == "" || errors.Is(err, hub.ErrNotPublic) {
			err = fmt.Errorf("%w: %w", errPrivateRepo, err)
		}
		return checkpoint.Snapshot{}, err
	}
	return checkpoint.ReadDir(dir)
}

// fetchFrom gets a model from where a run says that it lies. Unless the user trusts the run,
// no credentials are used.
func (c *trainCommand) fetchFrom(ctx context.Context, at coordinator.Checkpoint) (snapshot checkpoint.Snapshot, err error) {
	if at.Kind == coordinator.CheckpointHub {
		place, err := c.runRepo(at)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		return c.download(ctx, place, at.Step)
	}
	bucket, err := c.runBucket(ctx, at)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	return c.downloadBucket(ctx, bucket, at.Step)
}

// runBucket is the place in a bucket that a run's checkpoint names, or came from. The caller
// closes its store.
func (c *trainCommand) runBucket(ctx context.Context, from coordinator.Checkpoint) (remote.Bucket, error) {
	return openBucket(ctx, from.Repo, strings.Trim(from.Revision, "/"), c.GCSCredentials)
}

func (c *trainCommand) downloadBucket(ctx context.Context, bucket remote.Bucket, step uint32) (checkpoint.Snapshot, error) {
	c.logTo.Info("getting the model from a bucket", "from", bucket)
	dir, err := bucket.Download(ctx, c.arrives(step))
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	return checkpoint.ReadDir(dir)
}

// arrives tells of the download of a step's model: the log now and then, and the event log.
func (c *trainCommand) arrives(step uint32) remote.Progress {
	logged := logProgress(c.logTo, "downloading the model")
	written := remote.InParts(func(done, all int64) {
		transfer(c.events, c.logTo, event.Transfer{What: event.TransferDownload, Step: step, Bytes: uint64(done), Total: uint64(all)})
	})
	return func(done, all int64) {
		logged(done, all)
		written(done, all)
	}
}

// transfer writes how far a transfer is. That this fails does not stop the transfer.
func transfer(events *event.Log, logger *slog.Logger, now event.Transfer) {
	if err := events.Append(now); err != nil {
		logger.Error("write event", "err", err)
	}
}

// archive gets a model that no member gives: from a place that a member reported or, for
// none, from where this client uploads to and where the run came from.
func (c *trainCommand) archive(ctx context.Context, wanted coordinator.Checkpoint, at coordinator.Place) (checkpoint.Snapshot, error) {
	if at != (coordinator.Place{}) {
		return c.fromReport(ctx, wanted, at)
	}
	if c.GCSBucket != "" {
		snapshot, err := c.fromOwnBucket(ctx, wanted)
		if err == nil {
			return snapshot, nil
		}
		c.logTo.Info("not in --gcs-bucket", "why", err)
	}
	var places []remote.HubRepo
	if c.HubRepo != "" {
		client, err := c.client(c.logTo, true)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		places = append(places, remote.HubRepo{Client: client, Repo: c.HubRepo})
	}
	if wanted.Origin == coordinator.CheckpointHub && wanted.Repo != c.HubRepo {
		place, err := c.runRepo(wanted)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		places = append(places, place)
	}
	return c.firstOf(ctx, places, wanted)
}

// fromOwnBucket looks where --gcs-bucket has the checkpoint of the wanted step.
func (c *trainCommand) fromOwnBucket(ctx context.Context, wanted coordinator.Checkpoint) (snapshot checkpoint.Snapshot, err error) {
	bucket, err := openBucket(ctx, c.GCSBucket, c.GCSPrefix, true)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	defer func() { err = errors.Join(err, bucket.Store.Close()) }()
	bucket = bucket.Folder(c.RunID, wanted.Step)
	facts, err := bucket.Facts(ctx)
	if err == nil {
		err = compareFacts(facts, wanted)
	}
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("%s: %w", bucket, err)
	}
	return c.downloadBucket(ctx, bucket, wanted.Step)
}

// firstOf gets the wanted checkpoint from the first repository that says to have it.
func (c *trainCommand) firstOf(ctx context.Context, places []remote.HubRepo, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	err := errors.New("neither --hub-repo nor the run names a repository")
	for i, place := range places {
		facts, pinned, problem := place.Facts(ctx)
		if problem == nil {
			problem = compareFacts(facts, wanted)
		}
		if problem == nil {
			return c.download(ctx, pinned, wanted.Step)
		}
		problem = fmt.Errorf("%s: %w", place, problem)
		if i == 0 {
			err = nil
		}
		err = errors.Join(err, problem)
	}
	return checkpoint.Snapshot{}, err
}

// bucketScheme begins the address of a place in a bucket.
const bucketScheme = "gs://"

// splitBucketURL returns the bucket and the prefix of gs://BUCKET/PREFIX.
func splitBucketURL(address string) (bucket, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(address, bucketScheme)
	bucket, prefix, _ = strings.Cut(rest, "/")
	return bucket, strings.Trim(prefix, "/"), ok
}

// openBucket opens a place in a bucket of Google Cloud Storage. The caller closes its store.
func openBucket(ctx context.Context, name, prefix string, credentials bool) (remote.Bucket, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return remote.Bucket{}, fmt.Errorf("find a folder for downloads: %w", err)
	}
	if name == "" || strings.ContainsAny(name, "/\\") || path.Clean("/"+prefix) != "/"+prefix {
		return remote.Bucket{}, fmt.Errorf("gs://%s/%s is no place in a bucket: want gs://BUCKET/PREFIX", name, prefix)
	}
	store, err := gcs.Open(ctx, name, gcs.Options{Credentials: credentials})
	if err != nil {
		return remote.Bucket{}, err
	}
	return remote.Bucket{Store: store, Name: name, Prefix: prefix, CacheDir: filepath.Join(cache, "psyche", "gcs")}, nil
}

// checkUploads looks at the flags that need no Hub.
func (f uploadFlags) checkUploads(runID, checkpointDir string) error {
	switch {
	case f.UploadTimeout <= 0:
		return fmt.Errorf("--upload-timeout is %v: want more than 0", f.UploadTimeout)
	case f.HubRepo == "" && f.HubPrivate:
		return errors.New("--hub-private is of --hub-repo, which is not given")
	case f.HubRepo == "" && f.ReportPrivate:
		return errors.New("--report-private is of --hub-repo, which is not given")
	case f.GCSBucket == "" && f.GCSPrefix != "":
		return errors.New("--gcs-prefix is of --gcs-bucket, which is not given")
	case f.HubRepo == "" && f.GCSBucket == "":
		return nil
	case checkpointDir == "":
		return errors.New("--hub-repo and --gcs-bucket need --checkpoint-dir: what is uploaded is saved there first")
	case len(f.GCSBucket)+len(f.GCSPrefix) > maxBucketPlace-len(runID):
		return fmt.Errorf("--gcs-bucket and --gcs-prefix have more than %d characters: the run could not keep where checkpoints lie", maxBucketPlace-len(runID))
	case f.GCSBucket != "":
		return nil
	}
	if err := hub.CheckRepo(f.HubRepo); err != nil {
		return fmt.Errorf("--hub-repo: %w", err)
	}
	return nil
}

// maxBucketPlace leaves room for a checkpoint's own folder, which has the name of the run too,
// in what a run can keep.
const maxBucketPlace = coordinator.MaxRepoLength - len("/-step4294967295")

// uploads puts checkpoints where --hub-repo or --gcs-bucket says.
type uploads struct {
	place  remote.Place
	at     func(version string) coordinator.Place // as the run is told of it
	secret func(version string) error             // why the run is not told of it; nil: it always is
	close  func() error
	runner *remote.Uploader // nil until start
}

// openUploads finds out, before the training, whether uploads have a chance. It returns nil
// when there are none.
func (c *trainCommand) openUploads(ctx context.Context) (*uploads, error) {
	switch {
	case c.GCSBucket != "":
		bucket, err := openBucket(ctx, c.GCSBucket, strings.Trim(c.GCSPrefix, "/"), true)
		if err != nil {
			return nil, fmt.Errorf("--gcs-bucket: %w", err)
		}
		if _, err := bucket.Store.List(ctx, bucket.Prefix, 1); err != nil && !errors.Is(err, objstore.ErrTooMany) {
			return nil, errors.Join(fmt.Errorf("--gcs-bucket: %w", err), bucket.Store.Close())
		}
		at := func(version string) coordinator.Place {
			return coordinator.Place{Kind: coordinator.CheckpointGcs, Repo: c.GCSBucket, Revision: version}
		}
		return &uploads{place: bucket, at: at, close: bucket.Store.Close}, nil
	case c.HubRepo == "":
		return nil, nil
	}
	client, err := c.client(c.logTo, true)
	if err != nil {
		return nil, err
	}
	err = client.CreateRepo(ctx, c.HubRepo, c.HubPrivate)
	if err == nil {
		err = client.CanWrite(ctx, c.HubRepo, hub.DefaultRevision)
	}
	if err != nil {
		return nil, fmt.Errorf("--hub-repo %s: %w", c.HubRepo, err)
	}
	at := func(version string) coordinator.Place {
		return coordinator.Place{Kind: coordinator.CheckpointHub, Repo: c.HubRepo, Revision: version}
	}
	place := remote.HubRepo{Client: client, Repo: c.HubRepo, Private: c.HubPrivate}
	u := &uploads{place: place, at: at, close: func() error { return nil }}
	switch {
	case c.ReportPrivate:
	case c.HubPrivate:
		u.secret = func(string) error { return hub.ErrNotPublic }
	default: // the repository may have been there, and private, before
		u.secret = func(version string) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publicPatience)
			defer cancel()
			return client.CheckPublic(ctx, c.HubRepo, version)
		}
	}
	return u, nil
}

// publicPatience bounds the question whether everybody may read what was uploaded.
const publicPatience = 30 * time.Second

// start begins to upload what is offered of a run, and what was left; the run is told by tell.
func (u *uploads) start(runID, dir string, logger *slog.Logger, tell func(checkpoint.Facts, coordinator.Place)) {
	u.runner = remote.NewUploader(u.place, runID, dir, logger, func(f checkpoint.Facts, version string) {
		if u.secret != nil {
			if why := u.secret(version); why != nil {
				logger.Info("the run is not told where the checkpoint lies; --report-private tells it", "step", f.Step, "place", u.place, "why", why)
				return
			}
		}
		tell(f, u.at(version))
	})
}

// tell writes how far uploads are.
func (u *uploads) tell(events *event.Log, logger *slog.Logger) {
	u.runner.Watch(func(step uint32, done, all int64) {
		transfer(events, logger, event.Transfer{What: event.TransferUpload, Step: step, Bytes: uint64(done), Total: uint64(all)})
	})
}

// finishUploads waits until the last checkpoint is uploaded, also after an interrupt.
func (c *trainCommand) finishUploads(ctx context.Context, u *uploads) error {
	if u == nil || u.runner == nil {
		return nil
	}
	if u.runner.Pending() {
		c.logTo.Info("waiting for the upload of the last checkpoint; Ctrl-C leaves it for the next start", "at most", c.UploadTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.UploadTimeout)
	defer cancel()
	return errors.Join(u.runner.Close(ctx), u.close())
}
