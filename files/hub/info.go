package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Limits of a repository's listing.
const (
	maxPages   = 100
	maxEntries = 20_000
)

// Entry is a file of a commit.
type Entry struct {
	Path string
	Size int64  // bytes
	Hash string // hex: SHA-256 of large files, Git blob ID (40 digits) of other files
}

// large reports whether the file is in LFS storage.
func (e Entry) large() bool { return sha256Pattern.MatchString(e.Hash) }

// Resolve returns the commit for a branch, tag or commit of a repository.
func (c *Client) Resolve(ctx context.Context, repo, revision string) (string, error) {
	if err := errors.Join(CheckRepo(repo), checkRevision(revision)); err != nil {
		return "", err
	}
	var info struct{ SHA string }
	if _, err := c.json(ctx, http.MethodGet, c.api(repo, "revision", revision), nil, &info); err != nil {
		return "", fmt.Errorf("look up %s at %s: %w", repo, revision, err)
	}
	if !isCommit(info.SHA) || (isCommit(revision) && revision != info.SHA) {
		return "", fmt.Errorf("look up %s at %s: %w: invalid commit %q", repo, revision, errProtocol, printable(info.SHA))
	}
	return info.SHA, nil
}

// treeEntry is an entry of a tree in the Hub's format.
type treeEntry struct {
	Type string
	Path string
	Size int64
	OID  string
	LFS  *struct {
		OID  string
		Size int64
	}
}

func (t treeEntry) entry() (Entry, error) {
	e := Entry{Path: t.Path, Size: t.Size, Hash: t.OID}
	if t.LFS != nil {
		e.Size, e.Hash = t.LFS.Size, t.LFS.OID
	}
	if err := checkPath(e.Path); err != nil {
		return e, err
	}
	if e.Size < 0 || !isHash(e.Hash) || e.large() != (t.LFS != nil) {
		return e, fmt.Errorf("%w: file %s has an invalid size or hash: %d bytes, hash %q", errProtocol, e.Path, e.Size, printable(e.Hash))
	}
	return e, nil
}

// Files returns the files of a commit. A listing with an entry that is not a valid local path is an
// error.
func (c *Client) Files(ctx context.Context, repo, commit string) ([]Entry, error) {
	files, err := c.files(ctx, repo, commit)
	if err != nil {
		return nil, fmt.Errorf("list the files of %s at %s: %w", repo, commit, err)
	}
	return files, nil
}

func (c *Client) files(ctx context.Context, repo, commit string) ([]Entry, error) {
	if err := errors.Join(CheckRepo(repo), checkRevision(commit)); err != nil {
		return nil, err
	}
	var files []Entry
	seen := map[string]bool{}
	address := c.api(repo, "tree", commit) + "?recursive=true&expand=false"
	for range maxPages {
		var page []treeEntry
		header, err := c.json(ctx, http.MethodGet, address, nil, &page)
		if err != nil {
			return nil, err
		}
		for _, listed := range page {
			if listed.Type != "file" {
				continue
			}
			entry, err := listed.entry()
			if err != nil {
				return nil, err
			}
			if seen[entry.Path] || len(files) == maxEntries {
				return nil, fmt.Errorf("%w: %s is listed twice, or is one of more than %d files", errProtocol, entry.Path, maxEntries)
			}
			seen[entry.Path] = true
			files = append(files, entry)
		}
		if address, err = c.nextPage(header); err != nil || address == "" {
			return files, err
		}
	}
	return nil, fmt.Errorf("%w: the listing has more than %d pages", ErrTooLarge, maxPages)
}

var nextLink = regexp.MustCompile(`<([^<>]+)>\s*;\s*rel="?next"?`)

// nextPage returns the address of the next page of a listing, which must be at the Hub itself.
func (c *Client) nextPage(header http.Header) (string, error) {
	found := nextLink.FindStringSubmatch(strings.Join(header.Values("Link"), ","))
	if found == nil {
		return "", nil
	}
	to, err := url.Parse(found[1])
	if err != nil || !c.ours(to) {
		return "", fmt.Errorf("%w: the next page is at another address, %q", errProtocol, printable(found[1]))
	}
	return to.String(), nil
}

// maxSmallFile is the maximum size of a file for ReadFile, in bytes.
const maxSmallFile = 4 << 20

// ReadFile returns a small file of a repository, bypassing the cache.
func (c *Client) ReadFile(ctx context.Context, repo, revision, path string) ([]byte, error) {
	if err := errors.Join(CheckRepo(repo), checkRevision(revision), checkPath(path)); err != nil {
		return nil, err
	}
	if c.Offline {
		return nil, fmt.Errorf("read %s of %s: %w", path, repo, ErrOffline)
	}
	data, _, err := c.call(ctx, request{method: http.MethodGet, url: c.resolve(repo, revision, path)}, maxSmallFile)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s at %s: %w", path, repo, revision, err)
	}
	return data, nil
}

// resolve returns the address of a file's content.
func (c *Client) resolve(repo, revision, path string) string {
	var segments []string
	if c.Datasets { // addresses of models do not begin with a kind
		segments = append(segments, c.kind())
	}
	segments = append(append(segments, strings.Split(repo, "/")...), "resolve", revision)
	return c.url(append(segments, strings.Split(path, "/")...)...)
}
