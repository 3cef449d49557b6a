// Package serve is a data server: it gives the members of a run the token sequences that
// the run assigns to them, and those of past rounds to whoever audits them.
//
// New makes a Server of any data.Provider. It follows the run by the coordinator's states,
// which the caller passes to Update, and talks to clients (package files/data/remote) by the
// protocol of package files/data/remote/message: TLS with the server's ed25519 key, and clients
// that sign with theirs.
//
// The newest state, and the rounds that were noted before it, say which key gets which data:
//
//   - A connection is kept for keys that are healthy members of the epoch, or wait for the
//     next one, and in audited runs for members that left lately.
//   - Own samples are for healthy members, and a request must lie within one batch that is
//     assigned to the client in one of the rounds that the state has: the running one and
//     up to three before it. That covers rounds whose results are applied late, a second
//     attempt, and the time between two rounds.
//   - Each round's batch is delivered to its client a few times at most.
//   - In audited runs members get the batches of others too, once their rounds are over: of the
//     newest rounds, and of those that somebody is on trial for. There is a bound for each, and
//     members that train a batch go before those that audit one.
//   - Every batch ends with a receipt, a data.Receipt.
//   - Fingerprints (hashes of single sequences, by which a client compares this server with
//     another location) are for healthy members, of sequences that some round had.
//
// A client may see a state before the server does. So a request that a later state may
// allow waits a moment for it; what is not allowed then is denied by name and counted.
//
// Every key has one connection, on which one request is answered at a time; the newest
// connection wins. Connections that have not proved a key yet wait in an admission.Limiter.
// The memory of a connection is that of one piece of a batch.
package serve
