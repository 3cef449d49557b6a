// Package hubset selects and downloads the files of a data set of the Hugging Face Hub, into the
// cache that Python's libraries also use.
//
//	hf://datasets/OWNER/NAME              the files of one split
//	hf://datasets/OWNER/NAME@REVISION     of a branch, tag or commit
//	hf://datasets/OWNER/NAME/PATTERN      files, folders, or a pattern of files
//
// The Hub's own file system (HfFileSystem) uses the same addresses. Without a pattern, the files
// are chosen by their names, by the rules of Python's datasets: see choose.
package hubset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/hub"
)

// Scheme is the start of a data set's address.
const Scheme = "hf://datasets/"

// Address is a data set, or a part of it.
type Address struct {
	Repo     string // OWNER/NAME
	Revision string // empty: the default branch
	Pattern  string // of paths; empty: Choose decides
}

// Parse reads an address.
func Parse(text string) (Address, error) {
	rest, found := strings.CutPrefix(text, Scheme)
	owner, rest, slash := strings.Cut(rest, "/")
	name, pattern, _ := strings.Cut(rest, "/")
	name, revision, at := strings.Cut(name, "@")
	a := Address{Repo: owner + "/" + name, Revision: revision, Pattern: strings.TrimSuffix(pattern, "/")}
	if !found || !slash || at && revision == "" {
		return Address{}, fmt.Errorf("%s: want %sOWNER/NAME, optionally followed by @REVISION or a path", text, Scheme)
	}
	if err := hub.CheckRepo(a.Repo); err != nil {
		return Address{}, fmt.Errorf("%s: %w", text, err)
	}
	if _, err := path.Match(a.Pattern, ""); err != nil {
		return Address{}, fmt.Errorf("%s: the pattern: %w", text, err)
	}
	a.Revision = strings.ReplaceAll(a.Revision, "%2F", "/") // refs/convert/parquet
	return a, nil
}

// Download downloads the files of an address. It returns their local paths, in the natural order of
// the paths in the repository, and their commit. client must be a client for data sets. readable
// reports by the name of a file whether it contains rows.
func Download(ctx context.Context, client *hub.Client, a Address, split string, readable func(name string) bool) (files []string, commit string, err error) {
	var all []string
	listing, err := client.Snapshot(ctx, a.Repo, hub.SnapshotOptions{Revision: a.Revision, Match: func(path string) bool {
		all = append(all, path)
		return false
	}})
	if err != nil {
		return nil, "", err
	}
	slices.Sort(all) // Match may be called twice
	chosen, err := a.choose(slices.Compact(all), split, readable)
	if err != nil {
		return nil, "", fmt.Errorf("%s%s: %w", Scheme, a.Repo, err)
	}
	got, err := client.Snapshot(ctx, a.Repo, hub.SnapshotOptions{Revision: listing.Commit, Match: func(path string) bool { return slices.Contains(chosen, path) }})
	if err != nil {
		return nil, "", err
	}
	for _, name := range chosen {
		files = append(files, filepath.Join(got.Dir, filepath.FromSlash(name)))
	}
	return files, got.Commit, nil
}

func (a Address) choose(all []string, split string, readable func(string) bool) ([]string, error) {
	if a.Pattern == "" {
		return choose(all, split, readable)
	}
	var chosen []string
	for _, name := range all {
		matched, _ := path.Match(a.Pattern, name) // checked by Parse
		if matched || strings.HasPrefix(name, a.Pattern+"/") && readable(name) {
			chosen = append(chosen, name)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no file with a supported format matches %q", a.Pattern)
	}
	slices.SortFunc(chosen, tokens.Compare)
	return chosen, nil
}

// splits contains the splits in file names, and the words for each.
var splits = []struct {
	name  string
	words []string
}{
	{"train", []string{"train", "training"}},
	{"validation", []string{"validation", "valid", "dev", "val"}},
	{"test", []string{"test", "testing", "eval", "evaluation"}},
}

// choose returns the files of a split among the paths of a repository. A file belongs to a split if
// a word of its path names the split; folders take precedence over the file name. The words are
// train, training; validation, valid, dev, val; test, testing, eval, evaluation. A file of a split
// with another name must be named NAME-00000-of-00005.*. If no file belongs to any split, all files
// are train. If the files are in several folders (mostly several configurations), choose returns an
// error that names the folders.
func choose(all []string, split string, readable func(name string) bool) ([]string, error) {
	of := map[string][]string{}
	for _, name := range all {
		if readable(name) && !hidden(name) {
			found := splitOf(name)
			of[found] = append(of[found], name)
		}
	}
	if len(of) == 1 && len(of[""]) > 0 {
		of = map[string][]string{"train": of[""]}
	}
	delete(of, "")
	chosen := of[split]
	if len(chosen) == 0 {
		names := slices.Sorted(maps.Keys(of))
		if len(names) == 0 {
			return nil, errors.New("no file has a supported format; name files as in hf://datasets/OWNER/NAME/data/*.txt")
		}
		return nil, fmt.Errorf("no files of split %q, only of %q; select a split with --split", split, names)
	}
	var folders []string
	for _, name := range chosen {
		folders = append(folders, configuration(name))
	}
	slices.Sort(folders)
	if folders = slices.Compact(folders); len(folders) > 1 {
		return nil, fmt.Errorf("the files are in folders %q, which may be different configurations; select one as in hf://datasets/OWNER/NAME/%s/*train*", folders, folders[len(folders)-1])
	}
	slices.SortFunc(chosen, tokens.Compare)
	return chosen, nil
}

// hidden reports whether a part of a path begins with a dot or an underscore. Python's datasets
// ignores such paths.
func hidden(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasPrefix(part, ".") || strings.HasPrefix(part, "__") })
}

// splitOf returns the split in a path; empty: none.
func splitOf(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		stem := part
		if i == len(parts)-1 {
			stem, _, _ = strings.Cut(part, ".")
			if shard, found := shardOf(stem); found {
				stem = shard
			}
		}
		words := strings.FieldsFunc(stem, func(r rune) bool { return strings.ContainsRune("-_ .", r) || r >= '0' && r <= '9' })
		for _, split := range splits {
			if slices.ContainsFunc(words, func(word string) bool { return slices.Contains(split.words, word) }) {
				return split.name
			}
		}
	}
	stem, _, _ := strings.Cut(path.Base(name), ".")
	shard, _ := shardOf(stem)
	return shard
}

// shardOf returns the split of a file named SPLIT-00000-of-00005. stem is the name without its ending.
func shardOf(stem string) (string, bool) {
	words := strings.Split(stem, "-")
	n := len(words)
	if n < 4 || words[n-2] != "of" || len(words[n-1]) != 5 || len(words[n-3]) != 5 || strings.Trim(words[n-1]+words[n-3], "0123456789") != "" {
		return "", false
	}
	return strings.Join(words[:n-3], "-"), true
}

// configuration returns the folder of a file, without a folder that names a split.
func configuration(name string) string {
	folder := path.Dir(name)
	if splitOf(path.Base(folder)+"/x") != "" {
		folder = path.Dir(folder)
	}
	return folder
}
