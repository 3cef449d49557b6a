// Package tcp is the client's side of a run that a server hosts (package server).
//
// The main type is Client. Dial connects, proves the key and returns; from then on Updates
// carries what the server pushes and Submit sends actions. When the connection is lost the
// Client connects again by itself, with growing pauses; meanwhile Submit returns
// backend.ErrDisconnected. It gives up, and closes Updates, when its context ends, after
// Options.ReconnectTimeout, or when the server refuses it for a reason that time does not
// cure (wrong run, a second client with the same key, another protocol version).
//
// Nonces of actions start at the Unix time in nanoseconds, so that they rise over restarts
// of the process without anything being kept; should the clock have gone back, the nonce
// in the coordinator's state is taken instead.
package tcp
