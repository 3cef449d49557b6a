package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/files/hub"
)

// hubFlags configure access to the Hugging Face Hub.
type hubFlags struct {
	HFToken                   string `name:"hf-token" placeholder:"TOKEN" help:"Token for the Hugging Face Hub. Other users can see command lines: prefer HF_TOKEN, or log in with the Hub's own tool."`
	HubMaxConcurrentDownloads int    `default:"3" placeholder:"N" help:"Maximum number of concurrent file transfers from or to the Hub (${default})."`
}

// client returns a client of the Hub, configured by the environment. Without a token it can only
// read public repositories.
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

// downloadCommand downloads a model into the Hub's cache.
type downloadCommand struct {
	Repo     string `arg:"" placeholder:"OWNER/NAME" help:"Hugging Face Hub repository, or gs://BUCKET/PREFIX."`
	Revision string `placeholder:"REVISION" help:"Branch, tag or commit. Default: the default branch."`
	hubFlags `embed:""`
}

// Run prints the folder of the model.
func (c *downloadCommand) Run(ctx context.Context, t terminal) error {
	dir, err := c.download(ctx, t)
	if err != nil {
		return err
	}
	if _, err := readFolder(t, dir); err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.Out, dir)
	return err
}

func (c *downloadCommand) download(ctx context.Context, t terminal) (dir string, err error) {
	if name, prefix, ok := modelsource.SplitBucketURL(c.Repo); ok {
		if c.Revision != "" {
			return "", errors.New("--revision applies to Hub repositories only; omit it for a bucket")
		}
		bucket, err := modelsource.OpenBucket(ctx, name, prefix, true)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, bucket.Store.Close()) }()
		return bucket.Download(ctx, printProgress(t))
	}
	client, err := c.client(t.logger(), true)
	if err != nil {
		return "", err
	}
	return remote.HubRepo{Client: client, Repo: c.Repo, Revision: c.Revision}.Download(ctx, printProgress(t))
}

// uploadCommand publishes a checkpoint from disk.
type uploadCommand struct {
	Dir      string `arg:"" type:"existingdir" placeholder:"DIR" help:"Model folder."`
	Repo     string `arg:"" placeholder:"OWNER/NAME" help:"Hugging Face Hub repository, created if it does not exist, or gs://BUCKET/PREFIX."`
	Private  bool   `help:"Make the repository private."`
	hubFlags `embed:""`
}

// Run prints the commit.
func (c *uploadCommand) Run(ctx context.Context, t terminal) error {
	snapshot, err := readFolder(t, c.Dir)
	if err != nil {
		return err
	}
	facts, err := checkpoint.ReadFacts(c.Dir)
	if errors.Is(err, checkpoint.ErrNoFacts) { // the model comes from solo training
		facts, err = checkpoint.Facts{RunID: strings.TrimPrefix(c.Repo, modelsource.BucketScheme), Step: snapshot.Step, Digest: fmt.Sprintf("%x", snapshot.Manifest().Digest())}, nil
	}
	if err != nil {
		return err
	}
	if name, prefix, ok := modelsource.SplitBucketURL(c.Repo); ok {
		bucket, err := modelsource.OpenBucket(ctx, name, prefix, true)
		if err != nil {
			return err
		}
		defer func() { _ = bucket.Store.Close() }()
		at, err := bucket.Upload(ctx, c.Dir, facts, printProgress(t))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(t.Out, "gs://%s/%s\n", name, at)
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

// printProgress writes a line for each tenth of a large transfer.
func printProgress(t terminal) remote.Progress {
	const worthTelling = 16 << 20 // bytes
	tenth := int64(0)
	return func(done, all int64) {
		if all >= worthTelling && 10*done/all > tenth {
			tenth = 10 * done / all
			_, _ = fmt.Fprintf(t.Err, "%d%% of %s\n", 10*tenth, diskspace.Format(all))
		}
	}
}
