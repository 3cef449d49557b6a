package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

// Defaults and limits.
const (
	DefaultTimeout = 10 * time.Second
	maxRetryAfter  = time.Minute // limit for a node's Retry-After

	smallAnswer = 1 << 20  // bytes; most are below a kilobyte
	largeAnswer = 16 << 20 // lists of accounts
	errorText   = 300      // bytes of a node's text in an error
)

// Errors of requests without a valid answer. If the node answers with an error, that is a *nodeError.
var (
	ErrBusy        = errors.New("too many requests to the node")
	ErrUnreachable = errors.New("the node cannot be reached")
	ErrBadAnswer   = errors.New("the node's answer is invalid")
)

// Address is the address of a node.
type Address struct {
	HTTP string
	WS   string // of its WebSocket
}

// ParseEndpoint parses "https://host/path". The WebSocket address is the same with the scheme wss or
// ws, unless a separate address follows after a comma: "http://127.0.0.1:8899,ws://127.0.0.1:8900".
func ParseEndpoint(text string) (Address, error) {
	plain, socket, both := strings.Cut(text, ",")
	parsed, err := url.Parse(plain)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return Address{}, fmt.Errorf("endpoint %q: want http://host:port or https://host/path", redact(plain))
	}
	if !both {
		ws := *parsed
		ws.Scheme = map[string]string{"http": "ws", "https": "wss"}[parsed.Scheme]
		return Address{HTTP: plain, WS: ws.String()}, nil
	}
	if ws, err := url.Parse(socket); err != nil || ws.Scheme != "ws" && ws.Scheme != "wss" || ws.Host == "" {
		return Address{}, fmt.Errorf("WebSocket of endpoint %q: want ws://host:port or wss://host/path", redact(plain))
	}
	return Address{HTTP: plain, WS: socket}, nil
}

// redact removes the parts of an address that may be secret: providers put keys into path and
// query.
func redact(address string) string {
	if parsed, err := url.Parse(address); err == nil && parsed.Host != "" {
		return parsed.Scheme + "://" + parsed.Host
	}
	return "an address that cannot be read"
}

// Endpoint is one node. Its methods are safe for concurrent use.
type Endpoint struct {
	address Address
	name    string
	timeout time.Duration
	client  *http.Client
	calls   atomic.Uint64

	mu     sync.Mutex
	health health
}

// Name returns the address without its secret parts.
func (e *Endpoint) Name() string { return e.name }

type request struct {
	Version string `json:"jsonrpc"`
	ID      uint64 `json:"id"`
	Method  string `json:"method"`
	Params  []any  `json:"params,omitempty"`
}

type answer struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *nodeError      `json:"error"`
}

// call sends a request to the node and decodes its result of at most limit bytes.
func (e *Endpoint) call(ctx context.Context, limit int, result any, method string, params ...any) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	err := e.exchange(ctx, limit, result, method, params)
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", e.name, method, err)
	}
	e.note(ctx, err)
	return err
}

func (e *Endpoint) exchange(ctx context.Context, limit int, result any, method string, params []any) error {
	id := e.calls.Add(1)
	body, err := json.Marshal(request{Version: "2.0", ID: id, Method: method, Params: params})
	if err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, e.address.HTTP, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, withoutURL(err))
	}
	post.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(post)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, withoutURL(err))
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, withoutURL(err))
	case response.StatusCode == http.StatusTooManyRequests:
		return &busyError{after: min(pause.Requested(response.Header), maxRetryAfter)}
	case len(content) > limit:
		return fmt.Errorf("%w: more than %d bytes", ErrBadAnswer, limit)
	}
	return decodeAnswer(content, response.StatusCode, id, result)
}

// decodeAnswer parses an answer to request id. Some nodes send errors with a non-200 status.
func decodeAnswer(content []byte, status int, id uint64, result any) error {
	var a answer
	if err := json.Unmarshal(content, &a); err != nil {
		return fmt.Errorf("%w: status %d, %q: %w", ErrBadAnswer, status, shorten(content), err)
	}
	switch {
	case a.Error != nil:
		a.Error.Message = shorten([]byte(a.Error.Message))
		return a.Error
	case status != http.StatusOK:
		return fmt.Errorf("%w: status %d", ErrBadAnswer, status)
	case string(a.ID) != strconv.FormatUint(id, 10):
		return fmt.Errorf("%w: answer to request %s, want %d", ErrBadAnswer, shorten(a.ID), id)
	case len(a.Result) == 0:
		return fmt.Errorf("%w: neither a result nor an error", ErrBadAnswer)
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("%w: result %q: %w", ErrBadAnswer, shorten(a.Result), err)
	}
	return nil
}

// shorten limits a node's text, which can be anything.
func shorten(text []byte) string {
	if len(text) > errorText {
		return strings.ToValidUTF8(string(text[:errorText]), "?") + "..."
	}
	return strings.ToValidUTF8(string(text), "?")
}

// withoutURL removes the address, which may contain a key, from an error of package http.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// busyError is a node's answer 429.
type busyError struct{ after time.Duration }

func (b *busyError) Error() string {
	if b.after == 0 {
		return ErrBusy.Error()
	}
	return fmt.Sprintf("%v: try again in %s", ErrBusy, b.after)
}

func (b *busyError) Unwrap() error { return ErrBusy }
