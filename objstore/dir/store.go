package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/psyche-go/psyche/objstore"
)

// partial begins the names of files that Put has not finished. List leaves them out.
const partial = ".partial-"

// Store is an open folder. It implements objstore.Store.
type Store struct {
	root *os.Root
	mu   sync.Mutex // held while a Put checks its condition and moves the file
}

// Open opens a folder, which must exist.
func Open(folder string) (*Store, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open object folder: %w", err)
	}
	return &Store{root: root}, nil
}

// Close implements objstore.Store.
func (s *Store) Close() error { return s.root.Close() }

// describe makes an Object of a file.
func describe(name string, info fs.FileInfo) objstore.Object {
	return objstore.Object{
		Name: name, Size: info.Size(),
		Generation: fmt.Sprintf("%x-%x-%x", info.ModTime().UnixNano(), info.Size(), inode(info)),
	}
}

// List implements objstore.Store.
func (s *Store) List(ctx context.Context, prefix string, limit int) ([]objstore.Object, error) {
	// Only what the prefix's folder holds needs to be walked.
	start := "."
	if folder := path.Dir(prefix + "x"); folder != "." {
		if err := objstore.CheckName(folder); err != nil {
			return nil, err
		}
		start = folder
	}
	var objects []objstore.Object
	err := fs.WalkDir(s.root.FS(), start, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // no such folder, or removed since
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.Type().IsRegular() || !strings.HasPrefix(name, prefix) || strings.HasPrefix(entry.Name(), partial):
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(objects) == limit {
			return fmt.Errorf("%w: more than %d", objstore.ErrTooMany, limit)
		}
		objects = append(objects, describe(name, info))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list objects %q: %w", prefix, err)
	}
	slices.SortFunc(objects, func(a, b objstore.Object) int { return strings.Compare(a.Name, b.Name) })
	return objects, nil
}

// Stat implements objstore.Store.
func (s *Store) Stat(ctx context.Context, name string) (objstore.Object, error) {
	if err := errors.Join(ctx.Err(), objstore.CheckName(name)); err != nil {
		return objstore.Object{}, err
	}
	info, err := s.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return objstore.Object{}, fmt.Errorf("%w: %s", objstore.ErrNotFound, name)
	}
	if err != nil {
		return objstore.Object{}, fmt.Errorf("look at object: %w", err)
	}
	return describe(name, info), nil
}

// open opens the file of a version.
func (s *Store) open(ctx context.Context, o objstore.Object) (*os.File, error) {
	if err := errors.Join(ctx.Err(), objstore.CheckName(o.Name)); err != nil {
		return nil, err
	}
	file, err := s.root.Open(o.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", objstore.ErrChanged, o.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("open object: %w", err)
	}
	if err := check(file, o); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// check reports whether an open file is still a version.
func check(file *os.File, o objstore.Object) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("open object: %w", err)
	}
	if describe(o.Name, info) != o {
		return fmt.Errorf("%w: %s", objstore.ErrChanged, o.Name)
	}
	return nil
}

// ReadAt implements objstore.Store.
func (s *Store) ReadAt(ctx context.Context, o objstore.Object, buffer []byte, offset int64) error {
	if err := objstore.CheckRange(o, buffer, offset); err != nil {
		return err
	}
	file, err := s.open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.ReadAt(buffer, offset); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read object %s: %w", o.Name, err)
	}
	return check(file, o) // a file that was written to under the read
}

// Open implements objstore.Store.
func (s *Store) Open(ctx context.Context, o objstore.Object) (io.ReadCloser, error) {
	file, err := s.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, file: file, object: o, left: o.Size}, nil
}

// reader reads a version to its end.
type reader struct {
	ctx    context.Context
	file   *os.File
	object objstore.Object
	left   int64
}

// Read implements io.Reader.
func (r *reader) Read(buffer []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if r.left == 0 {
		if err := check(r.file, r.object); err != nil {
			return 0, err
		}
		return 0, io.EOF
	}
	n, err := r.file.Read(buffer[:min(int64(len(buffer)), r.left)])
	r.left -= int64(n)
	if errors.Is(err, io.EOF) {
		return n, fmt.Errorf("%w: %s", objstore.ErrChanged, r.object.Name)
	}
	return n, err
}

// Close implements io.Closer.
func (r *reader) Close() error { return r.file.Close() }

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, content io.Reader, size int64, when objstore.Condition) (objstore.Object, error) {
	if err := objstore.CheckName(name); err != nil {
		return objstore.Object{}, err
	}
	if strings.HasPrefix(path.Base(name), partial) {
		return objstore.Object{}, fmt.Errorf("%w: %q is kept for unfinished files", objstore.ErrName, partial)
	}
	if err := s.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return objstore.Object{}, fmt.Errorf("write object %s: %w", name, err)
	}
	temporary := path.Join(path.Dir(name), partial+rand.Text())
	err := s.write(ctx, temporary, content, size)
	if err == nil {
		err = s.move(ctx, temporary, name, when)
	}
	if err != nil {
		if gone := s.root.Remove(temporary); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return objstore.Object{}, fmt.Errorf("write object %s: %w", name, err)
	}
	return s.Stat(ctx, name)
}

// write makes a complete file on the disk.
func (s *Store) write(ctx context.Context, name string, content io.Reader, size int64) error {
	file, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	// One byte more shows whether there is more than was announced.
	n, err := io.Copy(file, io.LimitReader(untilDone{ctx, content}, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("content has %d bytes or more, announced were %d", n, size)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// untilDone reads until ctx is done.
type untilDone struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(buffer []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(buffer)
}

// move puts a file to its place if the condition holds.
func (s *Store) move(ctx context.Context, from, to string, when objstore.Condition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation, conditional := when.Generation()
	if conditional && generation == "" {
		// A link fails when the name is taken, also by another process.
		if err := s.root.Link(from, to); errors.Is(err, fs.ErrExist) {
			return objstore.ErrPrecondition
		} else if err != nil {
			return err
		}
		return s.root.Remove(from)
	}
	if conditional {
		now, err := s.Stat(ctx, to)
		if err != nil && !errors.Is(err, objstore.ErrNotFound) {
			return err
		}
		if err != nil || now.Generation != generation {
			return objstore.ErrPrecondition
		}
	}
	return s.root.Rename(from, to)
}
