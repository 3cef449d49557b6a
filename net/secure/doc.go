// Package secure provides TLS between a client and the host of a run, authenticated by the host's
// ed25519 key.
//
// A host needs no certificate authority: its certificate is derived from its key and signed by it,
// so the client checks only the host's identity.ID. ServerConfig is for the host. Client is for the
// client: it passes the ID that the host has proved to a function that accepts or rejects it. The
// package has two such functions. Pin accepts one ID that the user provided. KnownServers.Check
// accepts the ID that it saw first for an address, and remembers it in a file (trust on first use).
package secure
