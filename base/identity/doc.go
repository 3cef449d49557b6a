// Package identity holds the ed25519 keys that name every participant of a run.
//
// A Key signs; an ID is the public key and is what everybody else knows of a
// participant. The same key signs actions for the coordinator and identifies the
// participant on the peer-to-peer network. Every signature is bound to a domain
// string, so bytes signed for one purpose verify for no other.
//
// Keys are read from and written to the two formats of the ecosystem: the JSON
// array of 64 numbers that solana-keygen writes, and a raw file of the 32 seed
// bytes.
package identity
