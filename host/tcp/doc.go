// Package tcp implements the client for a run on a server (package host/server).
//
// The main type is Client. Dial connects, proves the client's key and returns. Afterwards Updates
// delivers the states that the server pushes, and Submit sends actions. If the connection breaks,
// the Client reconnects by itself, with growing pauses. Until then Submit returns
// backend.ErrDisconnected. The Client gives up and closes Updates if its context ends, if
// Options.ReconnectTimeout is over, or if the server refuses it for a permanent reason (wrong run,
// a second client with the same key, another protocol version).
//
// Nonces of actions start at the Unix time in nanoseconds, so that they increase across restarts
// without stored state. If the clock has gone back, the Client continues from the nonce in the
// coordinator's state instead.
package tcp
