// Package tui implements terminal displays for clients, servers and local networks.
//
// A Client and a Server follow event logs. A Testnet receives its data through Update. Start and
// New switch the terminal to its alternate screen and draw; Close restores the terminal. Callers
// that update a display never wait for the terminal. Displays are read-only, except for the key of
// the server's display that pauses a run. They pass on Ctrl-C as an interrupt, because a terminal
// in raw mode sends no signal. They strip control sequences from untrusted text.
package tui
