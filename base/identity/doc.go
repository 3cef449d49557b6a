// Package identity implements the ed25519 keys that identify the participants of a run.
//
// A Key signs. An ID is the public key, and identifies a participant to other participants. The
// same key signs actions for the coordinator and identifies the participant on the peer-to-peer
// network. Every signature covers a domain string, so bytes signed for one purpose verify for no
// other.
//
// Key files have two formats: the JSON array of 64 numbers that solana-keygen writes, and a raw
// file with the 32 seed bytes.
package identity
