// Package env is what a client lives in, as interfaces that others implement: the host of
// the run, the network of members, training data, the trainer, and the clock and tasks that
// everything runs on.
//
// Behind them are host/tcp, node/p2pnet, package data and, by node/member, package train in
// a real client, host/memory and node/memnet in tests, and package sim, in which time is
// virtual and everything happens in an order that a seed decides.
package env
