// Package psyche is the tour of a system that trains transformer language models
// over the internet among participants who need not trust each other.
//
// A coordinator (package coordinator) is the only shared truth of a run: a pure state
// machine that a TCP server (package server) hosts. Clients (package client) watch its
// state, train their share of each round (package train), compress the result with
// DisTrO (package distro), exchange results peer to peer (package p2p) and apply what a
// quorum of witnesses has seen, so that every replica holds the same bits.
//
// To follow one round, read in this order; docs/architecture.md has the functions, each below the
// one that calls it:
//
//	client         the node: Run waits, reconcile starts what is missing
//	client/tally   what is known of a round: what was announced, what counts
//	train/member   from the node to its trainer
//	train          batch to gradient to result; the results that counted change the weights
//	distro/codec   the bytes of a result
//	client/fetch   results of peers
//	server         the host: actions come in, records go out
//	host/core      what a host decides, as a value; durable, published, answered
//	follow         every member does again what the host did
//	coordinator    Apply and Tick: how a quorum ends a round
//
// The package holds nothing but this text and the tests of the repository itself.
package psyche
