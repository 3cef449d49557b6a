package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/record/event"
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
func (f uploadFlags) openUploads(ctx context.Context, access hubFlags, logger *slog.Logger) (*uploads, error) {
	switch {
	case f.GCSBucket != "":
		bucket, err := openBucket(ctx, f.GCSBucket, strings.Trim(f.GCSPrefix, "/"), true)
		if err != nil {
			return nil, fmt.Errorf("--gcs-bucket: %w", err)
		}
		if _, err := bucket.Store.List(ctx, bucket.Prefix, 1); err != nil && !errors.Is(err, objstore.ErrTooMany) {
			return nil, errors.Join(fmt.Errorf("--gcs-bucket: %w", err), bucket.Store.Close())
		}
		at := func(version string) coordinator.Place {
			return coordinator.Place{Kind: coordinator.CheckpointGcs, Repo: f.GCSBucket, Revision: version}
		}
		return &uploads{place: bucket, at: at, close: bucket.Store.Close}, nil
	case f.HubRepo == "":
		return nil, nil
	}
	client, err := access.client(logger, true)
	if err != nil {
		return nil, err
	}
	err = client.CreateRepo(ctx, f.HubRepo, f.HubPrivate)
	if err == nil {
		err = client.CanWrite(ctx, f.HubRepo, hub.DefaultRevision)
	}
	if err != nil {
		return nil, fmt.Errorf("--hub-repo %s: %w", f.HubRepo, err)
	}
	at := func(version string) coordinator.Place {
		return coordinator.Place{Kind: coordinator.CheckpointHub, Repo: f.HubRepo, Revision: version}
	}
	place := remote.HubRepo{Client: client, Repo: f.HubRepo, Private: f.HubPrivate}
	u := &uploads{place: place, at: at, close: func() error { return nil }}
	switch {
	case f.ReportPrivate:
	case f.HubPrivate:
		u.secret = func(string) error { return hub.ErrNotPublic }
	default: // the repository may have been there, and private, before
		u.secret = func(version string) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publicTimeout)
			defer cancel()
			return client.CheckPublic(ctx, f.HubRepo, version)
		}
	}
	return u, nil
}

// publicTimeout bounds the question whether everybody may read what was uploaded.
const publicTimeout = 30 * time.Second

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

// finishUploads waits until the last checkpoint is uploaded, also after an interrupt; one that comes while it waits
// ends that.
func (f uploadFlags) finishUploads(ctx context.Context, u *uploads, logger *slog.Logger) error {
	if u == nil || u.runner == nil {
		return nil
	}
	defer signals.Hold(ctx)()
	if u.runner.Pending() {
		logger.Info("waiting for the upload of the last checkpoint; Ctrl-C leaves it for the next start", "at most", f.UploadTimeout)
	}
	waits := ctx
	if ctx.Err() != nil {
		waits = context.WithoutCancel(ctx) // a second interrupt ends the process
	}
	waits, cancel := context.WithTimeout(waits, f.UploadTimeout)
	defer cancel()
	err := u.runner.Close(waits)
	if err != nil && errors.Is(waits.Err(), context.Canceled) {
		logger.Warn("the upload of the last checkpoint is left: the next start with the same --checkpoint-dir, run and place takes it up", "place", u.place)
	}
	return errors.Join(err, u.close())
}
