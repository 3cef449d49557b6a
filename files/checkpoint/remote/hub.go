package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub"
)

// errNewer means that the location has a later checkpoint of the same run.
var errNewer = errors.New("a later checkpoint of the run exists")

// HubRepo is a repository of the Hugging Face Hub.
type HubRepo struct {
	Client   *hub.Client
	Repo     string // owner/name
	Revision string // branch, tag or commit; empty: the default branch
	Private  bool   // create the repository as private
	MaxBytes int64  // maximum size of a download; 0: the limit of package hub
	Public   bool   // Download gets only public files, including cached ones
}

func (r HubRepo) revision() string {
	if r.Revision == "" {
		return hub.DefaultRevision
	}
	return r.Revision
}

// String returns the location in a readable form. It names the Hub unless it is the public Hub, and
// states whether Upload creates a private repository.
func (r HubRepo) String() string {
	name := "Hub " + r.Repo + "@" + r.revision()
	if at, err := url.Parse(r.Client.Endpoint); err == nil && r.Client.Endpoint != hub.DefaultEndpoint {
		name += " of " + at.Redacted()
	}
	if r.Private {
		name += " (private)"
	}
	return name
}

// Facts returns the facts of the newest checkpoint, and the location pinned to its commit. If no
// run wrote to the repository, the error is checkpoint.ErrNoFacts.
func (r HubRepo) Facts(ctx context.Context) (checkpoint.Facts, HubRepo, error) {
	commit, err := r.Client.Resolve(ctx, r.Repo, r.revision())
	if err != nil {
		return checkpoint.Facts{}, r, err
	}
	r.Revision = commit
	f, err := r.facts(ctx, commit)
	return f, r, err
}

func (r HubRepo) facts(ctx context.Context, commit string) (checkpoint.Facts, error) {
	text, err := r.Client.ReadFile(ctx, r.Repo, commit, checkpoint.FactsFile)
	if errors.Is(err, hub.ErrNotFound) {
		return checkpoint.Facts{}, fmt.Errorf("%w: %s at %s", checkpoint.ErrNoFacts, r.Repo, commit)
	}
	if err != nil {
		return checkpoint.Facts{}, err
	}
	return checkpoint.ParseFacts(text)
}

// Config returns the model's config.json.
func (r HubRepo) Config(ctx context.Context) ([]byte, error) {
	return r.Client.ReadFile(ctx, r.Repo, r.revision(), checkpoint.ConfigFile)
}

// Download downloads the checkpoint into the Hub's cache and returns its folder.
func (r HubRepo) Download(ctx context.Context, progress Progress) (dir string, err error) {
	o := hub.SnapshotOptions{Revision: r.Revision, Match: checkpoint.IsPart, MaxBytes: r.MaxBytes, Public: r.Public}
	if progress != nil {
		o.Progress = func(p hub.Progress) { progress(p.Bytes, p.AllBytes) }
	}
	got, err := r.Client.Snapshot(ctx, r.Repo, o)
	if err != nil {
		return "", err
	}
	if len(got.Files) == 0 {
		return "", fmt.Errorf("download %s: %w: no model files", r, checkpoint.ErrInvalid)
	}
	return got.Dir, nil
}

// Upload commits the checkpoint of a folder and returns the commit. It removes files of an earlier
// checkpoint that this one does not have. Other files, including a model card that a person wrote,
// stay. If the repository has a later checkpoint of the same run, Upload returns errNewer.
func (r HubRepo) Upload(ctx context.Context, dir string, f checkpoint.Facts, progress Progress) (string, error) {
	files, err := filesOf(dir)
	if err != nil {
		return "", err
	}
	card, err := checkpoint.CardOf(dir, f)
	if err != nil {
		return "", fmt.Errorf("read checkpoint: %w", err)
	}
	if err := r.Client.CreateRepo(ctx, r.Repo, r.Private); err != nil {
		return "", err
	}
	there, err := r.Client.ReadFile(ctx, r.Repo, r.revision(), checkpoint.CardFile)
	switch {
	case errors.Is(err, hub.ErrNotFound), err == nil && checkpoint.IsOwnCard(there):
		files = append(files, hub.File{Path: checkpoint.CardFile, Data: card})
	case err != nil:
		return "", err
	}
	o := hub.UploadOptions{
		Branch:  r.Revision,
		Message: fmt.Sprintf("step %d", f.Step),
		Delete:  checkpoint.IsPart,
		Check:   func(ctx context.Context, parent string) error { return r.isNotNewer(ctx, parent, f) },
	}
	if progress != nil {
		o.Progress = func(p hub.Progress) { progress(p.Bytes, p.AllBytes) }
	}
	commit, err := r.Client.Upload(ctx, r.Repo, files, o)
	return commit.ID, err
}

// isNotNewer returns errNewer if the parent commit has a later checkpoint of the run.
func (r HubRepo) isNotNewer(ctx context.Context, parent string, f checkpoint.Facts) error {
	there, err := r.facts(ctx, parent)
	switch {
	case errors.Is(err, checkpoint.ErrNoFacts), errors.Is(err, checkpoint.ErrInvalid):
		return nil
	case err != nil:
		return err
	case there.RunID == f.RunID && there.Step > f.Step:
		return fmt.Errorf("%w: the location has step %d, want %d", errNewer, there.Step, f.Step)
	}
	return nil
}

// filesOf returns the files of a checkpoint's folder.
func filesOf(dir string) ([]hub.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	var files []hub.File
	for _, entry := range entries {
		if checkpoint.IsPart(entry.Name()) {
			files = append(files, hub.File{Path: entry.Name(), Local: filepath.Join(dir, entry.Name())})
		}
	}
	return files, nil
}
