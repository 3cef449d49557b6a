package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/data/hubset"
	"github.com/psyche-go/psyche/files/data/prepare"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// hubClient returns a client of the Hub, configured by the environment.
func hubClient(datasets bool) (*hub.Client, error) {
	o, err := hub.FromEnvironment(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	o.Datasets = datasets
	return hub.New(o)
}

// localPaths downloads the Hub data sets among paths, and returns the local paths of all data.
func (c dataTokenize) localPaths(ctx context.Context, to console) ([]string, error) {
	var here []string
	for _, path := range c.Paths {
		if !strings.HasPrefix(path, hubset.Scheme) {
			here = append(here, path)
			continue
		}
		address, err := hubset.Parse(path)
		if err != nil {
			return nil, err
		}
		client, err := hubClient(true)
		if err != nil {
			return nil, err
		}
		files, commit, err := hubset.Download(ctx, client, address, c.Split, prepare.HoldsRows)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(to.err, "%s: %d files of commit %s\n", path, len(files), commit)
		here = append(here, files...)
	}
	return here, nil
}

// loadTokenizer returns the byte-level tokenizer, or the tokenizer in a file, a folder, or a Hub
// repository.
func loadTokenizer(ctx context.Context, name string) (*tokenizer.Tokenizer, error) {
	if name == "bytes" {
		return tokenizer.Bytes(), nil
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return tokenizer.LoadDir(name)
	case err == nil || strings.HasSuffix(name, ".json"):
		return tokenizer.Load(name)
	}
	repo, revision, _ := strings.Cut(strings.TrimPrefix(name, "hf://"), "@")
	if strings.Count(repo, "/") != 1 || hub.CheckRepo(repo) != nil {
		return nil, fmt.Errorf("tokenizer %s: no such file or folder, and not OWNER/NAME of a Hugging Face Hub repository", name)
	}
	client, err := hubClient(false)
	if err != nil {
		return nil, err
	}
	// A tokenizer.json is used alone, and other files next to it are ignored.
	for _, names := range [][]string{{tokenizer.JSONFile}, {tokenizer.PieceFile, tokenizer.ConfigFile, tokenizer.AddedFile}} {
		got, err := client.Snapshot(ctx, repo, hub.SnapshotOptions{Revision: revision, Match: func(path string) bool { return slices.Contains(names, path) }})
		if err != nil {
			return nil, fmt.Errorf("tokenizer %s: no such file or folder on this machine; the Hub reports: %w", name, err)
		}
		if len(got.Files) > 0 {
			return tokenizer.LoadDir(got.Dir)
		}
	}
	return nil, fmt.Errorf("tokenizer %s: %w in the repository; choose another repository with the same tokenizer", name, tokenizer.ErrNone)
}
