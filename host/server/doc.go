// Package server hosts the coordinators of runs on TCP.
//
// Run listens, and works until its context ends. What a participant sends takes this way: a
// connection (handshake.go, connection.go) proves the server's key with TLS, learns who the
// client is and what it wants with which run, reads a frame, verifies the signature, decodes
// the action and hands it to the run's host (host.go), the only goroutine that touches the
// state. The host applies it, appends it to the journal, waits for the disk, answers, and
// publishes the new state (feed.go), which every connection pushes to its client: what
// changed, or the whole to one that is too far behind, so a slow reader costs no queue. The
// host also ticks the state machine, and withdraws participants whose connection is gone for
// longer than the grace period.
//
// A server has many runs (runs.go): those of Options.Runs, those that clients whom
// Options.Create allows began over the network, and those that Options.SaveStateDir has
// from before. Strangers share few places (package net/admission), so that members always
// find one, and an address that takes all of them does not keep others out.
//
// With Options.SaveStateDir runs survive a kill at any moment: a run's journal (record.go,
// package record/journal) has the state it began with and every input since, and is
// replayed at the start from the newest snapshot on (store.go, snapshot.go). Replay does the
// same for a copy of the file on another machine.
//
// With Options.HTTPListen there is an HTTP server (http.go) with GET /healthz, /metrics for
// Prometheus (metrics.go), and /state, which lists the runs, or with ?run= shows one
// (package host/server/status).
package server
