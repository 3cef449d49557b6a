// Package p2pnet is the peer-to-peer network of a client: package p2p with its gossip
// and blobs behind the interface env.Network.
//
// The main type is Network. Its owner makes the p2p node and the blob store, gives the
// Network to client.New, and closes the node after the client has ended.
package p2pnet
