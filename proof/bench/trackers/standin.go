package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

// manner is how a service treats its callers.
type manner string

const (
	answers manner = "answers"
	hangs   manner = "hangs"
	refuses manner = "refuses"
	garbage manner = "garbage"
)

// standin stands in for Weights & Biases and an OpenTelemetry collector.
type standin struct {
	*httptest.Server
	requests atomic.Int64
	release  chan struct{}
}

// run is what Weights & Biases answers to a client that begins a run.
const run = `{"data":{"upsertBucket":{"bucket":{"name":"r","project":{"name":"p","entity":{"name":"e"}}}}}}`

// newStandin returns a service of a manner. One that refuses does not listen any more.
func newStandin(how manner) *standin {
	s := &standin{release: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		switch {
		case how == hangs:
			<-s.release
		case how == garbage:
			_, _ = w.Write([]byte("\x00\xff{\"data\": [garbage"))
		case strings.HasPrefix(r.URL.Path, "/graphql"):
			_, _ = w.Write([]byte(run))
		}
	}))
	if how == refuses {
		s.Close()
	}
	return s
}

// end lets all callers go that wait.
func (s *standin) end() {
	close(s.release)
	s.Close()
}

// environment lets clients send to the stand-in what they can.
func (s *standin) environment() []string {
	return []string{
		"WANDB_API_KEY=secret", "WANDB_MODE=online", "WANDB_BASE_URL=" + s.URL,
		"OLTP_METRICS_URL=" + s.URL + "/v1/metrics", "OLTP_LOGS_URL=" + s.URL + "/v1/logs", "OLTP_TRACING_URL=" + s.URL + "/v1/traces",
		"OLTP_REPORT_INTERVAL=2",
	}
}
