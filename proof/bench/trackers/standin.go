package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

// manner is the behaviour of a service.
type manner string

const (
	answers manner = "answers"
	hangs   manner = "hangs"
	refuses manner = "refuses"
	garbage manner = "garbage"
)

// standin is a fake of Weights & Biases and of an OpenTelemetry collector.
type standin struct {
	*httptest.Server
	requests atomic.Int64
	release  chan struct{}
}

// run is the answer of Weights & Biases to a client that starts a run.
const run = `{"data":{"upsertBucket":{"bucket":{"name":"r","project":{"name":"p","entity":{"name":"e"}}}}}}`

// newStandin returns a service with a behaviour. A refusing service does not listen.
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

// end releases all waiting callers.
func (s *standin) end() {
	close(s.release)
	s.Close()
}

// environment returns the environment that makes clients send to the fake service.
func (s *standin) environment() []string {
	return []string{
		"WANDB_API_KEY=secret", "WANDB_MODE=online", "WANDB_BASE_URL=" + s.URL,
		"OLTP_METRICS_URL=" + s.URL + "/v1/metrics", "OLTP_LOGS_URL=" + s.URL + "/v1/logs", "OLTP_TRACING_URL=" + s.URL + "/v1/traces",
		"OLTP_REPORT_INTERVAL=2",
	}
}
