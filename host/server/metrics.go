package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/psyche-go/psyche/core/coordinator"
)

// metrics are the metrics of a server. Their names start with psyche_server_.
type metrics struct {
	registry       *prometheus.Registry
	connections    *prometheus.CounterVec // by result
	actions        *prometheus.CounterVec // by run, action and result
	transitions    *prometheus.CounterVec // by run
	pushes         *prometheus.CounterVec // by feed and form
	pushedBytes    *prometheus.CounterVec // by feed and form
	sent, received prometheus.Counter
	commit         prometheus.Histogram
}

func newMetrics(s *server) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "psyche", Subsystem: "server", Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "psyche", Subsystem: "server", Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry:    s.options.Registry,
		connections: vector("connections_total", "Connections: accepted, refused, or turned away before they identified themselves.", "result"),
		actions:     vector("actions_total", "Actions that reached the state machine of a run.", "run", "action", "result"),
		transitions: vector("transitions_total", "Changes of the run state.", "run"),
		pushes:      vector("pushes_total", "States and peer lists sent to clients, whole or as a delta.", "feed", "form"),
		pushedBytes: vector("pushed_bytes_total", "Bytes of the states and peer lists, before TLS.", "feed", "form"),
		sent:        counter("sent_bytes_total", "Bytes written to sockets of clients."),
		received:    counter("received_bytes_total", "Bytes read from sockets of clients."),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "psyche", Subsystem: "server", Name: "commit_seconds",
			Help: "Time to make a group of actions durable.", Buckets: prometheus.ExponentialBuckets(0.0001, 3, 10),
		}),
	}
	m.registry.MustRegister(m.connections, m.actions, m.transitions, m.pushes, m.pushedBytes, m.sent, m.received, m.commit,
		runCollector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// register registers the collectors of Options.
func (m *metrics) register(others []prometheus.Collector) error {
	for _, other := range others {
		if err := m.registry.Register(other); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

// count counts an event.
func (m *metrics) count(e Event) {
	switch e.Kind {
	case EventConnected:
		m.connections.WithLabelValues("accepted").Inc()
	case EventTransition:
		m.transitions.WithLabelValues(e.RunID).Inc()
	case EventAccepted:
		m.actions.WithLabelValues(e.RunID, e.Action, "accepted").Inc()
	case EventRefused:
		if e.Action == "" {
			m.connections.WithLabelValues("refused").Inc()
		} else {
			m.actions.WithLabelValues(e.RunID, e.Action, "refused").Inc()
		}
	}
}

// runCollector collects the gauges of every run.
type runCollector struct{ server *server }

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("psyche_server_"+name, help, append([]string{"run"}, labels...), nil)
}

var (
	runState     = gauge("run_state", "1 for the state that the run is in.", "state")
	runEpoch     = gauge("run_epoch", "Epoch of the run.")
	runStep      = gauge("run_step", "Step of the round that is running or comes next.")
	runClients   = gauge("run_participants", "Healthy members and pending clients.")
	runLive      = gauge("run_connections", "Connections by kind.", "kind")
	runJournal   = gauge("run_journal_bytes", "Size of the journal.")
	runStateSize = gauge("run_state_bytes", "Size of the encoded state.")
	runClaimed   = gauge("run_claimed_loss", "Losses that the witnesses of the last finished round claim, which are not verified: median, spread, number of claims, number far from the median.", "of")
)

// runHeldOut has the same label as runClaimed.
var runHeldOut = gauge("run_held_out_loss", "Losses on held-out data that members claim for the run's checkpoint, which are not verified: median, spread, number of claims, number far from the median.", "of")

// Describe implements prometheus.Collector.
func (c runCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runState, runEpoch, runStep, runClients, runLive, runJournal, runStateSize, runClaimed, runHeldOut} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c runCollector) Collect(out chan<- prometheus.Metric) {
	for _, h := range c.server.hosts() {
		send := func(d *prometheus.Desc, value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{h.runID}, labels...)...)
		}
		newest := h.newest.Load()
		for state := coordinator.WaitingForMembers; state <= coordinator.Paused; state++ {
			in := 0.0
			if state == newest.phase.RunState {
				in = 1
			}
			send(runState, in, state.String())
		}
		live, unknown, watching := h.registry.counts()
		send(runLive, float64(live-unknown), "member")
		send(runLive, float64(unknown), "stranger")
		send(runLive, float64(watching), "observer")
		send(runEpoch, float64(newest.phase.Epoch))
		send(runStep, float64(newest.phase.Step))
		send(runClients, float64(newest.participants))
		send(runJournal, float64(h.logSize.Load()))
		send(runStateSize, float64(len(newest.state.payload)))
		for d, c := range map[*prometheus.Desc]coordinator.Claims{runClaimed: newest.claimed, runHeldOut: newest.heldOut} {
			if c.Count > 0 {
				send(d, float64(c.Median)/coordinator.LossUnit, "median")
				send(d, float64(c.Spread)/coordinator.LossUnit, "spread")
				send(d, float64(c.Count), "claims")
				send(d, float64(len(c.Far)), "far")
			}
		}
	}
}

// heldOutLoss returns the losses that members claim for the checkpoint, or else the previous ones.
func heldOutLoss(s *coordinator.State, previous coordinator.Claims) coordinator.Claims {
	if c := s.HeldOut(); c.Count > 0 {
		return c
	}
	return previous
}

// claimedLoss returns the losses that the witnesses of the newest completed round claim.
func claimedLoss(s *coordinator.State) coordinator.Claims {
	if round, found := s.Claimed(); found {
		return round.Losses()
	}
	return coordinator.Claims{}
}
