package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

// Errors of local checks, and of the Hub's responses: a statusError unwraps to one of them.
var (
	ErrUnauthorized = errors.New("the token or the repository's name is wrong; set HF_TOKEN, or correct the name")
	ErrForbidden    = errors.New("the token does not have permission")
	ErrGated        = errors.New("the repository is gated; accept its conditions on its page, then use a token of that account")
	ErrNotFound     = errors.New("not found")
	errConflict     = errors.New("the repository changed in the meantime")

	errNoToken     = error(noToken{}) // an ErrUnauthorized that is known without a request
	ErrUnreachable = errors.New("cannot reach the Hub; check the network, set HF_ENDPOINT for another Hub, or HF_HUB_OFFLINE=1 to use only the cache")
	ErrOffline     = errors.New("not in the cache, and HF_HUB_OFFLINE forbids asking the Hub")
	errIntegrity   = errors.New("content does not match the Hub's hash")
	ErrInvalidName = errors.New("invalid name")
	ErrTooLarge    = errors.New("larger than allowed")
	errProtocol    = errors.New("unexpected answer from the Hub")
)

// noToken is the error of an operation that requires a token.
type noToken struct{}

func (noToken) Error() string {
	return "no token; set HF_TOKEN, or log in with the Hub's own tool (hf auth login)"
}

func (noToken) Is(target error) bool { return target == ErrUnauthorized }

// statusError is an unsuccessful response of a server.
type statusError struct {
	Method     string
	URL        string // without query, which may contain a signature
	Status     int
	Code       string        // X-Error-Code, for example RepoNotFound
	Message    string        // message of the server
	RetryAfter time.Duration // Retry-After of the server, or 0
}

// Error names the requested object, and what the user can do about the error.
func (e *statusError) Error() string {
	text := fmt.Sprintf("%s %s: status %d", e.Method, e.URL, e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if meaning := e.Unwrap(); meaning != nil && !errors.Is(meaning, ErrNotFound) {
		text += " (" + meaning.Error() + ")"
	}
	return text
}

// Unwrap returns the error that corresponds to the status.
func (e *statusError) Unwrap() error {
	switch {
	case e.Code == "GatedRepo":
		return ErrGated
	case e.Status == http.StatusNotFound:
		return ErrNotFound
	case e.Status == http.StatusUnauthorized:
		return ErrUnauthorized
	case e.Status == http.StatusForbidden:
		return ErrForbidden
	case e.Status == http.StatusConflict, e.Status == http.StatusPreconditionFailed:
		return errConflict
	default:
		return nil
	}
}

// transient reports whether the same request may succeed later.
func (e *statusError) transient() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// maxMessage is the maximum number of bytes of a server's error message.
const maxMessage = 2 << 10

// readStatusError reads the error in an unsuccessful response, and closes the response.
func readStatusError(response *http.Response) *statusError {
	defer func() { _ = response.Body.Close() }()
	e := &statusError{
		Method:     response.Request.Method,
		URL:        bare(response.Request.URL),
		Status:     response.StatusCode,
		Code:       printable(response.Header.Get("X-Error-Code")),
		Message:    printable(response.Header.Get("X-Error-Message")),
		RetryAfter: pause.Requested(response.Header),
	}
	if e.Message == "" {
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxMessage))
		var answer struct{ Error string }
		if json.Unmarshal(body, &answer) == nil {
			e.Message = printable(answer.Error)
		}
	}
	return e
}

// bare returns a URL without secrets.
func bare(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// printable returns a server's text in a form that is safe for a terminal.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, text[:min(len(text), maxMessage)])
	return strings.TrimSpace(strings.ToValidUTF8(text, "?"))
}
