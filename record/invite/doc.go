// Package invite is the one string by which somebody joins a run: where its server is, which run
// it is, which key the server has to prove, and which hash the run has to have.
//
//	psyche://HOST:PORT/RUN?key=KEY&genesis=HASH
//
// A run on a chain has links of its own, ChainLink:
//
//	psyche+solana://PROGRAM/RUN?authority=KEY&rpc=URL
//
// Parse and ParseChain read a link strictly and say which part is wrong; Link.String and ChainLink.String write it. Whoever
// has a link by a way that they trust needs to believe nothing that the network says.
package invite
