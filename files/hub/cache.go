package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/base/filelock"
)

// folder is the cache folder of one repository.
type folder struct {
	root  string // models--org--name, datasets--org--name
	locks string
}

func (c *Client) folder(repo string) folder {
	name := c.kind() + "--" + strings.ReplaceAll(repo, "/", "--")
	return folder{filepath.Join(c.CacheDir, name), filepath.Join(c.CacheDir, ".locks", name)}
}

// incomplete is the ending of a blob's name until it is complete.
const incomplete = ".incomplete"

func (f folder) blob(hash string) string       { return filepath.Join(f.root, "blobs", hash) }
func (f folder) snapshot(commit string) string { return filepath.Join(f.root, "snapshots", commit) }
func (f folder) ref(revision string) string {
	return filepath.Join(f.root, "refs", filepath.FromSlash(revision))
}
func (f folder) tree(commit string) string { return filepath.Join(f.root, "trees", commit+".json") }

// public returns the path of a file that exists if the Hub has confirmed that the commit is public.
func (f folder) public(commit string) string { return filepath.Join(f.root, "trees", commit+".public") }

func (f folder) file(commit, path string) string {
	return filepath.Join(f.snapshot(commit), filepath.FromSlash(path))
}

// has reports whether a snapshot has a complete file.
func (f folder) has(commit string, e Entry) bool {
	info, err := os.Stat(f.file(commit, e.Path))
	return err == nil && info.Mode().IsRegular() && info.Size() == e.Size
}

// missing returns the number of bytes of a file that a download will write.
func (f folder) missing(commit string, e Entry) uint64 {
	if f.has(commit, e) {
		return 0
	}
	if info, err := os.Stat(f.blob(e.Hash)); err == nil && info.Size() == e.Size {
		return 0
	}
	if info, err := os.Stat(f.blob(e.Hash) + incomplete); err == nil && info.Size() <= e.Size {
		return uint64(e.Size - info.Size())
	}
	return uint64(e.Size)
}

// commit returns the commit of a revision at its last download.
func (f folder) commit(revision string) (string, bool) {
	if isCommit(revision) {
		return revision, true
	}
	text, err := os.ReadFile(f.ref(revision))
	commit := strings.TrimSpace(string(text))
	return commit, err == nil && isCommit(commit)
}

// link links a blob into a snapshot.
func (f folder) link(commit string, e Entry) error {
	path := f.file(commit, e.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(path), f.blob(e.Hash))
	if err != nil {
		return err
	}
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	temporary := f.blob(e.Hash) + ".link"
	_ = os.Remove(temporary) // from a killed process; the blob's lock is held
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// savedTree is the listing of a commit in the format of the Hub's Python library.
type savedTree struct {
	Version int                  `json:"format_version"`
	Files   map[string]savedFile `json:"files"`
}

type savedFile struct {
	Size    int64  `json:"size"`
	BlobID  string `json:"blob_id"`
	SHA256  string `json:"lfs_sha256,omitempty"`
	LFSSize int64  `json:"lfs_size,omitempty"`
}

const treeVersion = 1

func (f folder) saveTree(commit string, files []Entry) error {
	tree := savedTree{treeVersion, make(map[string]savedFile, len(files))}
	for _, e := range files {
		saved := savedFile{Size: e.Size, BlobID: e.Hash}
		if e.large() {
			saved.SHA256, saved.LFSSize = e.Hash, e.Size
		}
		tree.Files[e.Path] = saved
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return replaceFile(f.tree(commit), text)
}

// loadTree returns the files of a commit from a saved listing. found is false if there is no valid
// listing.
func (f folder) loadTree(commit string) (files []Entry, found bool) {
	info, err := os.Stat(f.tree(commit))
	if err != nil || info.Size() > maxAnswer {
		return nil, false
	}
	text, err := os.ReadFile(f.tree(commit))
	var tree savedTree
	if err != nil || json.Unmarshal(text, &tree) != nil || tree.Version != treeVersion {
		return nil, false
	}
	for path, saved := range tree.Files {
		e := Entry{Path: path, Size: saved.Size, Hash: saved.BlobID}
		if saved.SHA256 != "" {
			e.Size, e.Hash = saved.LFSSize, saved.SHA256
		}
		if checkPath(path) != nil || e.Size < 0 || !isHash(e.Hash) {
			return nil, false
		}
		files = append(files, e)
	}
	return files, true
}

// replaceFile writes a file atomically. It creates the folder if necessary.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o644)
}

// lock waits until only this process may write a blob. It uses the lock of the Hub's Python
// library. On systems without locks, two processes that download the same blob only lose time,
// because content is verified before it is put in place.
func (f folder) lock(ctx context.Context, hash string) (unlock func(), err error) {
	path := filepath.Join(f.locks, hash+".lock")
	if err := os.MkdirAll(f.locks, 0o777); err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	file, err := filelock.Wait(ctx, path, 0o664)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("wait for another process to finish its download: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
