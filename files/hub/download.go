package hub

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Git names its blobs by it
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/base/diskspace"
)

// defaultMaxBytes is the default maximum size of a snapshot.
const defaultMaxBytes = 4 << 40

// Progress is the progress of a transfer. Bytes include files that were already there.
type Progress struct {
	Path             string // of the file being transferred
	Files, AllFiles  int    // complete files, and their total number
	Bytes, AllBytes  int64
	TransferredBytes int64 // transferred over the network
}

// SnapshotOptions select the files of a repository to download.
type SnapshotOptions struct {
	Revision string                 // branch, tag or commit; default DefaultRevision
	Match    func(path string) bool // reports which files to download; nil: all
	MaxBytes int64                  // maximum size of all files together; default defaultMaxBytes
	Public   bool                   // only public files, including cached ones
	Progress func(Progress)         // called by one goroutine at a time; may be nil
}

// Snapshot is a commit in the cache.
type Snapshot struct {
	Dir    string // folder of the files
	Commit string
	Files  []Entry // downloaded files, sorted by path
}

// Snapshot downloads the matching files of a revision into the cache, except files that are already
// there. If the revision is a cached commit, Snapshot does not contact the Hub.
func (c *Client) Snapshot(ctx context.Context, repo string, o SnapshotOptions) (Snapshot, error) {
	o.Revision = cmp.Or(o.Revision, DefaultRevision)
	setDefault(&o.MaxBytes, defaultMaxBytes)
	s, err := c.snapshot(ctx, repo, o)
	if err != nil { // s may not be usable
		return Snapshot{}, fmt.Errorf("download %s at %s: %w", repo, o.Revision, err)
	}
	return s, nil
}

func (c *Client) snapshot(ctx context.Context, repo string, o SnapshotOptions) (Snapshot, error) {
	if err := errors.Join(CheckRepo(repo), checkRevision(o.Revision)); err != nil {
		return Snapshot{}, err
	}
	if c.CacheDir == "" {
		return Snapshot{}, errors.New("no cache folder; set HF_HOME or HF_HUB_CACHE")
	}
	cache := c.folder(repo)
	if s, found := cache.complete(o); found && (c.Offline || isCommit(o.Revision)) {
		if o.Public {
			return s, c.checkPublic(ctx, repo, cache, s)
		}
		return s, nil
	}
	if c.Offline {
		return Snapshot{}, ErrOffline
	}
	commit, err := c.Resolve(ctx, repo, o.Revision)
	if err != nil {
		return Snapshot{}, err
	}
	files, found := cache.loadTree(commit)
	if !found {
		if files, err = c.Files(ctx, repo, commit); err != nil {
			return Snapshot{}, err
		}
		if err := cache.saveTree(commit, files); err != nil {
			return Snapshot{}, err
		}
	}
	s := Snapshot{Dir: cache.snapshot(commit), Commit: commit, Files: o.wanted(files)}
	if o.Public {
		if err := c.checkPublic(ctx, repo, cache, s); err != nil {
			return Snapshot{}, err
		}
	}
	if err := c.fetchAll(ctx, repo, cache, s, o); err != nil {
		return Snapshot{}, err
	}
	if err := os.MkdirAll(s.Dir, 0o777); err != nil { // for a repository without files
		return Snapshot{}, err
	}
	if !isCommit(o.Revision) {
		err = replaceFile(cache.ref(o.Revision), []byte(commit))
	}
	return s, err
}

func (o SnapshotOptions) wanted(files []Entry) []Entry {
	wanted := slices.DeleteFunc(slices.Clone(files), func(e Entry) bool { return o.Match != nil && !o.Match(e.Path) })
	slices.SortFunc(wanted, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return wanted
}

// complete returns the snapshot if all its files are here.
func (f folder) complete(o SnapshotOptions) (Snapshot, bool) {
	commit, found := f.commit(o.Revision)
	if !found {
		return Snapshot{}, false
	}
	files, found := f.loadTree(commit)
	if !found {
		files, found = f.listed(commit)
	}
	if !found {
		return Snapshot{}, false
	}
	s := Snapshot{Dir: f.snapshot(commit), Commit: commit, Files: o.wanted(files)}
	return s, !slices.ContainsFunc(s.Files, func(e Entry) bool { return !f.has(commit, e) })
}

// listed returns the files of a snapshot that another program created without a listing. The
// existing files are the only information.
func (f folder) listed(commit string) ([]Entry, bool) {
	var files []Entry
	dir := f.snapshot(commit)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		target, _ := os.Readlink(path)
		files = append(files, Entry{Path: filepath.ToSlash(name), Size: info.Size(), Hash: filepath.Base(target)})
		return err
	})
	return files, err == nil && len(files) > 0
}

// fetchAll downloads the files of a snapshot, several at once, large ones first.
func (c *Client) fetchAll(ctx context.Context, repo string, cache folder, s Snapshot, o SnapshotOptions) error {
	m := meter{report: o.Progress}
	order := slices.Clone(s.Files)
	slices.SortStableFunc(order, func(a, b Entry) int { return int(min(max(b.Size-a.Size, -1), 1)) })
	for _, e := range order {
		if e.Size > o.MaxBytes-m.now.AllBytes {
			return fmt.Errorf("%w: the files together exceed %d bytes", ErrTooLarge, o.MaxBytes)
		}
		m.now.AllBytes += e.Size
		m.now.AllFiles++
	}
	missing, counted := uint64(0), map[string]bool{}
	for _, e := range order {
		if !counted[e.Hash] {
			missing += cache.missing(s.Commit, e)
		}
		counted[e.Hash] = true
	}
	if err := diskspace.Check(cache.root, "the missing files", missing, c.Space); err != nil {
		return fmt.Errorf("%w, or choose another cache folder with HF_HUB_CACHE", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.Parallel)
	for _, e := range order {
		group.Go(func() error {
			f := fetch{Client: c, cache: cache, repo: repo, commit: s.Commit, entry: e, meter: &m}
			if err := f.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", e.Path, err)
			}
			m.add(e.Path, 1, 0, 0)
			return nil
		})
	}
	return group.Wait()
}

// meter sums up the progress of several files.
type meter struct {
	mu     sync.Mutex
	now    Progress
	report func(Progress)
}

func (m *meter) add(path string, files int, bytes, transferred int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Path = path
	m.now.Files += files
	m.now.Bytes += bytes
	m.now.TransferredBytes += transferred
	if m.report != nil {
		m.report(m.now)
	}
}

// fetch downloads one file.
type fetch struct {
	*Client
	cache        folder
	repo, commit string
	entry        Entry
	meter        *meter

	file *os.File // incomplete file
	sum  hash.Hash
	have int64 // number of bytes in file and in sum
}

func (f *fetch) run(ctx context.Context) error {
	if f.cache.has(f.commit, f.entry) {
		f.meter.add(f.entry.Path, 0, f.entry.Size, 0)
		return nil
	}
	unlock, err := f.cache.lock(ctx, f.entry.Hash)
	if err != nil {
		return err
	}
	defer unlock()
	if info, err := os.Stat(f.cache.blob(f.entry.Hash)); err == nil && info.Size() == f.entry.Size {
		f.meter.add(f.entry.Path, 0, f.entry.Size, 0)
	} else if err := f.download(ctx); err != nil {
		return diskspace.Explain(err, "complete files and the start of this file are kept; remove other files, and run the command again to resume")
	}
	return f.cache.link(f.commit, f.entry)
}

// download creates the blob.
func (f *fetch) download(ctx context.Context) (err error) {
	blob := f.cache.blob(f.entry.Hash)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	f.file, err = os.OpenFile(blob+incomplete, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.file.Close()) }()
	if err := f.countRemains(); err != nil {
		return err
	}
	if err := f.complete(ctx); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	return os.Rename(blob+incomplete, blob)
}

// countRemains counts the remains of an interrupted download.
func (f *fetch) countRemains() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > f.entry.Size {
		return f.restart()
	}
	f.sum = newHash(f.entry)
	f.have, err = io.Copy(f.sum, f.file)
	f.meter.add(f.entry.Path, 0, f.have, 0)
	return err
}

func (f *fetch) restart() error {
	f.meter.add(f.entry.Path, 0, -f.have, 0)
	f.sum, f.have = newHash(f.entry), 0
	if err := f.file.Truncate(0); err != nil {
		return err
	}
	_, err := f.file.Seek(0, io.SeekStart)
	return err
}

// newHash returns the hash function for a file. Git hashes a blob with its size in front.
func newHash(e Entry) hash.Hash {
	if e.large() {
		return sha256.New()
	}
	sum := sha1.New() //nolint:gosec // as above
	_, _ = fmt.Fprintf(sum, "blob %d\x00", e.Size)
	return sum
}

// complete downloads the missing part and verifies the whole. If the content is wrong once, that
// may be due to the remains of an interrupted download, so the file is downloaded again from its
// start.
func (f *fetch) complete(ctx context.Context) error {
	for again := range 2 {
		err := f.retry(ctx, func() (bool, error) {
			before := f.have
			err := f.attempt(ctx)
			return f.have > before, err
		})
		if err != nil {
			return err
		}
		got := hex.EncodeToString(f.sum.Sum(nil))
		if got == f.entry.Hash {
			return nil
		}
		if again == 0 {
			f.Logger.Warn("wrong content; downloading the file again", "file", f.entry.Path, "hash", got, "want", f.entry.Hash)
		}
		if err := f.restart(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: want hash %s, but two downloads had different hashes", errIntegrity, f.entry.Hash)
}

// attempt appends the body of one answer to the file.
func (f *fetch) attempt(ctx context.Context) error {
	if f.have == f.entry.Size {
		return nil
	}
	ctx, watch := newWatch(ctx, f.Stall)
	defer watch.stop()
	r := request{method: http.MethodGet, url: f.resolve(f.repo, f.commit, f.entry.Path), header: http.Header{}}
	if f.have > 0 {
		r.header.Set("Range", fmt.Sprintf("bytes=%d-", f.have))
	}
	response, about, err := f.send(ctx, r)
	if err != nil {
		return watch.explain(err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
		if f.have > 0 { // the server does not support ranges
			if err := f.restart(); err != nil {
				return err
			}
		}
	case http.StatusPartialContent:
		if want := fmt.Sprintf("bytes %d-", f.have); !strings.HasPrefix(response.Header.Get("Content-Range"), want) {
			return fmt.Errorf("%w: want bytes from %d, got Content-Range %q", errProtocol, f.have, printable(response.Header.Get("Content-Range")))
		}
	case http.StatusRequestedRangeNotSatisfiable:
		return errors.Join(&networkError{"resume " + f.entry.Path, errors.New("the server does not have the requested bytes; starting again")}, f.restart())
	default:
		return readStatusError(response)
	}
	if err := f.check(about); err != nil {
		return err
	}
	return f.append(watched{response.Body, watch}, watch)
}

// check compares the Hub's current information about the file with the commit's tree.
func (f *fetch) check(about http.Header) error {
	if commit := about.Get("X-Repo-Commit"); commit != "" && commit != f.commit {
		return fmt.Errorf("%w: the answer belongs to commit %q, want %s", errProtocol, printable(commit), f.commit)
	}
	etag := strings.Trim(strings.TrimPrefix(about.Get("X-Linked-Etag"), "W/"), `"`)
	if isHash(etag) && etag != f.entry.Hash {
		return fmt.Errorf("%w: hash %s in the repository tree, but %s in the answer", errProtocol, f.entry.Hash, etag)
	}
	size, err := strconv.ParseInt(about.Get("X-Linked-Size"), 10, 64)
	if err == nil && size != f.entry.Size {
		return fmt.Errorf("%w: %d bytes in the repository tree, but %d in the answer", errProtocol, f.entry.Size, size)
	}
	return nil
}

func (f *fetch) append(body io.Reader, watch *watch) error {
	buffer := make([]byte, 1<<17)
	for {
		n, err := body.Read(buffer)
		if int64(n) > f.entry.Size-f.have {
			return errors.Join(fmt.Errorf("%w: body exceeds the file size in the repository tree, %d bytes", errProtocol, f.entry.Size), f.restart())
		}
		if _, err := f.file.Write(buffer[:n]); err != nil {
			return err
		}
		_, _ = f.sum.Write(buffer[:n]) // does not fail
		f.have += int64(n)
		f.meter.add(f.entry.Path, 0, int64(n), int64(n))
		switch {
		case errors.Is(err, io.EOF) && f.have == f.entry.Size:
			return nil
		case errors.Is(err, io.EOF):
			return &networkError{"read " + f.entry.Path, io.ErrUnexpectedEOF}
		case err != nil:
			return &networkError{"read " + f.entry.Path, watch.explain(err)}
		}
	}
}
