// Package core implements the host of one run as a deterministic value: it handles signed actions,
// connecting and disconnecting clients, and time. It has no clock, goroutine, disk or network. The
// TCP server, the simulator, the in-memory host and the Byzantine hosts of tests all wrap this
// package, so the simulator checks the code that runs in production.
//
// One goroutine drives a Host:
//
//	h.Submit(now, action, from, answer) // for each received action with a verified signature
//	h.Tick(now)                         // withdraws disconnected clients, runs due transitions
//	records, err := h.Ready()           // records that the caller must make durable
//	h.Advance(now, publish)             // after they are durable: publishes, then answers
//	h.Sleep(now, beat)                  // maximum time until the next call of Tick
//
// Only this package defines the order: a host makes an accepted action durable before it shows the
// action to any client, and it publishes the new state before it answers the sender. A client that
// receives an answer therefore finds its action in the state. Before Advance, a caller has nothing
// to publish and nothing to answer.
//
// The caller implements everything that differs between hosts: sockets and the limits for unknown
// clients, the storage of records, the wire format of updates, and access control.
package core
