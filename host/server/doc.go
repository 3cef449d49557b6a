// Package server hosts the coordinators of runs on TCP.
//
// Run listens and serves until its context ends. An action of a participant is processed as
// follows. A connection (handshake.go, connection.go) proves the server's key with TLS and receives
// the client's identity, run and role. It reads a frame, verifies the signature, decodes the action
// and passes it to the run's host (host.go), whose goroutine alone changes the state. The host
// applies the action, appends it to the journal, waits for the disk, publishes the new state
// (feed.go), and answers. Every connection pushes the state to its client: as changes, or as a
// whole if the client is too far behind, so slow readers need no queue. The host also ticks the
// state machine, and withdraws participants that are disconnected for longer than the grace period.
//
// A server has many runs (runs.go): those in Options.Runs, saved runs in Options.SaveStateDir, and
// runs that clients permitted by Options.Create started over the network. Unknown clients share a
// limited number of connections (package net/admission). Members can therefore always connect, and
// no single address can use up all connections.
//
// With Options.SaveStateDir, runs survive a kill at any moment. A run's journal (package
// record/journal) contains the run's starting state and every later input. At start, the server
// replays it from the newest snapshot (store.go, snapshot.go). Replay replays a copy of the file on
// another machine.
//
// With Options.HTTPListen, there is an HTTP server (http.go). GET /healthz reports the server's
// health, and /metrics has metrics for Prometheus (metrics.go). /state lists the runs, or with
// ?run= describes one run (package host/server/status).
package server
