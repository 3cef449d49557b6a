package hub

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// DefaultRevision is the default branch.
const DefaultRevision = "main"

const (
	maxRepoLength     = 96
	maxRevisionLength = 255
	maxPathLength     = 1024
)

var (
	repoPattern     = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	revisionPattern = regexp.MustCompile(`^[A-Za-z0-9._/+@-]+$`)
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256Pattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// CheckRepo returns an error unless repo is a repository name: owner/name, or the name without
// owner of an old model.
func CheckRepo(repo string) error {
	switch {
	case len(repo) > maxRepoLength, !repoPattern.MatchString(repo), strings.Contains(repo, "--"),
		strings.Contains(repo, ".."), strings.HasSuffix(repo, ".git"), strings.HasSuffix(repo, "."):
		return fmt.Errorf("%w: repository %q: want owner/name", ErrInvalidName, repo)
	}
	return nil
}

// checkRevision accepts branches, tags, commits and refs/…, except names that would leave the
// folder of references in the cache.
func checkRevision(revision string) error {
	if len(revision) > maxRevisionLength || !revisionPattern.MatchString(revision) || !filepath.IsLocal(revision) ||
		strings.Contains(revision, "//") || strings.HasSuffix(revision, "/") || strings.Contains(revision, "..") {
		return fmt.Errorf("%w: revision %q", ErrInvalidName, revision)
	}
	return nil
}

// checkPath accepts the path of a file in a repository if the path, joined to a folder, stays
// inside that folder on every system.
func checkPath(path string) error {
	bad := len(path) > maxPathLength || path == "" || !filepath.IsLocal(filepath.FromSlash(path)) ||
		strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == ':' || r == 0xfffd })
	for segment := range strings.SplitSeq(path, "/") {
		bad = bad || segment == "" || segment == "." || segment == ".."
	}
	if bad {
		return fmt.Errorf("%w: file %q of the repository", ErrInvalidName, path)
	}
	return nil
}

// isCommit reports whether a revision permanently names one commit.
func isCommit(revision string) bool { return commitPattern.MatchString(revision) }

// isHash reports whether a blob's name is a hash with which content can be verified.
func isHash(name string) bool {
	return commitPattern.MatchString(name) || sha256Pattern.MatchString(name)
}
