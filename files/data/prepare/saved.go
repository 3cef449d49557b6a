package prepare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Files in which Python's datasets describes a folder that save_to_disk wrote.
const (
	savedState  = "state.json"        // of a Dataset
	savedSplits = "dataset_dict.json" // of a DatasetDict: folders of Datasets
)

// maxSaved limits these files, in bytes.
const maxSaved = 16 << 20

// saved is the description of a folder by save_to_disk. It is empty for other folders.
type saved struct {
	files  []string // files of a Dataset
	splits []string // splits of a DatasetDict
}

// readSaved reads the description of a folder.
func readSaved(folder string) (s saved, err error) {
	var dataset struct {
		Files []struct {
			Name string `json:"filename"`
		} `json:"_data_files"`
		Indices []json.RawMessage `json:"_indices_files"`
	}
	var splits struct {
		Splits []string `json:"splits"`
	}
	for name, into := range map[string]any{savedState: &dataset, savedSplits: &splits} {
		if err := readDescription(filepath.Join(folder, name), into); err != nil {
			return saved{}, err
		}
	}
	if len(dataset.Indices) > 0 {
		return saved{}, fmt.Errorf("%s: the saved data set has a separate order (indices); save it again after flatten_indices()", filepath.Join(folder, savedState))
	}
	for _, file := range dataset.Files {
		if file.Name != filepath.Base(file.Name) {
			return saved{}, fmt.Errorf("%s lists %q, which is not a file of the folder", filepath.Join(folder, savedState), file.Name)
		}
		if _, err := os.Stat(filepath.Join(folder, file.Name)); err != nil {
			return saved{}, fmt.Errorf("%s lists a missing file: %w", filepath.Join(folder, savedState), err)
		}
		s.files = append(s.files, file.Name)
	}
	s.splits = splits.Splits
	return s, nil
}

// readDescription reads a JSON object. A file that is missing or has different content sets
// nothing: it is a normal text.
func readDescription(name string, into any) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	raw, err := io.ReadAll(io.LimitReader(file, maxSaved))
	if err != nil {
		return err
	}
	_ = json.Unmarshal(raw, into)
	return nil
}

// split returns the folder of one split of a DatasetDict.
func (s saved) split(folder, name string) (string, error) {
	name = cmp.Or(name, defaultSplit)
	if !slices.Contains(s.splits, name) || !filepath.IsLocal(name) {
		return "", fmt.Errorf("%s has splits %q, not %q; select a split with --split", folder, s.splits, name)
	}
	return filepath.Join(folder, name), nil
}
