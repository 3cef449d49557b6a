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
)

// source is a file to read.
type source struct {
	path    string
	inside  string // path within its folder, with slashes, or the name of the file
	format  Format
	heldOut bool
	size    int64
	changed time.Time // last
}

// sources returns the files to read in their order: first those that are held out by
// name, then the paths in the order given, folders in the order of names.
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
		found = append(found, o.source(file, filepath.Base(file), info, true))
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
			files, err := o.walk(root, isNamed)
			if err != nil {
				return nil, fmt.Errorf("read text: %w", err)
			}
			found = append(found, files...)
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("read text: %s is neither a file nor a folder", root)
		case !isNamed(info):
			found = append(found, o.source(root, filepath.Base(root), info, false))
		}
	}
	return found, nil
}

// source describes a file.
func (o Options) source(file, inside string, info fs.FileInfo, heldOut bool) source {
	format := o.Format
	if format == FormatAuto {
		switch name := strings.TrimSuffix(strings.ToLower(inside), ".gz"); path.Ext(name) {
		case ".jsonl", ".ndjson":
			format = FormatJSONL
		case ".parquet":
			format = FormatParquet
		default:
			format = FormatText
		}
	}
	return source{path: file, inside: inside, format: format, heldOut: heldOut, size: info.Size(), changed: info.ModTime()}
}

// expand replaces patterns by the files that match, in the order of names. A path that
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
		found = append(found, matches...) // Glob sorts
	}
	return found, nil
}

// walk returns the files of a folder. It does not follow symbolic links in it and
// leaves the output folder out.
func (o Options) walk(root string, isNamed func(fs.FileInfo) bool) ([]source, error) {
	output, outputErr := os.Stat(o.Output)
	var found []source
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
			if outputErr == nil && os.SameFile(info, output) {
				return fs.SkipDir
			}
			return nil
		}
		if !o.included(entry.Name()) || isNamed(info) {
			return nil
		}
		inside, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		next := o.source(file, filepath.ToSlash(inside), info, false)
		next.heldOut = next.format == FormatText && o.isHeldOut(next.inside)
		found = append(found, next)
		return nil
	})
	return found, err
}

func (o Options) included(name string) bool {
	return len(o.Include) == 0 || slices.ContainsFunc(o.Include, func(pattern string) bool {
		matched, _ := path.Match(pattern, name) // patterns were checked
		return matched
	})
}

func (o Options) isHeldOut(inside string) bool {
	hash := sha256.Sum256([]byte(inside))
	return float64(binary.BigEndian.Uint64(hash[:])) < o.HeldOutFraction*math.MaxUint64
}
