package talk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
)

// Limits of a request.
const (
	maxBody     = 32 << 10
	maxMessages = 31      // of a conversation
	maxText     = 4 << 10 // bytes of one message
	readTime    = 5 * time.Second
)

// Message is a message of a conversation.
type Message struct {
	Role    string `json:"role"`    // user or assistant
	Content string `json:"content"` // up to 4,096 bytes
}

// Question is a reader's request.
type Question struct {
	Messages []Message `json:"messages"` // of the reader and the model in turn, the reader's first and last; one message if the model has no chat template
}

// Answer is the model's answer.
type Answer struct {
	Text string `json:"text"`
	Cut  bool   `json:"cut"` // a limit ended the text
}

// problem is an error with its HTTP status.
type problem struct {
	status int
	text   string
}

// Error implements error.
func (p *problem) Error() string { return p.text }

func refused(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// checkOrigin rejects requests that other web sites send through a reader's browser. On a loopback address, it also
// rejects host names other than localhost, because every site may name this machine (DNS rebinding).
func checkOrigin(r *http.Request) error {
	if http.NewCrossOriginProtection().Check(r) != nil {
		return refused(http.StatusForbidden, "another web site sent this request")
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		name = host
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local != nil && local.IP.IsLoopback() && name != "localhost" && net.ParseIP(strings.Trim(name, "[]")) == nil {
		return refused(http.StatusForbidden, "the page is at a loopback address, but the request names the host %.60q; a proxy must replace the header Host by the address of the page", name)
	}
	return nil
}

// readQuestion reads and checks a request. turns reports whether the model reads conversations.
func readQuestion(w http.ResponseWriter, r *http.Request, turns bool) (q Question, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return q, refused(http.StatusUnsupportedMediaType, "want the content type application/json")
	}
	control := http.NewResponseController(w) // connections without deadlines occur only in tests
	_ = control.SetReadDeadline(time.Now().Add(readTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return q, refused(http.StatusRequestEntityTooLarge, "the conversation has more than %d bytes; begin a new one", maxBody)
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		return q, refused(http.StatusRequestTimeout, "the request did not arrive within %v", readTime)
	}
	_ = control.SetReadDeadline(time.Time{}) // otherwise the deadline would cancel the answer
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil || decoder.More() {
		return q, refused(http.StatusBadRequest, "want a JSON object with messages, each with role and content")
	}
	return q, q.check(turns)
}

// check checks the messages.
func (q Question) check(turns bool) error {
	n := len(q.Messages)
	switch {
	case n > maxMessages:
		return refused(http.StatusBadRequest, "the conversation has %d messages, at most %d are allowed; begin a new one", n, maxMessages)
	case n%2 == 0:
		return refused(http.StatusBadRequest, "want messages of user and assistant in turn, of which the last is the user's")
	case !turns && n != 1:
		return refused(http.StatusBadRequest, "this model has no chat template: want one message, which the model continues")
	}
	for i, m := range q.Messages {
		switch {
		case m.Role != []string{"user", "assistant"}[i%2]:
			return refused(http.StatusBadRequest, "message %d has the role %.20q, want user and assistant in turn", i+1, m.Role)
		case len(m.Content) > maxText:
			return refused(http.StatusBadRequest, "message %d has %d bytes, at most %d are allowed", i+1, len(m.Content), maxText)
		case strings.TrimSpace(m.Content) == "" && m.Role == "user":
			return refused(http.StatusBadRequest, "message %d is empty", i+1)
		case strings.ContainsFunc(m.Content, isControl):
			return refused(http.StatusBadRequest, "message %d contains control characters", i+1)
		}
	}
	return nil
}
