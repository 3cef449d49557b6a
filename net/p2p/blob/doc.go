// Package blob transfers immutable payloads between members, addressed by their BLAKE3 hash.
//
// A Store holds payloads and serves them to the members of a p2p.Node. It keeps small payloads in
// memory and large ones in a folder, if it has one. If the preferred medium is full, it uses the
// other. A member can also lend data that it already has in memory or in a file (Store.Lend,
// Store.LendFrom).
//
// Fetch downloads ranges of a payload from all its holders concurrently. It verifies every 16 KiB
// against the hash. Therefore
//
//   - a holder cannot make the store keep a wrong byte,
//   - verified data is not fetched again, not even from another holder or after a restart,
//   - a holder that sent wrong bytes is identified.
//
// Order of calls: NewStore or OpenStore; Serve; then any number of Put, Fetch, FetchUpTo and get;
// Retain for payloads that must stay and Drop for payloads that are no longer needed; Close. All
// functions may be called concurrently.
//
//	store := blob.NewStore(1 << 30)
//	blob.Serve(node, store)
//	hash := store.Put(payload)
//	data, err := blob.Fetch(ctx, node, store, hash, size, holders)
//	store.Drop(hash)
//
// # Protocol /psyche/blob/1
//
// A request asks for one range, on a stream or on a bulk connection of package p2p. Integers are
// little-endian.
//
//	request:  hash [32]byte, offset uint64, length uint64
//	response: status uint8 (0: the slice follows, 1: payload not held, 2: no such range), slice
//
// The slice consists of the payload's size as uint64, the parent hashes on the paths to the 16 KiB
// groups of the range, in pre-order, and the bytes of the range. offset is a multiple of 16 KiB.
// length is at most 4 MiB, and a multiple of 16 KiB unless the range ends the payload. The pair
// offset = 2^64−1, length = 0 asks for the last group, which proves the size.
package blob
