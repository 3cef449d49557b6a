package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/record/event"
)

// uploadFlags set the locations where a client of a run publishes its checkpoints.
type uploadFlags struct {
	HubRepo       string        `placeholder:"OWNER/NAME" xor:"upload" help:"Hugging Face Hub repository for the checkpoint of each epoch, created if it does not exist. Needs --checkpoint-dir and a token with write access."`
	HubPrivate    bool          `help:"Make the repository of --hub-repo private. The run then does not record it, unless --report-private is given."`
	ReportPrivate bool          `help:"Record the name and commits of --hub-repo in the public run even if the repository is private."`
	GCSBucket     string        `name:"gcs-bucket" placeholder:"BUCKET" xor:"upload" help:"Google Cloud Storage bucket for the checkpoint of each epoch, instead of --hub-repo. Uses your credentials."`
	GCSPrefix     string        `name:"gcs-prefix" placeholder:"PREFIX" help:"Prefix in --gcs-bucket: each checkpoint gets a folder below it."`
	UploadTimeout time.Duration `default:"10m" help:"Maximum wait for the last upload at the end (${default}). A second Ctrl-C ends the wait; the next start resumes the upload."`
}

// checkUploads validates the flags without the Hub.
func (f uploadFlags) checkUploads(runID, checkpointDir string) error {
	switch {
	case f.UploadTimeout <= 0:
		return fmt.Errorf("--upload-timeout is %v: want more than 0", f.UploadTimeout)
	case f.HubRepo == "" && f.HubPrivate:
		return errors.New("--hub-private needs --hub-repo")
	case f.HubRepo == "" && f.ReportPrivate:
		return errors.New("--report-private needs --hub-repo")
	case f.GCSBucket == "" && f.GCSPrefix != "":
		return errors.New("--gcs-prefix needs --gcs-bucket")
	case f.HubRepo == "" && f.GCSBucket == "":
		return nil
	case checkpointDir == "":
		return errors.New("--hub-repo and --gcs-bucket need --checkpoint-dir: checkpoints are saved there before the upload")
	case len(f.GCSBucket)+len(f.GCSPrefix) > maxBucketPlace-len(runID):
		return fmt.Errorf("--gcs-bucket and --gcs-prefix exceed %d characters: the run cannot record such a location", maxBucketPlace-len(runID))
	case f.GCSBucket != "":
		return nil
	}
	if err := hub.CheckRepo(f.HubRepo); err != nil {
		return fmt.Errorf("--hub-repo: %w", err)
	}
	return nil
}

// maxBucketPlace leaves space in the run's location field for the checkpoint's folder name, which
// includes the run's name.
const maxBucketPlace = coordinator.MaxRepoLength - len("/-step4294967295")

// uploads publishes checkpoints at --hub-repo or --gcs-bucket. The methods of a nil uploads do nothing.
type uploads struct {
	destination remote.Destination
	at          func(version string) coordinator.Location // location for the report to the run
	secret      func(version string) error                // reason why the location is not reported; nil: it always is
	close       func() error
	runner      *remote.Uploader // nil until start
}

// openUploads checks before the training whether uploads can work. It returns nil without uploads.
func (f uploadFlags) openUploads(ctx context.Context, access hubFlags, logger *slog.Logger) (*uploads, error) {
	switch {
	case f.GCSBucket != "":
		bucket, err := modelsource.OpenBucket(ctx, f.GCSBucket, strings.Trim(f.GCSPrefix, "/"), true)
		if err != nil {
			return nil, fmt.Errorf("--gcs-bucket: %w", err)
		}
		if _, err := bucket.Store.List(ctx, bucket.Prefix, 1); err != nil && !errors.Is(err, objstore.ErrTooMany) {
			return nil, errors.Join(fmt.Errorf("--gcs-bucket: %w", err), bucket.Store.Close())
		}
		at := func(version string) coordinator.Location {
			return coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: f.GCSBucket, Revision: version}
		}
		return &uploads{destination: bucket, at: at, close: bucket.Store.Close}, nil
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
	at := func(version string) coordinator.Location {
		return coordinator.Location{Kind: coordinator.CheckpointHub, Repo: f.HubRepo, Revision: version}
	}
	repo := remote.HubRepo{Client: client, Repo: f.HubRepo, Private: f.HubPrivate}
	u := &uploads{destination: repo, at: at, close: func() error { return nil }}
	switch {
	case f.ReportPrivate:
	case f.HubPrivate:
		u.secret = func(string) error { return hub.ErrNotPublic }
	default: // the repository may already exist and be private
		u.secret = func(version string) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publicTimeout)
			defer cancel()
			return client.CheckPublic(ctx, f.HubRepo, version)
		}
	}
	return u, nil
}

// publicTimeout limits the check whether an upload is public.
const publicTimeout = 30 * time.Second

// saved returns the function that offers a saved checkpoint for upload; nil without uploads. Call that
// function after start only.
func (u *uploads) saved() func(dir string, f checkpoint.Facts) {
	if u == nil {
		return nil
	}
	return func(dir string, f checkpoint.Facts) { u.runner.Offer(dir, f) }
}

// start starts to upload new checkpoints of a run and remaining old ones. It calls tell to report
// them to the run.
func (u *uploads) start(runID, dir string, logger *slog.Logger, tell func(checkpoint.Facts, coordinator.Location)) {
	if u == nil {
		return
	}
	u.runner = remote.NewUploader(u.destination, runID, dir, logger, func(f checkpoint.Facts, version string) {
		if u.secret != nil {
			if why := u.secret(version); why != nil {
				logger.Info("the checkpoint's location is not reported to the run; use --report-private to report it", "step", f.Step, "place", u.destination, "why", why)
				return
			}
		}
		tell(f, u.at(version))
	})
}

// tell writes the progress of uploads.
func (u *uploads) tell(events *event.Log, logger *slog.Logger) {
	if u == nil {
		return
	}
	u.runner.Watch(func(step uint32, done, all int64) {
		modelsource.Record(events, logger, event.Transfer{What: event.TransferUpload, Step: step, Bytes: uint64(done), Total: uint64(all)})
	})
}

// finishUploads waits until the last checkpoint is uploaded, even after an interrupt. A further
// interrupt ends the wait.
func (f uploadFlags) finishUploads(ctx context.Context, u *uploads, logger *slog.Logger) error {
	if u == nil || u.runner == nil {
		return nil
	}
	defer signals.Hold(ctx)()
	if u.runner.Pending() {
		logger.Info("waiting for the upload of the last checkpoint; Ctrl-C postpones it to the next start", "limit", f.UploadTimeout)
	}
	waits := ctx
	if ctx.Err() != nil {
		waits = context.WithoutCancel(ctx) // a second interrupt ends the process
	}
	waits, cancel := context.WithTimeout(waits, f.UploadTimeout)
	defer cancel()
	err := u.runner.Close(waits)
	if err != nil && errors.Is(waits.Err(), context.Canceled) {
		logger.Warn("the upload of the last checkpoint is postponed: the next start with the same --checkpoint-dir, run and location resumes it", "place", u.destination)
	}
	return errors.Join(err, u.close())
}
