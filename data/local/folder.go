package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/psyche-go/psyche/data/manifest"
	"github.com/psyche-go/psyche/data/tokens"
)

// Options says how a folder is read.
type Options = tokens.Options

// Folder is an open folder of token files. Its methods may be called concurrently.
type Folder struct {
	*tokens.Set
	files     []*file
	tokenSize int
	described *description // nil: there is no data.json
}

// file is one open token file.
type file struct {
	*os.File
	path    string
	size    int64
	changed time.Time
}

// Open opens the token files of a folder, or a single token file, and checks their lengths.
// When a data.json describes them, they must be what it says: ErrDescribed.
func Open(dir string, o Options) (*Folder, error) {
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("open data folder %s: %w", dir, err)
	}
	paths, err := tokenFiles(dir)
	if err != nil {
		return nil, err
	}
	described, err := describe(dir)
	if err != nil {
		return nil, fmt.Errorf("open data folder %s: %w", dir, err)
	}
	folder := &Folder{tokenSize: o.TokenSize, described: described}
	var files []tokens.File
	for _, path := range paths {
		opened, err := openFile(path)
		if err != nil {
			return nil, errors.Join(err, folder.Close())
		}
		folder.files = append(folder.files, opened)
		files = append(files, opened)
	}
	if described != nil {
		if err := described.check(folder.files, o.TokenSize); err != nil {
			return nil, errors.Join(fmt.Errorf("open data folder %s: %w", dir, err), folder.Close())
		}
	}
	if folder.Set, err = tokens.New(files, o); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// tokenFiles returns the paths of the token files of a folder in the order of their
// names, or the path itself when it is a file.
func tokenFiles(dir string) ([]string, error) {
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open data folder: %w; make it with: %s", err, command(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("open data folder: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if !entry.IsDir() && tokens.IsTokenFile(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("open data folder %s: %w: none of its files ends in .ds, .bin or .npy", dir, tokens.ErrNoFiles)
	}
	slices.SortFunc(names, tokens.Compare)
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, nil
}

// command makes a folder of tokens that is not there.
func command(dir string) string {
	if filepath.Base(dir) == manifest.HeldOutFolder {
		return fmt.Sprintf("psyche data tokenize --held-out-fraction 0.01 --output %s PATH", filepath.Dir(dir))
	}
	return fmt.Sprintf("psyche data tokenize --output %s PATH", dir)
}

func openFile(path string) (*file, error) {
	// Opening a named pipe would wait for a writer.
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open token file: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open token file %s: not a regular file", path)
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open token file: %w", err)
	}
	info, err := opened.Stat()
	if err == nil {
		var start [tokens.StartSize]byte
		n, _ := opened.ReadAt(start[:], 0)
		err = tokens.CheckStart(start[:n])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open token file %s: %w", path, err), opened.Close())
	}
	return &file{File: opened, path: path, size: info.Size(), changed: info.ModTime()}, nil
}

// Name implements tokens.File.
func (f *file) Name() string { return f.path }

// Size implements tokens.File.
func (f *file) Size() int64 { return f.size }

// ReadAt implements tokens.File.
func (f *file) ReadAt(_ context.Context, buffer []byte, offset int64) error {
	_, err := f.File.ReadAt(buffer, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	info, statErr := f.Stat()
	if statErr != nil {
		return statErr
	}
	if err != nil || info.Size() != f.size || !info.ModTime().Equal(f.changed) {
		return fmt.Errorf("%w: it had %d bytes and has %d", tokens.ErrChanged, f.size, info.Size())
	}
	return nil
}

// Files returns the paths of the token files in the order in which they are read.
func (f *Folder) Files() []string {
	paths := make([]string, len(f.files))
	for i, file := range f.files {
		paths[i] = file.path
	}
	return paths
}

// Close closes the files.
func (f *Folder) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
