package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/objstore"
)

const parallel = 8 // concurrent reads

// Source is an open set of token files in a store. Its methods may be called concurrently.
type Source struct {
	*tokens.Set
	store objstore.Store
}

// Open opens the token files below a folder, or in the whole store if folder is empty. The Source
// closes the store. If Open fails, the caller must close the store.
func Open(ctx context.Context, store objstore.Store, folder string, o tokens.Options) (*Source, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if folder = strings.Trim(folder, "/"); folder != "" {
		folder += "/"
	}
	listed, err := store.List(ctx, folder, 2*tokens.MaxFiles)
	if err != nil {
		return nil, fmt.Errorf("list token files: %w", err)
	}
	beside := make(map[string]objstore.Object)
	for _, object := range listed {
		beside[object.Name] = object
	}
	listed = slices.DeleteFunc(listed, func(object objstore.Object) bool {
		return !tokens.IsTokenFile(strings.TrimPrefix(object.Name, folder))
	})
	if len(listed) == 0 {
		return nil, fmt.Errorf("%w: no object below %q ends in .ds, .bin or .npy", tokens.ErrNoFiles, folder)
	}
	slices.SortFunc(listed, func(a, b objstore.Object) int { return tokens.Compare(a.Name, b.Name) })
	files := make([]tokens.File, len(listed))
	group, starts := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, object := range listed {
		group.Go(func() (err error) {
			files[i], err = begin(starts, store, object, beside, o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	o.Parallel = parallel
	set, err := tokens.New(files, o)
	if err != nil {
		return nil, err
	}
	return &Source{Set: set, store: store}, nil
}

// Close closes the store.
func (s *Source) Close() error { return s.store.Close() }

// file is one object. It implements tokens.File.
type file struct {
	store  objstore.Store
	object objstore.Object
}

// begin opens a token file. It compares the size and first bytes of the object with o, and with the
// descriptions in the sidecars.
func begin(ctx context.Context, store objstore.Store, object objstore.Object, sidecars map[string]objstore.Object, o tokens.Options) (tokens.File, error) {
	f := &file{store: store, object: object}
	for _, name := range tokens.Sidecars(object.Name) {
		sidecar, found := sidecars[name]
		if !found {
			continue
		}
		stated, found, err := tokens.ReadSidecar(ctx, &file{store: store, object: sidecar})
		if err == nil && found {
			o.Claim, err = tokens.OfFiles, stated.Check(object.Name, object.Size, o.TokenSize)
		}
		if err != nil {
			return nil, err
		}
	}
	start := make([]byte, min(int64(tokens.StartSize), object.Size))
	if err := f.ReadAt(ctx, start, 0); err != nil {
		return nil, fmt.Errorf("open token file %s: %w", object.Name, err)
	}
	return tokens.Begin(f, start, o)
}

// Name implements tokens.File.
func (f *file) Name() string { return f.object.Name }

// Size implements tokens.File.
func (f *file) Size() int64 { return f.object.Size }

// ReadAt implements tokens.File.
func (f *file) ReadAt(ctx context.Context, buffer []byte, offset int64) error {
	err := f.store.ReadAt(ctx, f.object, buffer, offset)
	if errors.Is(err, objstore.ErrChanged) {
		return fmt.Errorf("%w: %w", tokens.ErrChanged, err)
	}
	return err
}
