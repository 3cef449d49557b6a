package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/net/frame"
)

// stalledAfter is the maximum silence of a healthy run's loop.
const stalledAfter = 5 * time.Second

// serveHTTP serves requests until ctx ends.
func (s *server) serveHTTP(ctx context.Context, listener net.Listener) {
	s.logger.Info("HTTP server is listening", "http", listener.Addr().String())
	if s.options.HTTPReady != nil {
		s.options.HTTPReady(listener.Addr())
	}
	ServeHTTP(ctx, listener, s.handler(), s.logger)
}

// handler serves /healthz, /metrics and /state, and Options.Pages.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, s.serveHealth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /state", s.serveState)
	if s.options.Pages != nil {
		mux.Handle("GET /", s.options.Pages)
		mux.Handle("POST /api/", s.options.Pages)
	}
	return mux
}

// serveHealth reports whether every run's loop works, and the result of Options.Check.
func (s *server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, h := range s.hosts() {
		if trouble := h.trouble.Load(); trouble != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, *trouble)
			return
		}
		if silent := h.silent(); silent > stalledAfter+h.server.options.Beat {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(w, "run %q has not responded for %s\n", h.runID, silent.Round(time.Second))
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

// serveState describes the run in the query, or lists all runs.
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
		newest := h.newest.Load()
		state, err := coordinator.Decode(newest.state.payload)
		peers, peersErr := frame.DecodePeers(newest.peers.payload)
		if err = errors.Join(err, peersErr); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		described := status.Of(&state, h.run)
		described.CallPeers(peers)
		body = described
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // fails if the client has disconnected
}
