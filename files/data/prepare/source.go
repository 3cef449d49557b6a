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
)

// source is a file to read.
type source struct {
	path     string
	inside   string // path within its folder, with slashes, or the name of the file
	format   Format
	heldOut  bool
	size     int64
	changed  time.Time // last
	inFolder bool      // found in a folder, not named
	sole     int64     // number of its one text that is held out; 0: the hashes decide
}

// sources returns the files to read in their order: first those that are held out by
// name, then the paths in the order given, folders in the natural order of names.
func (o Options) sources() ([]source, error) {
	var found []source
	var named []fs.FileInfo
	for _, file := range o.HeldOut {
		info, err := os.Stat(file)
		if err != nil {
			return nil, fmt.Errorf("read held-out text: %w", err)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("read held-out text: %s is not a file", file)
		}
		named = append(named, info)
		next, err := o.source(file, filepath.Base(file), info, true)
		if err != nil {
			return nil, err
		}
		found = append(found, next)
	}
	isNamed := func(info fs.FileInfo) bool {
		return slices.ContainsFunc(named, func(other fs.FileInfo) bool { return os.SameFile(info, other) })
	}
	roots, err := expand(o.Paths)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		info, err := os.Stat(root)
		if err != nil {
			return nil, fmt.Errorf("read text: %w", err)
		}
		switch {
		case info.IsDir():
			if holdsTokens(root) {
				return nil, fmt.Errorf("read text: %s holds tokens, not text (it has a %s); name the folder of the text", root, manifest.Name)
			}
			described, err := readSaved(root)
			if err == nil && len(described.splits) > 0 {
				root, err = described.split(root, o.Split)
			}
			if err != nil {
				return nil, fmt.Errorf("read text: %w", err)
			}
			files, err := o.walk(root, isNamed)
			if err != nil {
				return nil, fmt.Errorf("read text: %w", err)
			}
			found = append(found, files...)
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("read text: %s is neither a file nor a folder", root)
		case !isNamed(info):
			next, err := o.source(root, filepath.Base(root), info, false)
			if err != nil {
				return nil, err
			}
			found = append(found, next)
		}
	}
	return found, nil
}

// holdsTokens reports whether a run has written a folder, or is writing it. A data.json
// that cannot be read is a text like any other.
func holdsTokens(folder string) bool {
	_, found, err := manifest.Read(folder)
	return err == nil && found || filepath.Base(folder) == workName
}

// source describes a file.
func (o Options) source(file, inside string, info fs.FileInfo, heldOut bool) (source, error) {
	format, err := o.formatOf(file, inside)
	return source{path: file, inside: inside, format: format, heldOut: heldOut, size: info.Size(), changed: info.ModTime()}, err
}

// expand replaces patterns by the files that match, in the natural order of names. A path that
// is there is no pattern.
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

// walk returns the files of a folder. It does not follow symbolic links in it and leaves
// out the output folder, and others that hold tokens.
func (o Options) walk(root string, isNamed func(fs.FileInfo) bool) ([]source, error) {
	output, outputErr := os.Stat(o.Output)
	var found []source
	folders := map[string]saved{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() && !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if outputErr == nil && os.SameFile(info, output) || holdsTokens(file) {
				return fs.SkipDir
			}
			folder, err := readSaved(file)
			if err != nil {
				return err
			}
			folders[file] = folder
			return nil
		}
		if of := folders[filepath.Dir(file)]; len(of.files) > 0 && !slices.Contains(of.files, entry.Name()) {
			return nil // it describes the data set
		}
		if !o.included(entry.Name()) || isNamed(info) {
			return nil
		}
		inside, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		next, err := o.source(file, filepath.ToSlash(inside), info, false)
		if err != nil {
			return err
		}
		next.inFolder = true
		next.heldOut = next.format == FormatText && o.isHeldOut(next.inside)
		found = append(found, next)
		return nil
	})
	slices.SortFunc(found, func(a, b source) int { return tokens.Compare(a.inside, b.inside) })
	return found, err
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

// lot is the number that decides whether a text is held out: the lower, the sooner.
func lot(inside string) uint64 {
	hash := sha256.Sum256([]byte(inside))
	return binary.BigEndian.Uint64(hash[:])
}
