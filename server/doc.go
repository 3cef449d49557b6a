// Package server hosts a run's coordinator on TCP.
//
// Run listens, and works until its context ends. What a participant sends takes this way:
// a connection (conn.go) reads a frame, verifies the signature, decodes the action and
// hands it to the host (host.go), the only goroutine that touches the state. The host
// applies it, appends it to the journal, waits for the disk, answers, and publishes the new
// state, which every connection pushes to its client: the newest one only, so a slow reader
// costs one state and no queue. The host also ticks the state machine, and withdraws
// participants whose connection is gone for longer than the grace period.
//
// With Options.SaveStateDir the state survives a kill at any moment: the journal (record.go,
// package server/journal) has the genesis state and every input since, and is replayed at
// the start. Replay does the same for a copy of the file on another machine.
package server
