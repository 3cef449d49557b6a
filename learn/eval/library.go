package eval

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/data/walk"
)

// errNoData means that the documents of a task were not found.
var errNoData = errors.New("no documents")

// converted is the branch on which the Hub keeps every data set in Parquet format.
const converted = "refs/convert/parquet"

// Library locates data sets.
type Library struct {
	// Folder contains folders of data sets, named as on the Hub (with or without owner), or as the
	// task. It may be empty.
	Folder string
	// Hidden also reads files and folders in Folder for which walk.Hidden reports true.
	Hidden bool
	// Fetch downloads the matching files of a data set on the Hub and returns their folder. Nil:
	// the Hub is not used.
	Fetch func(ctx context.Context, repo, revision string, match func(path string) bool) (dir string, err error)
}

// find returns the files of a split.
func (l Library) find(ctx context.Context, t Task, split string) ([]string, error) {
	if l.Folder != "" {
		var met walk.Counts
		for _, name := range []string{t.Name, t.Repo, path.Base(t.Repo)} {
			dir := filepath.Join(l.Folder, filepath.FromSlash(name))
			found, counts, err := l.listed(dir, t.Config, split)
			if err != nil || len(found) > 0 {
				return found, err
			}
			met.Add(counts)
		}
		return nil, fmt.Errorf("%w: split %s in %s: want files such as %s, with %s%s", errNoData, split, l.Folder,
			path.Join(t.Repo, t.Config, split+".jsonl"), strings.Join(t.columns, ", "), met)
	}
	if l.Fetch == nil {
		return nil, fmt.Errorf("%w: neither a folder nor the Hub is configured", errNoData)
	}
	for _, revision := range []string{"", converted} {
		dir, err := l.Fetch(ctx, t.Repo, revision, func(path string) bool { return belongs(path, t.Config, split) })
		if err != nil {
			return nil, err
		}
		found, _, err := l.listed(dir, t.Config, split)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, fmt.Errorf("%w: data set %s on the Hub has no Parquet or JSON lines files for split %s", errNoData, t.Repo, split)
}

// listed returns the files of a folder that belong to a split, sorted by path.
func (l Library) listed(dir, config, split string) (paths []string, met walk.Counts, err error) {
	found, err := walk.Files(dir, walk.Options{Hidden: l.Hidden})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, found.Counts, nil
	}
	for _, file := range found.Files {
		if belongs(file.Inside, config, split) {
			paths = append(paths, file.Path)
		}
	}
	slices.Sort(paths)
	return paths, found.Counts, err
}

// belongs reports whether a file belongs to a part of a data set, by the Hub's layouts:
// part/split-00000-of-00001.parquet, part/split/0000.parquet, split.jsonl.
func belongs(file, config, split string) bool {
	extension := path.Ext(file)
	if extension != ".parquet" && extension != ".jsonl" {
		return false
	}
	folders := strings.Split(path.Dir(file), "/")
	if config != "" && !slices.Contains(folders, config) {
		return false
	}
	name, _, _ := strings.Cut(strings.TrimSuffix(path.Base(file), extension), "-")
	return name == split || folders[len(folders)-1] == split
}
