package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/checkpoint/remote"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/hub"
)

// hubFlags say how to reach the Hugging Face Hub.
type hubFlags struct {
	HFToken                   string `name:"hf-token" placeholder:"TOKEN" help:"Token for the Hugging Face Hub. Others may see a command line: rather set HF_TOKEN, or log in with the Hub's own tool."`
	HubMaxConcurrentDownloads int    `default:"3" placeholder:"N" help:"Files on their way from or to the Hub at once (${default})."`
}

// client returns a client of the Hub that the environment names. Without a token it can
// read only what everybody can.
func (f hubFlags) client(logger *slog.Logger, withToken bool) (*hub.Client, error) {
	if f.HubMaxConcurrentDownloads < 1 {
		return nil, fmt.Errorf("--hub-max-concurrent-downloads is %d: want at least 1", f.HubMaxConcurrentDownloads)
	}
	o, err := hub.FromEnvironment(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	o.Parallel, o.Logger = f.HubMaxConcurrentDownloads, logger
	switch {
	case !withToken:
		o.Token = ""
	case f.HFToken != "":
		o.Token = f.HFToken
	}
	return hub.New(o)
}

// uploadFlags say where a client that joined a run publishes its checkpoints.
type uploadFlags struct {
	HubRepo       string        `placeholder:"OWNER/NAME" help:"Repository of the Hugging Face Hub to upload the checkpoint of each epoch to. It is made if it is missing; needs --checkpoint-dir and a token that may write."`
	HubPrivate    bool          `help:"Make the repository of --hub-repo private."`
	UploadTimeout time.Duration `default:"10m" help:"How long to wait at the end for the last upload (${default}). A second Ctrl-C does not wait; the next start takes the upload up."`
}

// errPrivateRepo refuses what a stranger's run could use to have private models shared.
var errPrivateRepo = errors.New("the run names a repository that not everybody may read; if you trust the run, let it use your token with --allow-private-repos")

// runRepo is the repository that a run's checkpoint names, or came from.
func (c *trainCommand) runRepo(from coordinator.Checkpoint) (remote.HubRepo, error) {
	client, err := c.client(c.logTo, c.AllowPrivateRepos)
	return remote.HubRepo{Client: client, Repo: from.Repo, Revision: from.Revision}, err
}

// download gets a checkpoint from the Hub, or from its cache on this machine.
func (c *trainCommand) download(ctx context.Context, place remote.HubRepo) (checkpoint.Snapshot, error) {
	c.logTo.Info("getting the model from the Hub", "from", place)
	dir, err := place.Download(ctx, logProgress(c.logTo, "downloading the model"))
	if err != nil {
		denied := errors.Is(err, hub.ErrUnauthorized) || errors.Is(err, hub.ErrForbidden) || errors.Is(err, hub.ErrGated)
		if denied && place.Client.Token == "" {
			err = fmt.Errorf("%w: %w", errPrivateRepo, err)
		}
		return checkpoint.Snapshot{}, err
	}
	return checkpoint.ReadDir(dir)
}

// archive looks for a model that no member gives: in the repository that this client
// uploads to, and in the one that the run came from.
func (c *trainCommand) archive(ctx context.Context, wanted coordinator.Checkpoint) (checkpoint.Snapshot, error) {
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
	err := errors.New("neither --hub-repo nor the run names a repository")
	for i, place := range places {
		facts, pinned, problem := place.Facts(ctx)
		if problem == nil && facts.Digest != fmt.Sprintf("%x", wanted.Digest) {
			problem = fmt.Errorf("%s has step %d of run %q, wanted is step %d", place, facts.Step, facts.RunID, wanted.Step)
		}
		if problem == nil {
			return c.download(ctx, pinned)
		}
		if i == 0 {
			err = nil
		}
		err = errors.Join(err, problem)
	}
	return checkpoint.Snapshot{}, err
}

// checkUploads looks at the flags that need no Hub.
func (f uploadFlags) checkUploads(checkpointDir string) error {
	switch {
	case f.UploadTimeout <= 0:
		return fmt.Errorf("--upload-timeout is %v: want more than 0", f.UploadTimeout)
	case f.HubRepo == "" && f.HubPrivate:
		return errors.New("--hub-private is of --hub-repo, which is not given")
	case f.HubRepo == "":
		return nil
	case checkpointDir == "":
		return errors.New("--hub-repo needs --checkpoint-dir: what is uploaded is saved there first")
	}
	if err := hub.CheckRepo(f.HubRepo); err != nil {
		return fmt.Errorf("--hub-repo: %w", err)
	}
	return nil
}

// startUploads returns the uploader of --hub-repo, or nil. It finds out before the
// training whether the token may write there.
func (c *trainCommand) startUploads(ctx context.Context) (*remote.Uploader, error) {
	if c.HubRepo == "" {
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
	place := remote.HubRepo{Client: client, Repo: c.HubRepo, Private: c.HubPrivate}
	return remote.NewUploader(place, c.CheckpointDir, c.logTo), nil
}

// finishUploads waits until the last checkpoint is uploaded, also after an interrupt.
func (c *trainCommand) finishUploads(ctx context.Context, uploads *remote.Uploader) error {
	if uploads == nil {
		return nil
	}
	if uploads.Pending() {
		c.logTo.Info("waiting for the upload of the last checkpoint; Ctrl-C leaves it for the next start", "at most", c.UploadTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.UploadTimeout)
	defer cancel()
	return uploads.Close(ctx)
}

// logProgress says from time to time how far a transfer is.
func logProgress(logger *slog.Logger, what string) remote.Progress {
	const period = 5 * time.Second
	last := time.Now()
	return func(done, all int64) {
		if time.Since(last) >= period && all > 0 {
			last = time.Now()
			logger.Info(what, "percent", 100*done/all, "MiB", all>>20)
		}
	}
}

// downloadCommand puts a model into the Hub's cache.
type downloadCommand struct {
	Repo     string `arg:"" placeholder:"OWNER/NAME" help:"Repository of the Hugging Face Hub."`
	Revision string `placeholder:"REVISION" help:"Branch, tag or commit. Default: the default branch."`
	hubFlags `embed:""`
}

// Run prints the folder of the model.
func (c *downloadCommand) Run(ctx context.Context, t terminal) error {
	client, err := c.client(t.logger(), true)
	if err != nil {
		return err
	}
	place := remote.HubRepo{Client: client, Repo: c.Repo, Revision: c.Revision}
	dir, err := place.Download(ctx, printProgress(t))
	if err != nil {
		return err
	}
	if _, err := checkpoint.ReadDir(dir); err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.Out, dir)
	return err
}

// uploadCommand publishes a checkpoint that is on disk.
type uploadCommand struct {
	Dir      string `arg:"" type:"existingdir" placeholder:"DIR" help:"Folder of the model."`
	Repo     string `arg:"" placeholder:"OWNER/NAME" help:"Repository of the Hugging Face Hub; it is made if it is missing."`
	Private  bool   `help:"Make the repository private."`
	hubFlags `embed:""`
}

// Run prints the commit.
func (c *uploadCommand) Run(ctx context.Context, t terminal) error {
	snapshot, err := checkpoint.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	facts, err := checkpoint.ReadFacts(c.Dir)
	if errors.Is(err, checkpoint.ErrNoFacts) { // a model that was trained alone
		facts, err = checkpoint.Facts{RunID: c.Repo, Step: snapshot.Step, Digest: fmt.Sprintf("%x", snapshot.Manifest().Digest())}, nil
	}
	if err != nil {
		return err
	}
	client, err := c.client(t.logger(), true)
	if err != nil {
		return err
	}
	commit, err := remote.HubRepo{Client: client, Repo: c.Repo, Private: c.Private}.Upload(ctx, c.Dir, facts, printProgress(t))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.Out, "%s at %s\n", c.Repo, commit)
	return err
}

// printProgress writes a line for each tenth of a transfer that takes a while.
func printProgress(t terminal) remote.Progress {
	const worthTelling = 16 << 20 // bytes
	tenth := int64(0)
	return func(done, all int64) {
		if all >= worthTelling && 10*done/all > tenth {
			tenth = 10 * done / all
			_, _ = fmt.Fprintf(t.Err, "%d%% of %d MiB\n", 10*tenth, all>>20)
		}
	}
}
