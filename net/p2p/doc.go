// Package p2p is the peer-to-peer network of a run, on top of libp2p. It connects the members of a
// run with each other and transfers requests, streams, gossip and blobs between them.
//
// A Node is a libp2p host whose identity is the participant's ed25519 key, so the identity.ID of
// the peer is known for every connection. It listens on QUIC and on TCP with TLS 1.3, only at the
// configured addresses.
//
// SetMembers defines the peers that may connect. The node refuses all others in both directions,
// and disconnects a member at once when SetMembers removes it. The node learns the addresses of
// members from that list, from other members, and from the local network. It reaches members that
// cannot be dialled directly through members that act as relays. The node scores members that
// misbehave (Penalise, Score, Avoids).
//
// A Node offers
//
//   - Handle and Request: one bounded request and one bounded response;
//   - HandleStream and OpenStream: a raw stream to a member, for other protocols;
//   - HandleBulk and OpenBulk: streams for large exchanges, over connections without a multiplexer
//     where possible;
//   - package gossip: small signed messages to all members;
//   - package blob: content-addressed payloads from any member that holds them.
//
// Order of calls: New; Handle and HandleStream for the protocols that this node serves (and
// gossip.Join, blob.Serve); SetMembers, again whenever the members change; Request and OpenStream;
// Close. The node stays connected to every member whose address it knows. All methods may be called
// concurrently.
package p2p
