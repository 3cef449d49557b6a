package prepare

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/walk"
)

// source is a file to read.
type source struct {
	path     string
	inside   string // path within its folder, with slashes, or the name of the file
	format   Format
	heldOut  bool
	size     int64
	changed  time.Time // modification time
	inFolder bool      // found in a folder, not named by the user
	sole     int64     // number of its only held-out text; 0: the hashes decide
}

// sources returns the files to read in their order: first the files that are held out by name, then
// the paths in the given order, with folders in the natural order of names.
func (o Options) sources() (found []source, met walk.Counts, err error) {
	var named []fs.FileInfo
	for _, file := range o.HeldOut {
		info, err := os.Stat(file)
		if err != nil {
			return nil, met, fmt.Errorf("read held-out text: %w", err)
		}
		if !info.Mode().IsRegular() {
			return nil, met, fmt.Errorf("read held-out text: %s is not a file", file)
		}
		named = append(named, info)
		next, err := o.source(file, filepath.Base(file), info, true)
		if err != nil {
			return nil, met, err
		}
		found = append(found, next)
	}
	isNamed := func(info fs.FileInfo) bool {
		return slices.ContainsFunc(named, func(other fs.FileInfo) bool { return os.SameFile(info, other) })
	}
	roots, err := expand(o.Paths)
	if err != nil {
		return nil, met, err
	}
	for _, root := range roots {
		files, counts, err := o.under(root, isNamed)
		if err != nil {
			return nil, met, err
		}
		found = append(found, files...)
		met.Add(counts)
	}
	return found, met, nil
}

// under returns the files to read for one path.
func (o Options) under(root string, isNamed func(fs.FileInfo) bool) ([]source, walk.Counts, error) {
	var none walk.Counts
	info, err := os.Stat(root)
	switch {
	case err != nil:
		return nil, none, fmt.Errorf("read text: %w", err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, none, fmt.Errorf("read text: %s is neither a file nor a folder", root)
	case !info.IsDir() && isNamed(info):
		return nil, none, nil
	case !info.IsDir():
		next, err := o.source(root, filepath.Base(root), info, false)
		return []source{next}, none, err
	case holdsTokens(root):
		return nil, none, fmt.Errorf("read text %s: the folder has tokens, not text (it has a %s); name the folder with the text", root, manifest.Name)
	}
	described, err := readSaved(root)
	if err == nil && len(described.splits) > 0 {
		root, err = described.split(root, o.Split)
	}
	if err != nil {
		return nil, none, fmt.Errorf("read text: %w", err)
	}
	files, counts, err := o.walk(root, isNamed)
	if err != nil {
		return nil, none, fmt.Errorf("read text: %w", err)
	}
	return files, counts, nil
}

// holdsTokens reports whether a run has written a folder, or is writing it. An invalid data.json is
// a normal text.
func holdsTokens(folder string) bool {
	_, found, err := manifest.Read(folder)
	return err == nil && found || filepath.Base(folder) == workName
}

// source describes a file.
func (o Options) source(file, inside string, info fs.FileInfo, heldOut bool) (source, error) {
	format, err := o.formatOf(file, inside)
	return source{path: file, inside: inside, format: format, heldOut: heldOut, size: info.Size(), changed: info.ModTime()}, err
}

// expand replaces patterns by the matching files, in the natural order of names. An existing path
// is not treated as a pattern.
func expand(paths []string) (found []string, err error) {
	for _, name := range paths {
		if _, err := os.Stat(name); err == nil || !strings.ContainsAny(name, "*?[") {
			found = append(found, name)
			continue
		}
		matches, err := filepath.Glob(name)
		if err != nil {
			return nil, fmt.Errorf("read text: pattern %q: %w", name, err)
		}
		if len(matches) == 0 {
			return nil, fmt.Errorf("read text: no file matches %q: %w", name, fs.ErrNotExist)
		}
		slices.SortFunc(matches, tokens.Compare)
		found = append(found, matches...)
	}
	return found, nil
}

// walk returns the files of a folder, except in the output folder and in folders of tokens.
func (o Options) walk(root string, isNamed func(fs.FileInfo) bool) ([]source, walk.Counts, error) {
	output, outputErr := os.Stat(o.Output)
	folders := map[string]saved{}
	found, err := walk.Files(root, walk.Options{Hidden: o.Hidden, Enter: func(folder string, info fs.FileInfo) (enter bool, err error) {
		if outputErr == nil && os.SameFile(info, output) || folder != root && holdsTokens(folder) {
			return false, nil
		}
		folders[folder], err = readSaved(folder)
		return err == nil, err
	}})
	if err != nil {
		return nil, found.Counts, err
	}
	var sources []source
	for _, file := range found.Files {
		name := filepath.Base(file.Path)
		if of := folders[filepath.Dir(file.Path)]; len(of.files) > 0 && !slices.Contains(of.files, name) {
			continue // it describes the data set
		}
		if !o.included(name) || isNamed(file.Info) {
			continue
		}
		next, err := o.source(file.Path, file.Inside, file.Info, false)
		if err != nil {
			return nil, found.Counts, err
		}
		next.inFolder = true
		next.heldOut = next.format == formatText && o.isHeldOut(next.inside)
		sources = append(sources, next)
	}
	slices.SortFunc(sources, func(a, b source) int { return tokens.Compare(a.inside, b.inside) })
	return sources, found.Counts, nil
}

func (o Options) included(name string) bool {
	return len(o.Include) == 0 || slices.ContainsFunc(o.Include, func(pattern string) bool {
		matched, _ := path.Match(pattern, name) // patterns were checked
		return matched
	})
}

func (o Options) isHeldOut(inside string) bool {
	return float64(lot(inside)) < o.HeldOutFraction*math.MaxUint64
}

// lot returns the number that decides whether a text is held out: texts with lower numbers are held
// out first.
func lot(inside string) uint64 {
	hash := sha256.Sum256([]byte(inside))
	return binary.BigEndian.Uint64(hash[:])
}
