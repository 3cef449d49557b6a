// Package solana implements a client of a run whose coordinator is a program on a Solana chain. Its
// Client implements the contract of package backend.
//
//	c, err := solana.Dial(ctx, solana.Options{Endpoints: endpoints, Program: program, Run: run, Key: key})
//	for update := range c.Updates() { ... }
//
// The decisions are separate from the communication with endpoints, and use no clock:
//
//   - agreement compares the endpoints. A state counts if most endpoints show it, or if it follows
//     from signed transactions (replay). It reports endpoints that disagree.
//   - clock estimates the chain's time and slot from recent samples.
//   - tickPlan and rank determine whether a tick is due and which client sends it when, so that
//     only one client pays.
//   - delivery is the state machine of a transaction: resent, signed again, landed, refused.
//   - price chooses the priority fee of a transaction.
//
// The client cannot detect a second client with the same key. Nothing withdraws a member that
// disappears: the witnesses report that its results are missing.
package solana
