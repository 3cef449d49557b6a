// Package invite implements invite links. An invite link is a string with all information that a
// client needs to join a run: the address of the server, the run, the key of the server, and the
// hash of the run.
//
//	psyche://HOST:PORT/RUN?key=KEY&genesis=HASH
//
// A run on a chain has another form of link, ChainLink:
//
//	psyche+solana://PROGRAM/RUN?authority=KEY&rpc=URL
//
// Parse and ParseChain parse a link strictly and report which part is wrong. Link.String and
// ChainLink.String write it. A user who got a link through a trusted channel does not need to trust
// the network.
package invite
