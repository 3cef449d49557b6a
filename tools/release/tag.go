package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// errTagged means that the version's tag exists already.
var errTagged = errors.New("tag exists already")

func runTag(ctx context.Context, args []string, out io.Writer) error {
	fl := flag.NewFlagSet("tag", flag.ContinueOnError)
	root := rootFlag(fl)
	if err := fl.Parse(args); err != nil {
		return err
	}
	return tag(ctx, *root, out)
}

// tag adds an annotated tag with the version's entry of CHANGELOG.md to HEAD.
func tag(ctx context.Context, root string, out io.Writer) error {
	if err := checkClean(ctx, root); err != nil {
		return err
	}
	version, err := readVersion(root)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	text, err := releasedEntry(string(changelog), version)
	if err != nil {
		return err
	}
	name := "v" + version
	existing, err := output(ctx, root, nil, "git", "tag", "--list", name)
	if err != nil {
		return err
	}
	if existing != "" {
		return fmt.Errorf("%s: %w; write the next version into %s", name, errTagged, versionFile)
	}
	if _, err := output(ctx, root, nil, "git", "tag", "--annotate", "--cleanup=verbatim", "--message", "Psyche "+version+"\n\n"+text, name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "tagged HEAD with %s\nnext:\n  make release     # build and sign this version\n  git push origin %s\n  then write the next version into %s\n", name, name, versionFile)
	return err
}
