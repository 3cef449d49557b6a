package localnet

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Endpoint is a node with its client interface.
type Endpoint struct {
	server *Server

	mu      sync.Mutex
	faults  Faults
	sockets map[*socket]bool
	random  *rand.Rand
}

// view is the chain as seen by this node.
func (e *Endpoint) view(c Commitment) View { return e.server.ledger.At(c, e.faulty().Lag) }

// ServeHTTP serves JSON-RPC, and accepts WebSockets at any path.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	faults := e.faulty()
	if faults.Dead {
		panic(http.ErrAbortHandler) // drops the connection silently
	}
	if faults.Throttled {
		if seconds := int(faults.Retry / time.Second); seconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
		http.Error(w, "Too many requests", http.StatusTooManyRequests)
		return
	}
	if websocket.IsWebSocketUpgrade(r) {
		e.serveSocket(w, r)
		return
	}
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case r.Method == http.MethodGet && r.URL.Path == "/health":
		_, _ = io.WriteString(w, "ok")
		return
	case r.Method != http.MethodPost:
		http.Error(w, "Used HTTP Method is not allowed. POST or OPTIONS is required", http.StatusMethodNotAllowed)
		return
	case kind != "application/json":
		http.Error(w, "Supplied content type is not allowed. Content-Type: application/json is required", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, err.Error(), status)
		return
	}
	if faults.Delay > 0 {
		select {
		case <-time.After(faults.Delay):
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if a := handle(body, e.call); a != nil {
		_ = json.NewEncoder(w).Encode(a) // fails if the caller has disconnected
	}
}

// call executes one call.
func (e *Endpoint) call(q *request) response {
	method, found := methods[q.Method]
	if !found {
		return answer(q.ID, nil, &rpcError{Code: codeMethod, Message: "Method not found"})
	}
	p, err := q.parameters()
	if err != nil {
		return answer(q.ID, nil, err)
	}
	result, err := attempt(func() any { return method(e, p) })
	if err == nil {
		faults := e.faulty()
		result = faults.falsified(q.Method, result)
	}
	return answer(q.ID, result, err)
}
