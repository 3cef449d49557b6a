// Package p2pnet implements env.Network, the peer-to-peer network of a client, with package p2p,
// its gossip and its blobs.
//
// The main type is Network. Its owner creates the p2p node and the blob store, passes the Network
// to client.New, and closes the node after the client has ended.
package p2pnet
