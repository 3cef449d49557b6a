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

	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// Options are the settings for reading a folder.
type Options = tokens.Options

// Folder is an open folder of token files. Its methods may be called concurrently.
type Folder struct {
	*tokens.Set
	files     []*file
	tokenSize int
	described *description // nil: no data.json
}

// file is one open token file.
type file struct {
	*os.File
	path    string
	size    int64
	changed time.Time
	start   []byte // its first bytes, until they are checked
	said    bool   // another file, or its header, states the size of its tokens
}

// Open opens the token files of a folder, or a single token file, and checks their lengths. If a
// file in the folder describes them, they must match it. Options.TokenSize 0 means the size in that
// description; without a description, tokens.AssumeSize decides.
func Open(dir string, o Options) (*Folder, error) {
	known := o
	if o.TokenSize == 0 {
		known.TokenSize = 2
	}
	if err := known.Check(); err != nil {
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
	folder := &Folder{described: described}
	if err := folder.open(dir, paths, o); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// open opens the files, and determines or compares the size of their tokens.
func (f *Folder) open(dir string, paths []string, o Options) error {
	for _, path := range paths {
		opened, err := openFile(path)
		if err != nil {
			return err
		}
		f.files = append(f.files, opened)
	}
	err := f.resolveSize(&o)
	if err == nil && f.described != nil {
		err = f.described.check(f.files, o.TokenSize)
	}
	if err != nil {
		return fmt.Errorf("open data folder %s: %w", dir, err)
	}
	f.tokenSize = o.TokenSize
	files := make([]tokens.File, len(f.files))
	for i, file := range f.files {
		of := o
		if file.said {
			of.Claim = tokens.OfFiles
		}
		if files[i], err = tokens.Begin(file, file.start, of); err != nil {
			return err
		}
		file.start = nil
	}
	f.Set, err = tokens.New(files, o)
	return err
}

// TokenSize returns the size of a token in bytes.
func (f *Folder) TokenSize() int { return f.tokenSize }

// tokenFiles returns the paths of the token files of a folder in the order of their names, or the
// path itself if it is a file.
func tokenFiles(dir string) ([]string, error) {
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open data folder: %w; make the folder with: %s", err, command(dir))
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
		return nil, fmt.Errorf("open data folder %s: %w: no file ends in .ds, .bin or .npy", dir, tokens.ErrNoFiles)
	}
	slices.SortFunc(names, tokens.Compare)
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, nil
}

// command returns the command that creates a missing folder of tokens.
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
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open token file %s: %w", path, err), opened.Close())
	}
	f := &file{File: opened, path: path, size: info.Size(), changed: info.ModTime(), start: make([]byte, min(tokens.StartSize, info.Size()))}
	if err := f.ReadAt(context.Background(), f.start, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("open token file %s: %w", path, err), opened.Close())
	}
	return f, nil
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
		return fmt.Errorf("%w: size was %d bytes, now %d", tokens.ErrChanged, f.size, info.Size())
	}
	return nil
}

// Files returns the paths of the token files in reading order.
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
