package gcs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/psyche-go/psyche/files/objstore"
)

const (
	chunk    = 8 << 20          // bytes of one upload request
	readTime = 30 * time.Second // for one Stat or ReadAt with all its attempts
	listTime = 2 * time.Minute
)

// Options are the settings for access to a bucket.
type Options struct {
	// Credentials selects the credentials of the environment; without it, requests are anonymous.
	Credentials bool

	Tries int           // attempts of one request; 0: 4
	Pause time.Duration // maximum pause before the second attempt, doubled for each further one; 0: 250 ms
}

// Store is an open bucket. It implements objstore.Store.
type Store struct {
	client *storage.Client
	bucket *storage.BucketHandle
	name   string
}

// Open opens a bucket. It makes no request.
func Open(ctx context.Context, bucket string, o Options) (*Store, error) {
	options := []option.ClientOption{storage.WithJSONReads()}
	if !o.Credentials {
		options = append(options, option.WithoutAuthentication())
	}
	client, err := storage.NewClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	o.Tries = cmp.Or(o.Tries, 4)
	o.Pause = cmp.Or(o.Pause, 250*time.Millisecond)
	client.SetRetry(
		storage.WithMaxAttempts(o.Tries),
		storage.WithBackoff(gax.Backoff{Initial: o.Pause, Max: 5 * time.Second, Multiplier: 2}),
	)
	return &Store{client: client, bucket: client.Bucket(bucket), name: bucket}, nil
}

// Close implements objstore.Store.
func (s *Store) Close() error { return s.client.Close() }

func describe(attributes *storage.ObjectAttrs) objstore.Object {
	return objstore.Object{
		Name: attributes.Name, Size: attributes.Size,
		Generation: strconv.FormatInt(attributes.Generation, 10),
	}
}

// List implements objstore.Store.
func (s *Store) List(ctx context.Context, prefix string, limit int) ([]objstore.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	query := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
	if err := query.SetAttrSelection([]string{"Name", "Size", "Generation"}); err != nil {
		return nil, s.wrap("list", prefix, err)
	}
	var objects []objstore.Object
	for found := s.bucket.Objects(ctx, query); ; {
		attributes, err := found.Next()
		if errors.Is(err, iterator.Done) {
			return objects, nil
		}
		if err != nil {
			return nil, s.wrap("list", prefix, err)
		}
		if objstore.CheckName(attributes.Name) != nil {
			continue // a folder marker, or a name that other stores do not support
		}
		if len(objects) == limit {
			return nil, fmt.Errorf("list gs://%s/%s: %w: more than %d", s.name, prefix, objstore.ErrTooMany, limit)
		}
		objects = append(objects, describe(attributes))
	}
}

// Stat implements objstore.Store.
func (s *Store) Stat(ctx context.Context, name string) (objstore.Object, error) {
	if err := objstore.CheckName(name); err != nil {
		return objstore.Object{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	attributes, err := s.bucket.Object(name).Attrs(ctx)
	if err != nil {
		return objstore.Object{}, s.wrap("get attributes of", name, err)
	}
	return describe(attributes), nil
}

// version returns the handle of one version.
func (s *Store) version(o objstore.Object) (*storage.ObjectHandle, error) {
	if err := objstore.CheckName(o.Name); err != nil {
		return nil, err
	}
	generation, err := strconv.ParseInt(o.Generation, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read gs://%s/%s: %q is not a generation", s.name, o.Name, o.Generation)
	}
	return s.bucket.Object(o.Name).Generation(generation), nil
}

// open requests bytes of a version; a negative length means all of them.
func (s *Store) open(ctx context.Context, o objstore.Object, offset, length int64) (*storage.Reader, error) {
	handle, err := s.version(o)
	if err != nil {
		return nil, err
	}
	r, err := handle.NewRangeReader(ctx, offset, length)
	if errors.Is(err, storage.ErrObjectNotExist) {
		return nil, fmt.Errorf("read gs://%s/%s: %w", s.name, o.Name, objstore.ErrChanged)
	}
	if err != nil {
		return nil, s.wrap("read", o.Name, err)
	}
	if r.Attrs.Size != o.Size || r.Attrs.Decompressed {
		return nil, errors.Join(fmt.Errorf("read gs://%s/%s: generation %s has %d bytes, but the service sends %d; check for Content-Encoding gzip",
			s.name, o.Name, o.Generation, o.Size, r.Attrs.Size), r.Close())
	}
	return r, nil
}

// ReadAt implements objstore.Store.
func (s *Store) ReadAt(ctx context.Context, o objstore.Object, buffer []byte, offset int64) error {
	if err := objstore.CheckRange(o, buffer, offset); err != nil {
		return err
	}
	if len(buffer) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	r, err := s.open(ctx, o, offset, int64(len(buffer)))
	if err != nil {
		return err
	}
	_, err = io.ReadFull(r, buffer)
	if err := errors.Join(err, r.Close()); err != nil {
		return s.wrap("read", o.Name, err)
	}
	return nil
}

// Open implements objstore.Store.
func (s *Store) Open(ctx context.Context, o objstore.Object) (io.ReadCloser, error) {
	if o.Size == 0 { // an empty range request is an error
		if now, err := s.Stat(ctx, o.Name); err != nil || now != o {
			return nil, errors.Join(fmt.Errorf("read gs://%s/%s: %w", s.name, o.Name, objstore.ErrChanged), err)
		}
		return http.NoBody, nil
	}
	r, err := s.open(ctx, o, 0, -1)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, content io.Reader, size int64, when objstore.Condition) (objstore.Object, error) {
	if err := objstore.CheckName(name); err != nil {
		return objstore.Object{}, err
	}
	handle := s.bucket.Object(name)
	if generation, ok := when.Generation(); ok && generation == "" {
		handle = handle.If(storage.Conditions{DoesNotExist: true})
	} else if ok {
		number, err := strconv.ParseInt(generation, 10, 64)
		if err != nil {
			return objstore.Object{}, fmt.Errorf("write gs://%s/%s: %q is not a generation", s.name, name, generation)
		}
		handle = handle.If(storage.Conditions{GenerationMatch: number})
	}
	// The object does not exist until the writer is closed; a cancelled writer writes nothing.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := handle.NewWriter(ctx)
	w.ChunkSize = int(min(chunk, max(size, 1)))
	w.ContentType = "application/octet-stream"
	n, err := io.Copy(w, io.LimitReader(content, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("content has %d bytes or more, want %d", n, size)
	}
	if err != nil {
		cancel()
		_ = w.Close()
		return objstore.Object{}, s.wrap("write", name, err)
	}
	if err := w.Close(); err != nil {
		return objstore.Object{}, s.wrap("write", name, err)
	}
	return describe(w.Attrs()), nil
}

// wrap adds the operation, and converts the error to package objstore's.
func (s *Store) wrap(doing, name string, err error) error {
	if api, ok := errors.AsType[*googleapi.Error](err); ok && api.Code == http.StatusPreconditionFailed {
		err = objstore.ErrPrecondition
	}
	if errors.Is(err, storage.ErrObjectNotExist) {
		err = objstore.ErrNotFound
	}
	if errors.Is(err, storage.ErrBucketNotExist) {
		err = fmt.Errorf("%w: no such bucket", objstore.ErrNotFound)
	}
	return fmt.Errorf("%s gs://%s/%s: %w", doing, s.name, name, err)
}
