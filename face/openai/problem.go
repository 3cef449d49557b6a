package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// problem is an error in the form of the API.
type problem struct {
	status  int
	kind    string // type
	message string
	param   string // field of the request; may be empty
	code    string // may be empty
	cause   error  // for the log only; may be nil
}

// Error implements error.
func (p *problem) Error() string { return p.message }

func (p *problem) body() any {
	null := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	return map[string]any{"error": map[string]any{"message": p.message, "type": p.kind, "param": null(p.param), "code": null(p.code)}}
}

// maxParam limits the name of a field in a problem, in bytes, because names come from requests.
const maxParam = 200

// invalid returns a problem with the content of a field.
func invalid(param, code, format string, args ...any) *problem {
	if len(param) > maxParam {
		param = strings.ToValidUTF8(param[:maxParam], "")
	}
	return &problem{status: http.StatusBadRequest, kind: "invalid_request_error", message: fmt.Sprintf(format, args...), param: param, code: code}
}

// busy returns a problem of an overloaded server.
func busy(format string, args ...any) *problem {
	return &problem{status: http.StatusTooManyRequests, kind: "rate_limit_error", code: "queue_full", message: fmt.Sprintf(format, args...)}
}

var (
	closing = &problem{status: http.StatusServiceUnavailable, kind: "server_error", code: "closing", message: "the server is shutting down"}
	gone    = &problem{status: http.StatusRequestTimeout, kind: "invalid_request_error", message: "the client disconnected"} // never read, because the client has disconnected
)

// early returns the reason why a request ended early.
func early(ctx context.Context) *problem {
	switch why := context.Cause(ctx); {
	case errors.Is(why, errClosing):
		return closing
	case errors.Is(why, errEvicted):
		return busy("the server is full, and preferred a request of another address; retry later")
	case errors.Is(why, errTime):
		return &problem{status: http.StatusServiceUnavailable, kind: "server_error", code: "timeout", message: "the server's time limit for a request passed before the answer began; retry later"}
	}
	return gone
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil { // cannot happen: all values are valid JSON
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the reader may have disconnected
}
