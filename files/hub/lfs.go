package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

const (
	lfsType     = "application/vnd.git-lfs+json"
	lfsBatch    = 100
	maxLFSParts = 10_000
)

// lfsAction is the transfer to make for an object.
type lfsAction struct {
	Href   string
	Header map[string]string
}

// lfsObject is the answer for one object. If it has no action, the object is already stored.
type lfsObject struct {
	OID     string
	Actions struct {
		Upload *lfsAction
		Verify *lfsAction
	}
	Error *struct {
		Code    int
		Message string
	}
}

// store uploads the large files to LFS storage.
func (u *upload) store(ctx context.Context, files []*hashed) error {
	large := slices.DeleteFunc(slices.Clone(files), func(h *hashed) bool { return !h.large })
	for chunk := range slices.Chunk(large, lfsBatch) {
		objects, err := u.batch(ctx, chunk)
		if err != nil {
			return fmt.Errorf("request upload addresses for large files: %w", err)
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(u.Parallel)
		for _, h := range chunk {
			group.Go(func() error {
				if err := u.storeOne(ctx, h, objects[h.sha256]); err != nil {
					return fmt.Errorf("store %s: %w", h.Path, err)
				}
				u.meter.add(h.Path, 1, 0, 0)
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// batch requests the transfers for the objects of some files.
func (u *upload) batch(ctx context.Context, files []*hashed) (map[string]*lfsObject, error) {
	type object struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	ask := struct {
		Operation string            `json:"operation"`
		Transfers []string          `json:"transfers"`
		HashAlgo  string            `json:"hash_algo"`
		Ref       map[string]string `json:"ref"`
		Objects   []object          `json:"objects"`
	}{
		Operation: "upload", Transfers: []string{"basic", "multipart"}, HashAlgo: "sha256",
		Ref: map[string]string{"name": u.options.Branch},
	}
	for _, h := range files {
		ask.Objects = append(ask.Objects, object{h.sha256, h.size})
	}
	var answer struct{ Objects []*lfsObject }
	owner, name, _ := strings.Cut(u.repo, "/")
	if err := u.lfs(ctx, u.url(owner, name+".git", "info", "lfs", "objects", "batch"), ask, &answer); err != nil {
		return nil, err
	}
	found := make(map[string]*lfsObject, len(files))
	for _, o := range answer.Objects {
		if o != nil {
			found[o.OID] = o
		}
	}
	return found, nil
}

// lfs sends and receives JSON with the media type of LFS servers.
func (u *upload) lfs(ctx context.Context, address string, in, out any) error {
	r := request{method: http.MethodPost, url: address, header: http.Header{"Accept": {lfsType}, "Content-Type": {lfsType}}}
	_, err := u.exchange(ctx, r, in, out)
	return err
}

// storeOne uploads a file as its object requires, unless it is already stored.
func (u *upload) storeOne(ctx context.Context, h *hashed, o *lfsObject) error {
	switch {
	case o == nil:
		return fmt.Errorf("%w: the Hub's answer has no upload address", errProtocol)
	case o.Error != nil:
		return fmt.Errorf("the storage refused the file: %d %s", o.Error.Code, printable(o.Error.Message))
	case o.Actions.Upload == nil:
		u.meter.add(h.Path, 0, h.size, 0)
		return nil
	}
	action := o.Actions.Upload
	if err := u.checkHref(action.Href); err != nil {
		return err
	}
	var err error
	if size, found := action.Header["chunk_size"]; found {
		err = u.storeParts(ctx, h, action, size)
	} else {
		_, err = u.put(ctx, h, 0, h.size, action.Href, action.Header)
	}
	if err != nil || o.Actions.Verify == nil {
		return err
	}
	if err := u.checkHref(o.Actions.Verify.Href); err != nil {
		return err
	}
	return u.lfs(ctx, o.Actions.Verify.Href, map[string]any{"oid": h.sha256, "size": h.size}, nil)
}

// checkHref accepts addresses that are as safe as the Hub's own.
func (u *upload) checkHref(href string) error {
	to, err := url.Parse(href)
	if err != nil || to.Host == "" || (to.Scheme != "https" && to.Scheme != u.endpoint.Scheme) {
		return fmt.Errorf("%w: invalid or insecure storage address %q", errProtocol, printable(href))
	}
	return nil
}

// storeParts uploads a file in parts, whose addresses are in the header, and confirms that all are
// there.
func (u *upload) storeParts(ctx context.Context, h *hashed, action *lfsAction, sizeText string) error {
	size, err := strconv.ParseInt(sizeText, 10, 64)
	if err != nil || size < 1 || (h.size-1)/size+1 > maxLFSParts {
		return fmt.Errorf("%w: invalid part size of %q bytes", errProtocol, printable(sizeText))
	}
	count := int((h.size-1)/size + 1)
	addresses := make(map[int]string, count)
	for key, address := range action.Header {
		if number, err := strconv.Atoi(key); err == nil {
			addresses[number] = address
		}
	}
	if len(addresses) != count {
		return fmt.Errorf("%w: upload addresses for %d parts, want %d", errProtocol, len(addresses), count)
	}
	type part struct {
		Number int    `json:"partNumber"`
		ETag   string `json:"etag"`
	}
	parts := make([]part, count)
	group, partCtx := errgroup.WithContext(ctx)
	group.SetLimit(u.Parallel)
	for i := range count {
		group.Go(func() error {
			address, found := addresses[i+1]
			if !found {
				return fmt.Errorf("%w: no upload address for part %d", errProtocol, i+1)
			}
			if err := u.checkHref(address); err != nil {
				return err
			}
			start := int64(i) * size
			parts[i].Number = i + 1
			etag, err := u.put(partCtx, h, start, min(size, h.size-start), address, nil)
			if err == nil && etag == "" {
				err = fmt.Errorf("%w: the storage sent no ETag for a part", errProtocol)
			}
			parts[i].ETag = etag
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return u.lfs(ctx, action.Href, map[string]any{"oid": h.sha256, "parts": parts}, nil)
}

// put sends a range of a file. It returns the storage's ETag.
func (u *upload) put(ctx context.Context, h *hashed, start, size int64, address string, header map[string]string) (etag string, err error) {
	r := request{method: http.MethodPut, url: address, header: http.Header{}, size: size}
	for name, value := range header {
		r.header.Set(name, value)
	}
	var attempt *counted // newest attempt
	r.body = func() (io.ReadCloser, error) {
		if attempt != nil {
			u.meter.add(h.Path, 0, -attempt.end(), 0)
		}
		content, now, err := h.open()
		if err != nil {
			return nil, err
		}
		if _, err := content.Seek(start, io.SeekStart); err != nil || now != h.size {
			return nil, errors.Join(fmt.Errorf("%s changed during the upload; run the command again", h.Path), err, content.Close())
		}
		attempt = &counted{Reader: io.LimitReader(content, size), Closer: content, meter: &u.meter, path: h.Path}
		return attempt, nil
	}
	_, answer, err := u.call(ctx, r, maxAnswer)
	if err != nil {
		return "", err
	}
	return answer.Get("ETag"), nil
}

// counted counts the bytes read from a body. The transport may still read from the body of a failed
// attempt after the next attempt has started. end therefore removes the bytes of the attempt from
// the count.
type counted struct {
	io.Reader
	io.Closer
	meter *meter
	path  string

	mu    sync.Mutex
	sent  int64
	ended bool
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.sent += int64(n)
		c.meter.add(c.path, 0, int64(n), int64(n))
	}
	return n, err
}

func (c *counted) end() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.sent
}
