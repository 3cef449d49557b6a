package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/psyche-go/psyche/base/pause"
)

const (
	maxRedirects = 5
	maxAnswer    = 32 << 20 // bytes of a JSON answer
	workStalls   = 5        // multiple of Options.Stall, for an answer that takes work at the Hub
)

// Client is a client of one Hub. It may be used concurrently.
type Client struct {
	Options
	endpoint *url.URL
	http     *http.Client
}

// New returns a client. It does not contact the Hub.
func New(o Options) (*Client, error) {
	o, endpoint, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("set up the Hub: %w", err)
	}
	return &Client{
		Options:  o,
		endpoint: endpoint,
		http: &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// request is one request, which may be sent several times.
type request struct {
	method string
	url    string
	header http.Header
	size   int64                         // of body
	body   func() (io.ReadCloser, error) // nil: none
}

// url returns the URL of segments below the endpoint; each segment is escaped whole.
func (c *Client) url(segments ...string) string {
	escaped := make([]string, len(segments))
	for i, segment := range segments {
		escaped[i] = url.PathEscape(segment)
	}
	return strings.TrimRight(c.endpoint.String(), "/") + "/" + strings.Join(escaped, "/")
}

// kind returns the kind of the repositories, as in addresses and in the cache.
func (c *Client) kind() string {
	if c.Datasets {
		return "datasets"
	}
	return "models"
}

// api returns an API URL of a repository.
func (c *Client) api(repo string, segments ...string) string {
	return c.url(append(append([]string{"api", c.kind()}, strings.Split(repo, "/")...), segments...)...)
}

// ours reports whether a URL is on the Hub's own host. Only this host gets the token.
func (c *Client) ours(u *url.URL) bool {
	return u.Scheme == c.endpoint.Scheme && strings.EqualFold(u.Host, c.endpoint.Host)
}

// send makes one attempt and follows redirects. It returns the answer, whatever its status, and the
// headers of the Hub itself that describe the answer.
func (c *Client) send(ctx context.Context, r request) (*http.Response, http.Header, error) {
	u, err := url.Parse(r.url)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: invalid address %q", errProtocol, printable(r.url))
	}
	about := http.Header{}
	for range maxRedirects {
		response, err := c.sendOnce(ctx, r, u)
		if err != nil {
			return nil, nil, err
		}
		if c.ours(u) {
			for _, name := range []string{"X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size"} {
				if value := response.Header.Get(name); value != "" && about.Get(name) == "" {
					about.Set(name, value)
				}
			}
		}
		next := response.Header.Get("Location")
		if response.StatusCode < 300 || response.StatusCode >= 400 || response.StatusCode == http.StatusNotModified || next == "" {
			return response, about, nil
		}
		_ = response.Body.Close()
		to, err := u.Parse(next)
		switch {
		case err != nil, to.Host == "", to.Scheme != "https" && to.Scheme != c.endpoint.Scheme:
			return nil, nil, fmt.Errorf("%w: %s redirects to the invalid or insecure address %q", errProtocol, bare(u), printable(next))
		case r.method != http.MethodGet && r.method != http.MethodHead && (response.StatusCode < 307 || !c.ours(to)):
			return nil, nil, fmt.Errorf("%w: %s redirects a %s request to %s, which is not allowed", errProtocol, bare(u), r.method, bare(to))
		}
		u = to
	}
	return nil, nil, fmt.Errorf("%w: %s redirects more than %d times", errProtocol, printable(r.url), maxRedirects)
}

func (c *Client) sendOnce(ctx context.Context, r request, u *url.URL) (*http.Response, error) {
	var body io.ReadCloser
	if r.body != nil {
		var err error
		if body, err = r.body(); err != nil {
			return nil, err
		}
	}
	q, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%w: address %s: %w", errProtocol, bare(u), err)
	}
	maps.Copy(q.Header, r.header)
	if body != nil {
		q.ContentLength = r.size
		if r.size == 0 {
			q.Body = http.NoBody
		}
	}
	q.Header.Set("User-Agent", "psyche")
	q.Header.Set("Accept-Encoding", "identity")
	if c.Token != "" && c.ours(u) {
		q.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.http.Do(q)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // its URL may contain a signature
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && c.ours(u) {
			err = fmt.Errorf("%w (%w)", err, ErrUnreachable)
		}
		return nil, &networkError{fmt.Sprintf("%s %s", r.method, bare(u)), err}
	}
	return response, nil
}

// networkError is the error of a request without a complete answer.
type networkError struct {
	request string
	err     error
}

func (e *networkError) Error() string { return e.request + ": " + e.err.Error() }
func (e *networkError) Unwrap() error { return e.err }

// retry calls attempt until it succeeds, fails permanently, or has failed the allowed number of
// times without progress in between. attempt reports whether there was progress.
func (c *Client) retry(ctx context.Context, attempt func() (progress bool, err error)) error {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval = c.Pause
	advised := false // the advice about an unreachable Hub was logged
	for tries := 1; ; tries++ {
		progress, err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if progress {
			tries = 1
			policy.Reset()
		}
		rest := policy.NextBackOff()
		status, answered := errors.AsType[*statusError](err)
		_, broken := errors.AsType[*networkError](err)
		switch {
		case !broken && (!answered || !status.transient()):
			return err
		case tries >= c.Attempts:
			return fmt.Errorf("gave up after %d attempts: %w", tries, err)
		case answered && status.RetryAfter > c.MaxPause:
			return fmt.Errorf("the server wants a pause of %v: %w", status.RetryAfter, err)
		case answered:
			rest = max(rest, status.RetryAfter)
		}
		again := c.Logger.With("in", rest.Round(time.Millisecond), "attempt", tries+1, "of", c.Attempts)
		advised = tellRetry(again, err, advised)
		if ended := pause.For(ctx, rest); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// tellRetry logs why a request is repeated. It logs the advice about an unreachable Hub only once.
// The parameter advised reports whether the advice was logged before, and the result whether it is
// logged now.
func tellRetry(to *slog.Logger, err error, advised bool) bool {
	switch unreachable := errors.Is(err, ErrUnreachable); {
	case unreachable && advised:
		to.Warn("the Hub is still unreachable; retrying")
	case unreachable:
		to.Warn("the Hub is unreachable; retrying", "err", err)
		return true
	default:
		to.Warn("unexpected answer from the Hub; retrying", "err", err)
	}
	return advised
}

// call makes a request and reads its answer, at most limit bytes of it.
func (c *Client) call(ctx context.Context, r request, limit int64) (answer []byte, header http.Header, err error) {
	err = c.retry(ctx, func() (bool, error) {
		answer, header, err = c.callOnce(ctx, r, limit)
		return false, err
	})
	return answer, header, err
}

func (c *Client) callOnce(ctx context.Context, r request, limit int64) ([]byte, http.Header, error) {
	ctx, watch := newWatch(ctx, workStalls*c.Stall)
	defer watch.stop()
	if body := r.body; body != nil {
		r.body = func() (io.ReadCloser, error) {
			inner, err := body()
			return watched{inner, watch}, err
		}
	}
	response, _, err := c.send(ctx, r)
	if err != nil {
		return nil, nil, watch.explain(err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, nil, readStatusError(response)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(watched{response.Body, watch}, limit+1))
	switch {
	case err != nil:
		return nil, nil, &networkError{fmt.Sprintf("read the answer of %s", bare(response.Request.URL)), watch.explain(err)}
	case int64(len(answer)) > limit:
		return nil, nil, fmt.Errorf("%w: answer of %s exceeds %d bytes", ErrTooLarge, bare(response.Request.URL), limit)
	}
	return answer, response.Header, nil
}

// json sends in unless it is nil, and decodes the answer into out unless out is nil.
func (c *Client) json(ctx context.Context, method, address string, in, out any) (http.Header, error) {
	r := request{method: method, url: address, header: http.Header{"Accept": {"application/json"}}}
	if in != nil {
		r.header.Set("Content-Type", "application/json")
	}
	return c.exchange(ctx, r, in, out)
}

// exchange is json for a request with additional headers.
func (c *Client) exchange(ctx context.Context, r request, in, out any) (http.Header, error) {
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		r.setBody(body)
	}
	answer, header, err := c.call(ctx, r, maxAnswer)
	if err != nil || out == nil {
		return header, err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w", errProtocol, r.method, printable(r.url), err)
	}
	return header, nil
}

func (r *request) setBody(body []byte) {
	r.size = int64(len(body))
	r.body = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// errStalled means that no bytes were transferred for too long.
var errStalled = errors.New("no data transferred within the stall limit")

// watch cancels a request that stalls.
type watch struct {
	after  time.Duration
	timer  *time.Timer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newWatch(parent context.Context, after time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watch{after: after, ctx: ctx, cancel: cancel}
	w.timer = time.AfterFunc(after, func() { cancel(errStalled) })
	return ctx, w
}

func (w *watch) moved() { w.timer.Reset(w.after) }

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain returns the actual cause of an error after a cancellation.
func (w *watch) explain(err error) error {
	if errors.Is(context.Cause(w.ctx), errStalled) {
		return &networkError{"wait for the Hub", errStalled}
	}
	return err
}

// watched reports every transfer to a watch.
type watched struct {
	io.ReadCloser
	watch *watch
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.watch.moved()
	}
	return n, err
}

// CloseIdleConnections closes the connections that no request uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }
