package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/server/status"
)

// Limits of the HTTP server.
const (
	maxWebConnections = 64
	maxWebHeader      = 8 << 10
	webTimeout        = 10 * time.Second // for a request, and for its answer
	stalledAfter      = 5 * time.Second  // a run whose loop is silent for so long is not healthy
)

// serveHTTP answers requests until ctx ends.
func (s *server) serveHTTP(ctx context.Context, listener net.Listener) {
	s.logger.Info("HTTP server is listening", "http", listener.Addr().String())
	if s.options.HTTPReady != nil {
		s.options.HTTPReady(listener.Addr())
	}
	ServeHTTP(ctx, listener, s.handler(), s.logger)
}

// ServeHTTP lets a handler answer requests until ctx ends, within bounds that fit a small
// server that anybody may ask, and closes the listener.
func ServeHTTP(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) {
	web := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: webTimeout, ReadTimeout: webTimeout, WriteTimeout: webTimeout, IdleTimeout: webTimeout,
		MaxHeaderBytes: maxWebHeader,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
		defer cancel()
		if web.Shutdown(patience) != nil {
			_ = web.Close()
		}
	})
	err := web.Serve(&boundedListener{Listener: listener, places: make(chan struct{}, maxWebConnections)})
	if !errors.Is(err, http.ErrServerClosed) {
		logger.Error("the HTTP server ended", "error", err)
	}
	if !stop() {
		<-stopped
	}
}

// handler serves /healthz, /metrics and /state, and Options.Pages.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.serveHealth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /state", s.serveState)
	if s.options.Pages != nil {
		mux.Handle("GET /", s.options.Pages)
	}
	return mux
}

// serveHealth says whether every run's loop works, and what Options.Check finds.
func (s *server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, h := range s.hosts() {
		if trouble := h.trouble.Load(); trouble != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, *trouble)
			return
		}
		if silent := time.Since(time.Unix(0, h.beat.Load())); silent > stalledAfter+h.options.Beat {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(w, "run %q does nothing for %s\n", h.runID, silent.Round(time.Second))
			return
		}
	}
	if check := s.options.Check; check != nil {
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err)
			return
		}
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// serveState shows the run that the query names, or the names of all.
func (s *server) serveState(w http.ResponseWriter, r *http.Request) {
	runID := r.URL.Query().Get("run")
	var body any = struct {
		Runs []string `json:"runs"`
	}{append([]string{}, s.runIDs()...)}
	if runID != "" {
		h := s.find(runID)
		if h == nil {
			http.Error(w, fmt.Sprintf("run %q is not hosted here", runID), http.StatusNotFound)
			return
		}
		state, err := coordinator.Decode(h.newest.Load().state.payload)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body = status.Of(&state, h.run)
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // fails when the client is gone
}

// boundedListener has few connections at a time; others are closed at once.
type boundedListener struct {
	net.Listener
	places chan struct{}
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		socket, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &boundedConn{Conn: socket, release: func() { <-l.places }}, nil
		default:
			_ = socket.Close()
		}
	}
}

// boundedConn gives its place back when it is closed first.
type boundedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}
