// Package psyche is the tour of a system that trains transformer language models
// over the internet among participants who need not trust each other.
//
// A coordinator (package core/coordinator) is the only shared truth of a run: a pure state
// machine that a TCP server (package host/server) hosts. Clients (package node/client) watch its
// state, train their share of each round (package learn/train), compress the result with
// DisTrO (package learn/distro), exchange results peer to peer (package net/p2p) and apply what a
// quorum of witnesses has seen, so that every replica holds the same bits.
//
// To follow one round, read in this order; docs/architecture.md has the functions, each below the
// one that calls it:
//
//	node/client       the node: Run waits, reconcile starts what is missing
//	node/tally        what is known of a round: what was announced, what counts
//	node/member       from the node to its trainer
//	learn/train       batch to gradient to result; the results that counted change the weights
//	node/fetch        results of peers
//	host/server       the host: actions come in, records go out
//	host/core         what a host decides, as a value; durable, published, answered
//	record/follow     every member does again what the host did
//	core/coordinator  Apply and Tick: how a quorum ends a round
//
// On the way are kernels (package learn/distro), the bytes of a result (package core/codec) and
// what carries them (package net/p2p): a round can be understood without opening them.
//
// The package holds nothing but this text and the tests of the repository itself.
package psyche
