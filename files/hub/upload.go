package hub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Git names its blobs by it
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Limits of a commit.
const (
	maxUploadFiles = 1000
	maxInline      = 64 << 20 // total size of the files in the commit itself, in bytes
	sampleSize     = 512      // number of first bytes that the Hub uses to detect a binary file
	uploadAttempts = 3        // attempts with a new parent after concurrent commits
)

// File is a file to upload: the file at Local, or Data.
type File struct {
	Path  string // in the repository
	Local string
	Data  []byte
}

func (f File) open() (io.ReadSeekCloser, int64, error) {
	if f.Local == "" {
		return nopCloser{bytes.NewReader(f.Data)}, int64(len(f.Data)), nil
	}
	file, err := os.Open(f.Local)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Local)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// UploadOptions are the settings of a commit.
type UploadOptions struct {
	Branch  string // default DefaultRevision; created if missing
	Message string // first line of the commit's description

	Create  bool // create the repository if it is missing
	Private bool // create it as private

	// Delete reports which files of the repository the commit removes, for example files of an
	// earlier upload without a successor. May be nil.
	Delete func(path string) bool

	// Check is called with the parent of the new commit before anything is sent, and may refuse it.
	// May be nil.
	Check func(ctx context.Context, parent string) error

	Progress func(Progress) // called by one goroutine at a time; may be nil
}

// Commit is the state of a repository after an upload.
type Commit struct {
	ID        string // 40 hex digits
	Unchanged bool   // the repository already had all files
}

// Upload commits files to a branch of a model repository. If another commit is made in the
// meantime, it starts again from that commit.
func (c *Client) Upload(ctx context.Context, repo string, files []File, o UploadOptions) (Commit, error) {
	o.Branch = cmp.Or(o.Branch, DefaultRevision)
	commit, err := c.upload(ctx, repo, files, o)
	if err != nil {
		return Commit{}, fmt.Errorf("upload to %s: %w", repo, err)
	}
	return commit, nil
}

func (c *Client) upload(ctx context.Context, repo string, files []File, o UploadOptions) (Commit, error) {
	if err := checkUpload(repo, files, o); err != nil {
		return Commit{}, err
	}
	switch {
	case c.Datasets:
		return Commit{}, errors.New("this client can only download data sets, not upload them")
	case c.Offline:
		return Commit{}, ErrOffline
	case c.Token == "":
		return Commit{}, errNoToken
	}
	u := &upload{Client: c, repo: repo, options: o, meter: meter{report: o.Progress}}
	if err := u.hash(ctx, files); err != nil {
		return Commit{}, err
	}
	if o.Create {
		if err := c.CreateRepo(ctx, repo, o.Private); err != nil {
			return Commit{}, err
		}
	}
	for attempt := 1; ; attempt++ {
		commit, err := u.run(ctx)
		if err == nil || !errors.Is(err, errConflict) || attempt == uploadAttempts {
			return commit, err
		}
		c.Logger.Info("the repository changed in the meantime; starting again from the new commit", "repo", repo)
	}
}

func checkUpload(repo string, files []File, o UploadOptions) error {
	if err := errors.Join(CheckRepo(repo), checkRevision(o.Branch)); err != nil {
		return err
	}
	if len(files) == 0 || len(files) > maxUploadFiles || isCommit(o.Branch) {
		return fmt.Errorf("%d files for branch %q: want 1 to %d files, and a branch instead of a commit", len(files), o.Branch, maxUploadFiles)
	}
	seen := map[string]bool{}
	for _, f := range files {
		if err := checkPath(f.Path); err != nil {
			return err
		}
		if seen[f.Path] {
			return fmt.Errorf("%w: %s occurs twice", ErrInvalidName, f.Path)
		}
		seen[f.Path] = true
	}
	return nil
}

// CreateRepo creates a model repository unless it exists.
func (c *Client) CreateRepo(ctx context.Context, repo string, private bool) error {
	if err := CheckRepo(repo); err != nil {
		return err
	}
	if c.Token == "" {
		return fmt.Errorf("create repository: %w", errNoToken)
	}
	owner, name, found := strings.Cut(repo, "/")
	if !found {
		return fmt.Errorf("%w: repository %q: want owner/name", ErrInvalidName, repo)
	}
	visibility := "public"
	if private {
		visibility = "private"
	}
	ask := map[string]any{"name": name, "organization": owner, "type": "model", "visibility": visibility}
	_, err := c.json(ctx, http.MethodPost, c.url("api", "repos", "create"), ask, nil)
	switch {
	case errors.Is(err, errConflict):
		return nil
	case errors.Is(err, ErrForbidden): // such a token may still write to an existing repository
		if _, lookup := c.Resolve(ctx, repo, DefaultRevision); lookup == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("create repository: %w", err)
	}
	return nil
}

// CanWrite returns an error unless the token may commit to a branch of a repository.
func (c *Client) CanWrite(ctx context.Context, repo, branch string) error {
	if err := errors.Join(CheckRepo(repo), checkRevision(branch)); err != nil {
		return err
	}
	if c.Token == "" {
		return errNoToken
	}
	probe := &upload{Client: c, repo: repo, options: UploadOptions{Branch: branch}}
	return probe.classify(ctx, []*hashed{{File: File{Path: "README.md"}, size: 1, sample: []byte("#")}})
}

// upload is one upload with its files.
type upload struct {
	*Client
	repo    string
	options UploadOptions
	meter   meter
	files   []*hashed
}

// hashed is a file with its IDs in the repository.
type hashed struct {
	File
	size   int64
	sha256 string
	git    string // blob id
	sample []byte
	large  bool // stored in LFS
}

func (h *hashed) is(e Entry) bool {
	return h.size == e.Size && (h.sha256 == e.Hash || h.git == e.Hash)
}

// hash reads every file once.
func (u *upload) hash(ctx context.Context, files []File) error {
	u.files = make([]*hashed, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(u.Parallel)
	for i, file := range files {
		group.Go(func() error {
			h, err := hashFile(ctx, file)
			u.files[i] = h
			return err
		})
	}
	return group.Wait()
}

func hashFile(ctx context.Context, file File) (*hashed, error) {
	content, size, err := file.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	h := &hashed{File: file, size: size, sample: make([]byte, min(size, sampleSize))}
	if _, err := io.ReadFull(content, h.sample); err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Path, err)
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	sum, git := sha256.New(), sha1.New() //nolint:gosec // Git's
	_, _ = fmt.Fprintf(git, "blob %d\x00", size)
	if _, err := io.Copy(io.MultiWriter(sum, git), contextReader{ctx, content}); err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Path, err)
	}
	h.sha256, h.git = hex.EncodeToString(sum.Sum(nil)), hex.EncodeToString(git.Sum(nil))
	return h, nil
}

type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// run makes one commit on top of the branch's current commit.
func (u *upload) run(ctx context.Context) (Commit, error) {
	parent, err := u.parent(ctx)
	if err != nil {
		return Commit{}, err
	}
	if u.options.Check != nil {
		if err := u.options.Check(ctx, parent); err != nil {
			return Commit{}, err
		}
	}
	there, err := u.Files(ctx, u.repo, parent)
	if err != nil {
		return Commit{}, err
	}
	missing := u.missing(there)
	gone := u.gone(there)
	if len(missing)+len(gone) == 0 {
		return Commit{ID: parent, Unchanged: true}, nil
	}
	u.meter.now = Progress{AllFiles: len(missing)}
	for _, h := range missing {
		u.meter.now.AllBytes += h.size
	}
	if err := u.classify(ctx, missing); err != nil {
		return Commit{}, err
	}
	if err := u.store(ctx, missing); err != nil {
		return Commit{}, err
	}
	return u.commit(ctx, parent, missing, gone)
}

// parent returns the newest commit of the branch, which it creates if necessary.
func (u *upload) parent(ctx context.Context) (string, error) {
	commit, err := u.Resolve(ctx, u.repo, u.options.Branch)
	if !errors.Is(err, ErrNotFound) || u.options.Branch == DefaultRevision {
		return commit, err
	}
	status, ok := errors.AsType[*statusError](err)
	if ok && status.Code == "RepoNotFound" {
		return "", err
	}
	if _, err := u.json(ctx, http.MethodPost, u.api(u.repo, "branch", u.options.Branch), map[string]any{}, nil); err != nil && !errors.Is(err, errConflict) {
		return "", fmt.Errorf("make branch %s: %w", u.options.Branch, err)
	}
	return u.Resolve(ctx, u.repo, u.options.Branch)
}

func (u *upload) missing(there []Entry) []*hashed {
	return slices.DeleteFunc(slices.Clone(u.files), func(h *hashed) bool {
		return slices.ContainsFunc(there, func(e Entry) bool { return e.Path == h.Path && h.is(e) })
	})
}

func (u *upload) gone(there []Entry) []string {
	var gone []string
	for _, e := range there {
		kept := slices.ContainsFunc(u.files, func(h *hashed) bool { return h.Path == e.Path })
		if !kept && u.options.Delete != nil && u.options.Delete(e.Path) {
			gone = append(gone, e.Path)
		}
	}
	return gone
}

// classify asks the Hub which files belong in LFS storage.
func (u *upload) classify(ctx context.Context, files []*hashed) error {
	type described struct {
		Path   string `json:"path"`
		Sample string `json:"sample"`
		Size   int64  `json:"size"`
	}
	for chunk := range slices.Chunk(files, 256) {
		var ask struct {
			Files []described `json:"files"`
		}
		for _, h := range chunk {
			ask.Files = append(ask.Files, described{h.Path, base64.StdEncoding.EncodeToString(h.sample), h.size})
		}
		type mode struct {
			Path         string
			UploadMode   string
			ShouldIgnore bool
		}
		var answer struct{ Files []mode }
		if _, err := u.json(ctx, http.MethodPost, u.api(u.repo, "preupload", u.options.Branch), ask, &answer); err != nil {
			return fmt.Errorf("request upload modes: %w", err)
		}
		for _, h := range chunk {
			i := slices.IndexFunc(answer.Files, func(m mode) bool { return m.Path == h.Path })
			switch {
			case i < 0 || (answer.Files[i].UploadMode != "lfs" && answer.Files[i].UploadMode != "regular"):
				return fmt.Errorf("%w: the Hub's answer has no upload mode for %s", errProtocol, h.Path)
			case answer.Files[i].ShouldIgnore:
				return fmt.Errorf("the repository's .gitignore excludes %s; remove that line", h.Path)
			}
			h.large = answer.Files[i].UploadMode == "lfs" && h.size > 0 // LFS storage does not accept empty files
		}
	}
	return nil
}

// commit sends the files outside LFS storage, and the IDs of those in it.
func (u *upload) commit(ctx context.Context, parent string, files []*hashed, gone []string) (Commit, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	line := func(key string, value any) error { return lines.Encode(map[string]any{"key": key, "value": value}) }
	err := line("header", map[string]string{"summary": u.options.Message, "description": "", "parentCommit": parent})
	inline := int64(0)
	for _, h := range files {
		switch {
		case err != nil:
			return Commit{}, err
		case h.large:
			err = line("lfsFile", map[string]any{"path": h.Path, "algo": "sha256", "oid": h.sha256, "size": h.size})
		default:
			if inline += h.size; inline > maxInline {
				return Commit{}, fmt.Errorf("%w: the Hub requires %d bytes of files inside the commit, the limit is %d", ErrTooLarge, inline, maxInline)
			}
			var data []byte
			if data, err = h.read(); err == nil {
				err = line("file", map[string]string{"path": h.Path, "encoding": "base64", "content": base64.StdEncoding.EncodeToString(data)})
			}
		}
	}
	for _, path := range gone {
		err = errors.Join(err, line("deletedFile", map[string]string{"path": path}))
	}
	if err != nil {
		return Commit{}, err
	}
	r := request{method: http.MethodPost, url: u.api(u.repo, "commit", u.options.Branch), header: http.Header{"Content-Type": {"application/x-ndjson"}}}
	r.setBody(body.Bytes())
	// A repeated request is safe, because the commit names its parent. If the first one succeeded,
	// the next run finds all files unchanged.
	answer, _, err := u.call(ctx, r, maxAnswer)
	if err != nil {
		return Commit{}, fmt.Errorf("commit: %w", err)
	}
	var made struct{ CommitOID string }
	if err := json.Unmarshal(answer, &made); err != nil || !isCommit(made.CommitOID) {
		return Commit{}, fmt.Errorf("%w: the Hub's answer has no valid commit id", errProtocol)
	}
	for _, h := range files {
		if !h.large {
			u.meter.add(h.Path, 1, h.size, h.size)
		}
	}
	return Commit{ID: made.CommitOID}, nil
}

// read returns the content of a small file, which must not have changed since it was hashed.
func (h *hashed) read() ([]byte, error) {
	content, size, err := h.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	data := make([]byte, h.size)
	if _, err := io.ReadFull(content, data); err != nil || size != h.size {
		return nil, fmt.Errorf("%s changed during the upload; run the command again", h.Path)
	}
	sum := sha256.Sum256(data)
	if hex.EncodeToString(sum[:]) != h.sha256 {
		return nil, fmt.Errorf("%s changed during the upload; run the command again", h.Path)
	}
	return data, nil
}
