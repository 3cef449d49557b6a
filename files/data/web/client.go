package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/base/privatenet"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// maxRetryAfter is the longest pause that a server can request.
const maxRetryAfter = 10 * time.Second

const (
	maxTries     = 6
	maxPause     = 5 * time.Second
	maxRedirects = 5
	maxHeader    = 64 << 10
	parallel     = 8 // concurrent requests
)

// Errors of servers.
var (
	// ErrNoRange means that a server sends only whole files.
	ErrNoRange = errors.New("the server does not support parts of a file (no answer 206 to a Range request)")

	// ErrStatus means that a server refused a request permanently, so that a retry does not help.
	ErrStatus = errors.New("server refused the request")

	errRedirect = errors.New("redirect not followed")
)

// Options are the timeouts and other settings of a Source.
type Options struct {
	Timeout    time.Duration // until an answer starts, and for every 16 KiB of it; 0: 15 s
	MaxElapsed time.Duration // for all attempts of one read; 0: 20 s
	Pause      time.Duration // approximate pause before the second attempt; it doubles; 0: 250 ms
	Logger     *slog.Logger  // for retries; nil: no log

	// Inner also allows addresses of private networks (package privatenet). Names and redirects from
	// unknown parties may lead to such addresses.
	Inner bool
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.MaxElapsed = cmp.Or(o.MaxElapsed, 20*time.Second)
	o.Pause = cmp.Or(o.Pause, 250*time.Millisecond)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// client sends requests.
type client struct {
	options   Options
	http      *http.Client
	transport *http.Transport
	proxies   sync.Map // host:port of the user's own proxies, which may have any address
}

func newClient(o Options) *client {
	o = o.withDefaults()
	c := &client{options: o}
	c.transport = &http.Transport{
		Proxy:                  c.proxy,
		DialContext:            c.dial,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  o.Timeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    parallel,
		MaxConnsPerHost:        2 * parallel,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true, // a range of compressed bytes is useless
		ForceAttemptHTTP2:      true,
	}
	c.http = &http.Client{Transport: c.transport, CheckRedirect: c.checkRedirect}
	return c
}

func (c *client) close() { c.transport.CloseIdleConnections() }

func (c *client) checkRedirect(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d", errRedirect, maxRedirects)
	}
	if scheme := next.URL.Scheme; scheme != "https" && (scheme != "http" || via[0].URL.Scheme == "https") {
		return fmt.Errorf("%w: from %s to %s", errRedirect, via[0].URL.Scheme, scheme)
	}
	return c.checkHost(next.URL)
}

// Redact returns an address without possible secrets: without its password, query and fragment.
func Redact(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(unreadable address)"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

// do repeats a request until it succeeds, fails permanently, or its time is used up.
func (c *client) do(ctx context.Context, name string, request func(ctx context.Context) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.Multiplier, pauses.MaxInterval = c.options.Pause, 2, maxPause
	var last error
	_, err := backoff.Retry(ctx,
		func() (struct{}, error) {
			last = c.steadily(ctx, request)
			if isFinal(last) {
				return struct{}{}, backoff.Permanent(last)
			}
			return struct{}{}, last
		},
		backoff.WithBackOff(pauses),
		backoff.WithMaxTries(maxTries),
		backoff.WithMaxElapsedTime(c.options.MaxElapsed),
		backoff.WithNotify(func(err error, pause time.Duration) {
			c.options.Logger.Info("cannot read data; retrying", "file", name, "in", pause, "err", err)
		}))
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w; last error: %w", ctx.Err(), last)
	}
	return last
}

// pieceBytes is the number of bytes of an answer that must arrive within one Timeout.
const pieceBytes = 16 << 10

// steadily makes a request that is cancelled if pieceBytes of its answer do not arrive within
// Timeout. A long answer may therefore take long over a slow link.
func (c *client) steadily(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(c.options.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := request(context.WithValue(ctx, arrivedKey{}, func() { timer.Reset(c.options.Timeout) }))
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("received less than %d bytes in %v: %w", pieceBytes, c.options.Timeout, context.DeadlineExceeded)
	}
	return err
}

// arrivedKey is the context key of the function that restarts the time limit of a request.
type arrivedKey struct{}

// arriving calls arrived for every pieceBytes of a body.
type arriving struct {
	io.ReadCloser
	arrived func()
	read    int // bytes since the last call
}

// Read implements io.Reader.
func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if a.read += n; a.read >= pieceBytes {
		a.read = 0
		a.arrived()
	}
	return n, err
}

// isFinal reports whether an immediate retry is pointless.
func isFinal(err error) bool {
	final := []error{tokens.ErrChanged, tokens.ErrTooShort, ErrNoRange, ErrStatus, errRedirect, privatenet.ErrInner}
	return slices.ContainsFunc(final, func(target error) bool { return errors.Is(err, target) })
}

// send sends a request. The caller must read and close the body.
func (c *client) send(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: invalid address", ErrStatus)
	}
	if err := c.checkHost(request.URL); err != nil {
		return nil, err
	}
	request.Header = header
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "psyche")
	response, err := c.http.Do(request)
	if err != nil {
		// url.Error contains the whole address, including secrets.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, err
	}
	if arrived, ok := ctx.Value(arrivedKey{}).(func()); ok {
		response.Body = &arriving{ReadCloser: response.Body, arrived: arrived}
	}
	return response, nil
}

// statusError converts an unsuccessful status to an error.
func statusError(response *http.Response) error {
	status := response.StatusCode
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return withRetryAfter(fmt.Errorf("server answers %s", text(status)), pause.Requested(response.Header))
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return fmt.Errorf("server answers %s", text(status))
	default:
		return fmt.Errorf("%w: the server answers %s", ErrStatus, text(status))
	}
}

// text returns a text for the status, because the server's reason phrase may contain anything.
func text(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// overload is an error after which the server requests a pause.
type overload struct {
	error
	pause backoff.RetryAfterError
}

// Unwrap exposes the pause to package backoff.
func (o overload) Unwrap() []error { return []error{o.error, &o.pause} }

// withRetryAfter adds the pause that a server requests. 0 means that it requests none.
func withRetryAfter(err error, requested time.Duration) error {
	if requested <= 0 {
		return err
	}
	return overload{err, backoff.RetryAfterError{Duration: min(requested, maxRetryAfter)}}
}

// Get reads a whole file of at most limit bytes.
func Get(ctx context.Context, address string, limit int64, o Options) ([]byte, error) {
	c := newClient(o)
	defer c.close()
	name := Redact(address)
	var content []byte
	err := c.do(ctx, name, func(ctx context.Context) error {
		response, err := c.send(ctx, address, http.Header{})
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return statusError(response)
		}
		content, err = io.ReadAll(io.LimitReader(response.Body, limit+1))
		if err == nil && int64(len(content)) > limit {
			return fmt.Errorf("%w: more than %d bytes", ErrStatus, limit)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}
