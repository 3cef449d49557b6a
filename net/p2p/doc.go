// Package p2p connects the members of a run with each other and carries their bytes.
//
// A Node is a libp2p host whose identity is the participant's ed25519 key, so the
// party at the other end of every connection is known by its identity.ID. It listens
// on QUIC and on TCP with TLS 1.3, only at the addresses it is given. Who may connect
// comes from SetMembers; everybody else is refused in both directions, and a member that
// is dropped from the list is disconnected at once. Where members are comes from the
// list, too, from other members, and from the local network; members that nobody can
// dial are reached through others that relay. Members that misbehave are scored
// (Penalise, Score, Avoids).
//
// On top of a Node are
//   - Handle and Request: one bounded request, one bounded response;
//   - HandleStream and OpenStream: a raw stream to a member, for protocols of their own;
//   - HandleBulk and OpenBulk: the same for exchanges with much to send, over connections
//     without a multiplexer where that is possible;
//   - package gossip: small signed messages to every member;
//   - package blob: content-addressed payloads from any member that holds them.
//
// Order of calls: New; Handle and HandleStream for what this node serves (and
// gossip.Join, blob.Serve); SetMembers, again whenever the members change; Request,
// OpenStream; Close. The node keeps itself connected to every member it has an
// address of. All methods may be called from several goroutines.
package p2p
