// Package secure puts TLS between a client and the host of a run, and decides which host
// a client trusts.
//
// A host needs no certificate authority: its certificate is made from its ed25519 key and
// signed by it, so the host's identity.ID is all there is to check. ServerConfig is the
// host's half. Client is the other: it passes the id that the host has proved to a function
// that accepts it or not. Two such functions are here: Pin accepts one id that the user
// gave; KnownServers.Check accepts the id that it saw first for an address and remembers
// it in a file.
package secure
