package prepare

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// source is a file to read.
type source struct {
	path    string
	heldOut bool
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
		found = append(found, source{path: file, heldOut: true})
	}
	isNamed := func(info fs.FileInfo) bool {
		return slices.ContainsFunc(named, func(other fs.FileInfo) bool { return os.SameFile(info, other) })
	}
	for _, root := range o.Paths {
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
			found = append(found, source{path: root})
		}
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
		found = append(found, source{path: file, heldOut: o.isHeldOut(filepath.ToSlash(inside))})
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

// readText returns the content of a file and whether it is text: UTF-8 without a NUL.
func readText(file string) (text []byte, ok bool, err error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, false, fmt.Errorf("read text: %w", err)
	}
	defer func() { _ = opened.Close() }() // it was only read
	info, err := opened.Stat()
	if err != nil {
		return nil, false, fmt.Errorf("read text: %w", err)
	}
	if info.Size() > maxTextSize {
		return nil, false, fmt.Errorf("read text %s: %d bytes, at most %d are read; split it", file, info.Size(), maxTextSize)
	}
	text = make([]byte, info.Size())
	if _, err := io.ReadFull(opened, text); err != nil {
		return nil, false, fmt.Errorf("read text %s: %w; was it changed meanwhile?", file, err)
	}
	return text, bytes.IndexByte(text, 0) < 0 && utf8.Valid(text), nil
}
