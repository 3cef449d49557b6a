// Package serve implements a data server. It sends the members of a run the token sequences that
// the run assigns to them, and sends auditors the sequences of past rounds.
//
// New makes a Server from any data.Provider. The caller passes the coordinator's states to Update,
// and the Server follows the run by them. Clients (package files/data/remote) use the protocol of
// package files/data/remote/message: TLS with the server's ed25519 key, and a client signature.
//
// The newest state, and earlier rounds that the Server recorded, determine which key gets which
// data:
//
//   - Connections stay open for keys that are healthy members of the epoch, or wait for the next
//     epoch; in audited runs, also for members that left recently.
//   - Healthy members get their own samples. A request must lie within one batch that is assigned
//     to the client in a round of the state: the running one or one of up to three before it. This
//     covers rounds whose results are applied late, a second attempt, and the time between two
//     rounds.
//   - Each round's batch is delivered to its client only a few times.
//   - In audited runs, members also get the batches of other members when their rounds are over:
//     batches of the newest rounds, and of rounds for which a member is on trial. Each kind has a
//     bound, and members that train a batch have priority over members that audit one.
//   - Every batch ends with a receipt, a data.Receipt.
//   - Healthy members get fingerprints (hashes of single sequences, which let a client compare this
//     server with another location) of sequences that some round had.
//
// A client may see a state before the server does. A request that a later state may allow therefore
// waits briefly for that state. A request that stays forbidden is denied with a reason and counted.
//
// Every key has one connection, which answers one request at a time; the newest connection replaces
// an older one. Connections that have not yet proved a key wait in an admission.Limiter. A
// connection uses the memory of one piece of a batch.
package serve
