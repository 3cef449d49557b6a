package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// versionFile is the only file that sets the version.
const versionFile = "cmd/internal/buildinfo/VERSION"

var (
	errDirty   = errors.New("uncommitted changes")
	errVersion = errors.New("not a semantic version")
)

// source is the commit from which a release is built.
type source struct {
	root    string
	commit  string
	time    time.Time // of the commit
	version string    // with the suffix -dev unless the commit has the version's tag
	tag     string    // empty unless the commit has the version's tag
}

// readSource returns the repository's current commit. It returns errDirty if the files differ from
// the commit.
func readSource(ctx context.Context, root string) (source, error) {
	if err := checkClean(ctx, root); err != nil {
		return source{}, err
	}
	version, err := readVersion(root)
	if err != nil {
		return source{}, err
	}
	line, err := output(ctx, root, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return source{}, err
	}
	commit, seconds, _ := strings.Cut(line, " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("git log: time of the commit: %w", err)
	}
	s := source{root: root, commit: commit, time: time.Unix(n, 0).UTC(), version: version + "-dev"}
	tags, err := output(ctx, root, nil, "git", "tag", "--points-at", "HEAD", "--list", "v"+version)
	if err != nil {
		return source{}, err
	}
	if tags != "" {
		s.version, s.tag = version, "v"+version
	}
	return s, nil
}

func checkClean(ctx context.Context, root string) error {
	changes, err := output(ctx, root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("%s: %w; commit or remove them first:\n%s", root, errDirty, changes)
	}
	return nil
}

// readVersion returns the version of the next release.
func readVersion(root string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, versionFile))
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(data))
	if v := "v" + version; semver.Canonical(v) != v {
		return "", fmt.Errorf("%s: %q: %w; write a version such as 0.1.0", versionFile, version, errVersion)
	}
	return version, nil
}

// output runs a program in a folder with more environment variables. It returns the trimmed standard
// output; an error contains the standard error.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
