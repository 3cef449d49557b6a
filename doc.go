// Package psyche is the tour of a system that trains transformer language models
// over the internet among participants who need not trust each other.
//
// A coordinator (package coordinator) is the only shared truth of a run: a pure state
// machine that a TCP server (package server) hosts. Clients (package client) watch its
// state, train their share of each round (package train), compress the result with
// DisTrO (package distro), exchange results peer to peer (package p2p) and apply what a
// quorum of witnesses has seen, so that every replica holds the same bits.
//
// To follow one round, read in this order:
//
//	cmd/psyche-client        flags and wiring
//	client                   the node: Run, then round_train.go
//	train                    Trainer.Train: batch to gradient to result
//	distro                   momentum, DCT, top-k, sign
//	p2p                      announcements and blobs
//	client/fetch             results of peers
//	client/books             what is known of a round
//	client/round_witness.go  what a witness proves
//	client/settle.go         what counts is applied
//	coordinator              Apply and Tick: how a quorum ends a round
//	train                    Trainer.Apply: the counted results change the weights
//
// The package holds nothing but this text and the tests of the repository itself.
package psyche
