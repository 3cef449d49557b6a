package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
)

// ErrNotPublic means that a repository is not public, or that this cannot be determined.
var ErrNotPublic = errors.New("the repository is not public")

// attemptsPublic is the number of attempts to ask the Hub whether a repository is public. If they
// fail, an earlier confirmation in the cache may be enough.
const attemptsPublic = 2

// CheckPublic asks the Hub, without the token, whether a commit of a repository is public. It
// requests the commit's listing, and one of its files, for which separate conditions may apply. If
// the commit is not public, the error is ErrNotPublic.
func (c *Client) CheckPublic(ctx context.Context, repo, commit string) error {
	anonymous := c.anonymous()
	if _, err := anonymous.Resolve(ctx, repo, commit); err != nil {
		return notPublic(err)
	}
	files, err := anonymous.Files(ctx, repo, commit)
	if err != nil {
		return notPublic(err)
	}
	return anonymous.checkFiles(ctx, repo, commit, files)
}

// anonymous returns a copy of the client without a token.
func (c *Client) anonymous() *Client {
	other := *c
	other.Token, other.Attempts = "", min(c.Attempts, attemptsPublic)
	return &other
}

// notPublic converts an error of a client without a token.
func notPublic(err error) error {
	for _, denied := range []error{ErrUnauthorized, ErrForbidden, ErrGated, ErrNotFound} {
		if errors.Is(err, denied) {
			return fmt.Errorf("%w: %w", ErrNotPublic, err)
		}
	}
	return err
}

// checkFiles requests the largest file, without reading it. Access conditions apply to all files
// except the files that describe a repository.
func (c *Client) checkFiles(ctx context.Context, repo, commit string, files []Entry) error {
	if len(files) == 0 {
		return nil
	}
	largest := files[0]
	for _, e := range files {
		if e.Size > largest.Size {
			largest = e
		}
	}
	address := c.resolve(repo, commit, largest.Path)
	return notPublic(c.retry(ctx, func() (bool, error) { return false, c.askFor(ctx, address) }))
}

// askFor checks whether the Hub itself grants access to a file, without following a redirect to its
// storage.
func (c *Client) askFor(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("%w: invalid address %q", errProtocol, printable(address))
	}
	ctx, watch := newWatch(ctx, c.Stall)
	defer watch.stop()
	for range maxRedirects {
		response, err := c.sendOnce(ctx, request{method: http.MethodHead}, u)
		if err != nil {
			return watch.explain(err)
		}
		_ = response.Body.Close()
		next, err := response.Location()
		switch {
		case response.StatusCode >= 200 && response.StatusCode < 300:
			return nil
		case response.StatusCode >= 400 || err != nil:
			return readStatusError(response)
		case !c.ours(next):
			return nil
		}
		u = next
	}
	return fmt.Errorf("%w: %s redirects more than %d times", errProtocol, printable(address), maxRedirects)
}

// checkPublic returns an error unless a caller that accepts only public files may use a snapshot.
// The snapshot may be in the cache because a user with a token downloaded it. If the Hub cannot be
// reached, an earlier confirmation of the Hub counts.
func (c *Client) checkPublic(ctx context.Context, repo string, cache folder, s Snapshot) error {
	marker := cache.public(s.Commit)
	unknown := ErrOffline
	if !c.Offline {
		anonymous := c.anonymous()
		_, err := anonymous.Resolve(ctx, repo, s.Commit)
		if err = notPublic(err); err == nil {
			err = anonymous.checkFiles(ctx, repo, s.Commit, s.Files)
		}
		if err == nil {
			return replaceFile(marker, nil)
		}
		_, answered := errors.AsType[*statusError](err)
		if ctx.Err() != nil || answered || errors.Is(err, ErrNotPublic) || errors.Is(err, errProtocol) {
			return err
		}
		unknown = err
	}
	if _, err := os.Stat(marker); err != nil {
		return fmt.Errorf("%w, or the check at the Hub failed: %w", ErrNotPublic, unknown)
	}
	return nil
}
