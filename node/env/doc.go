// Package env defines the interfaces between a client and its environment: the host of the run, the
// network of members, training data, the trainer, and the clock and tasks.
//
// In a real client, the implementations are host/tcp, node/p2pnet, package data and, through
// node/member, package train. In tests they are host/memory and node/memnet. Package sim implements
// them with virtual time and an order of events that a seed determines.
package env
