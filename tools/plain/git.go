package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// everyLine is the range of lines of a file that git does not track yet.
const everyLine = 1 << 30

var (
	skipped    = regexp.MustCompile(`(?:^|/)(?:testdata|vendor|node_modules|\.git|third_party|docs/manual|LICENSE|NOTICE)(?:/|$)`)
	extensions = []string{".go", ".md", ".c", ".h", ".cc", ".cpp", ".cu", ".js", ".html"}
	hunk       = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)
)

// repository is a work tree of git.
type repository struct {
	ctx  context.Context
	root string
}

func openRepository(ctx context.Context) (*repository, error) {
	r := &repository{ctx: ctx, root: "."}
	root, err := r.git("rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r.root = strings.TrimSpace(root)
	return r, nil
}

// git runs git in the work tree and returns its output.
func (r *repository) git(args ...string) (string, error) {
	cmd := exec.CommandContext(r.ctx, "git", args...)
	cmd.Dir = r.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// files returns the files with prose below the paths, or in the whole work tree, sorted.
func (r *repository) files(paths []string) ([]string, error) {
	for _, p := range paths {
		if _, err := os.Stat(filepath.Join(r.root, p)); err != nil {
			return nil, fmt.Errorf("%s is not in the repository: %w", p, err)
		}
	}
	out, err := r.git(append([]string{"ls-files", "-z", "-co", "--exclude-standard", "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, f := range strings.Split(out, "\x00") {
		if slices.Contains(extensions, filepath.Ext(f)) && !skipped.MatchString(f) {
			found = append(found, f)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// read returns the text of a file, or "" if git lists the file but the work tree does not contain
// it.
func (r *repository) read(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.ToValidUTF8(string(text), "?"), err
}

// span is a range of lines, the last one excluded.
type span struct{ from, to int }

// changes maps files to the lines that are new.
type changes map[string][]span

func (c changes) has(path string, number int) bool {
	for _, s := range c[path] {
		if number >= s.from && number < s.to {
			return true
		}
	}
	return false
}

// changed returns the lines that were added since the merge base of HEAD and the given commit, whether
// or not they are committed.
func (r *repository) changed(base string) (changes, error) {
	shared, err := r.git("merge-base", base, "HEAD")
	if err != nil {
		return nil, err
	}
	diff, err := r.git("diff", "-U0", "--no-color", "--no-ext-diff", strings.TrimSpace(shared))
	if err != nil {
		return nil, err
	}
	c := parseDiff(diff)
	untracked, err := r.git("ls-files", "-z", "-o", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	for _, f := range strings.Split(untracked, "\x00") {
		c[f] = []span{{1, everyLine}}
	}
	return c, nil
}

func parseDiff(diff string) changes {
	c := changes{}
	path := ""
	for _, l := range strings.Split(diff, "\n") {
		if name, ok := strings.CutPrefix(l, "+++ b/"); ok {
			path = name
			continue
		}
		m := hunk.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		from, _ := strconv.Atoi(m[1])
		count := 1
		if m[2] != "" {
			count, _ = strconv.Atoi(m[2])
		}
		c[path] = append(c[path], span{from, from + count})
	}
	return c
}

// subjects returns the subjects of the commits that git log lists for args.
func (r *repository) subjects(args ...string) ([]*prose, error) {
	out, err := r.git(append([]string{"log", "--no-merges", "--format=%h %s"}, args...)...)
	if err != nil {
		return nil, err
	}
	var all []*prose
	for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
		if name, subject, ok := strings.Cut(l, " "); ok {
			all = append(all, newProse("commit "+name, kindCommit, []line{{1, subject}}))
		}
	}
	return all, nil
}
