// Package blob moves immutable payloads between members by their BLAKE3 hash.
//
// A Store holds payloads, small ones in memory and large ones in a folder if it has one,
// each in the other place when its own is full, and serves them to the members of a p2p.Node. Fetch gets a payload from all its holders
// at once, in ranges, and checks every 16 KiB against the hash before it counts, so that
// no holder can make us keep a wrong byte, what one holder delivered is never fetched
// again from another, nor after a restart, and a holder that sent wrong bytes is known by
// name.
//
// A member lends the data that it has anyway, from its memory or from a file of its own.
//
// Order of calls: NewStore or OpenStore; Serve; then any number of Put, Fetch, FetchUpTo,
// Get; Retain what must stay and Drop what is over; Close. All may be called from several
// goroutines.
//
//	store := blob.NewStore(1 << 30)
//	blob.Serve(node, store)
//	hash := store.Put(payload)
//	data, err := blob.Fetch(ctx, node, store, hash, size, holders)
//	store.Drop(hash)
//
// # Protocol /psyche/blob/1
//
// One request is one range, on a stream or on a bulk connection of package p2p. Integers are little-endian.
//
//	request:  hash [32]byte, offset uint64, length uint64
//	response: status uint8 (0 follows a slice, 1 not held, 2 no such range), slice
//
// The slice is the payload's size as uint64, the parent hashes that lead to the 16 KiB
// groups of the range, in pre-order, and the bytes of the range. offset is a multiple of 16 KiB;
// length is at most 4 MiB and a multiple of 16 KiB unless the range ends the payload.
// The pair offset = 2^64−1, length = 0 asks for the last group, which proves the size.
package blob
