package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// Source is an open set of token files on the web. Its methods may be called concurrently.
type Source struct {
	*tokens.Set
	client *client
}

// Open opens the token files at the addresses, in their order.
func Open(ctx context.Context, addresses []string, o tokens.Options, w Options) (*Source, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if len(addresses) > tokens.MaxFiles {
		return nil, fmt.Errorf("%d token files, the limit is %d", len(addresses), tokens.MaxFiles)
	}
	s := &Source{client: newClient(w)}
	files, err := s.client.openAll(ctx, addresses, o)
	if looks := errors.Is(err, tokens.ErrWrongSize); len(addresses) > 0 && (err == nil || looks) {
		said, otherwise := s.client.checkSidecars(ctx, addresses[0], o)
		if err == nil || otherwise != nil {
			err = otherwise
		} else if said {
			o.Claim = tokens.OfFiles
			files, err = s.client.openAll(ctx, addresses, o)
		}
	}
	if err == nil {
		o.Parallel = parallel
		s.Set, err = tokens.New(files, o)
	}
	if err != nil {
		s.client.close()
		return nil, err
	}
	return s, nil
}

// Close closes idle connections.
func (s *Source) Close() error {
	s.client.close()
	return nil
}

// version identifies the content of a file.
type version struct {
	size     int64
	etag     string
	modified string
}

// file is a token file with a known version. It implements tokens.File.
type file struct {
	client  *client
	address string
	name    string
	version version
}

// Name implements tokens.File.
func (f *file) Name() string { return f.name }

// Size implements tokens.File.
func (f *file) Size() int64 { return f.version.size }

// openAll opens files, several concurrently.
func (c *client) openAll(ctx context.Context, addresses []string, o tokens.Options) ([]tokens.File, error) {
	files := make([]tokens.File, len(addresses))
	group, opening := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, address := range addresses {
		group.Go(func() (err error) {
			files[i], err = c.open(opening, address, o)
			return err
		})
	}
	return files, group.Wait()
}

// open determines a file's version from its first bytes.
func (c *client) open(ctx context.Context, address string, o tokens.Options) (tokens.File, error) {
	f := &file{client: c, address: address, name: Redact(address)}
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("open token file %s: not an http:// or https:// address", f.name)
	}
	start := make([]byte, tokens.StartSize)
	err := c.do(ctx, f.name, func(ctx context.Context) (err error) {
		f.version, err = c.part(ctx, address, start, 0, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open token file %s: %w", f.name, err)
	}
	if f.version.etag == "" && f.version.modified == "" {
		c.options.Logger.Warn("the server sends neither ETag nor Last-Modified; only a changed file length would be detected", "file", f.name)
	}
	return tokens.Begin(f, start[:min(int64(len(start)), f.version.size)], o)
}

// ReadAt implements tokens.File.
func (f *file) ReadAt(ctx context.Context, buffer []byte, offset int64) error {
	return f.client.do(ctx, f.name, func(ctx context.Context) error {
		_, err := f.client.part(ctx, f.address, buffer, offset, &f.version)
		return err
	})
}

// part requests one range. Without a version to compare, a file that is shorter than the buffer
// fills only a part of it.
func (c *client) part(ctx context.Context, address string, buffer []byte, offset int64, want *version) (version, error) {
	header := http.Header{}
	header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+int64(len(buffer))-1))
	if want != nil {
		switch {
		case want.etag != "" && !strings.HasPrefix(want.etag, "W/"):
			header.Set("If-Match", want.etag)
		case want.etag == "" && want.modified != "":
			header.Set("If-Unmodified-Since", want.modified)
		}
	}
	response, err := c.send(ctx, address, header)
	if err != nil {
		return version{}, err
	}
	defer func() { _ = response.Body.Close() }()
	got := version{size: response.ContentLength, etag: response.Header.Get("Etag"), modified: response.Header.Get("Last-Modified")}
	switch response.StatusCode {
	case http.StatusPartialContent:
	case http.StatusOK:
		if want != nil && want.changed(got) {
			return got, changed(*want, got)
		}
		return got, ErrNoRange
	case http.StatusPreconditionFailed:
		if want == nil {
			return got, statusError(response)
		}
		return got, fmt.Errorf("%w: the server has another version", tokens.ErrChanged)
	case http.StatusRequestedRangeNotSatisfiable:
		if want == nil {
			return got, fmt.Errorf("%w: the server answers %s to a request for the first bytes; the file is empty", tokens.ErrTooShort, text(response.StatusCode))
		}
		return got, fmt.Errorf("%w: the file ends before byte %d", tokens.ErrChanged, offset)
	default:
		return got, statusError(response)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return got, fmt.Errorf("%w: the answer is compressed; a part of a file must not be compressed", ErrStatus)
	}
	first, last, size, err := contentRange(response.Header.Get("Content-Range"))
	if err != nil {
		return got, err
	}
	got.size = size
	if want != nil && want.changed(got) {
		return got, changed(*want, got)
	}
	wantLast := min(offset+int64(len(buffer)), size) - 1
	if first != offset || last != wantLast || want != nil && wantLast-offset+1 != int64(len(buffer)) {
		return got, fmt.Errorf("server sends bytes %d to %d, asked for %d to %d", first, last, offset, wantLast)
	}
	return got, readBody(response, buffer[:last-first+1])
}

// readBody reads a body that must have exactly the buffer's length.
func readBody(response *http.Response, buffer []byte) error {
	if n := response.ContentLength; n >= 0 && n != int64(len(buffer)) {
		return fmt.Errorf("server announces %d bytes, asked for %d", n, len(buffer))
	}
	if _, err := io.ReadFull(response.Body, buffer); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if n, err := response.Body.Read(make([]byte, 1)); n > 0 {
		return fmt.Errorf("the server sends more than the requested %d bytes", len(buffer))
	} else if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// changed reports whether another version certainly differs. A missing header in one answer does
// not count.
func (v version) changed(other version) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return other.size >= 0 && v.size != other.size || differ(v.etag, other.etag) ||
		v.etag == "" && differ(v.modified, other.modified)
}

func changed(opened, found version) error {
	if found.size < 0 {
		return fmt.Errorf("%w: the server has another version", tokens.ErrChanged)
	}
	if opened.size != found.size {
		return fmt.Errorf("%w: size was %d bytes, now %d", tokens.ErrChanged, opened.size, found.size)
	}
	return fmt.Errorf("%w: the server has another version of the same length", tokens.ErrChanged)
}

// contentRange parses "bytes 0-5/1234".
func contentRange(header string) (first, last, size int64, err error) {
	rest, ok := strings.CutPrefix(header, "bytes ")
	between, total, ok2 := strings.Cut(rest, "/")
	from, to, ok3 := strings.Cut(between, "-")
	if ok && ok2 && ok3 {
		var errs [3]error
		first, errs[0] = number(from)
		last, errs[1] = number(to)
		size, errs[2] = number(total)
		if errors.Join(errs[:]...) == nil && first <= last && last < size {
			return first, last, size, nil
		}
	}
	return 0, 0, 0, fmt.Errorf("server sends the Content-Range %q, want bytes FIRST-LAST/SIZE", clip(header))
}

func number(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 63)
	return int64(n), err
}

// clip shortens a server's text for the log.
func clip(text string) string {
	const most = 80
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
