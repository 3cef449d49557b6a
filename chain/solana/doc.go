// Package solana follows a run whose coordinator is a program of a Solana chain, and acts in it.
// Its Client implements the contract of package backend.
//
//	c, err := solana.Dial(ctx, solana.Options{Endpoints: endpoints, Program: program, Run: run, Key: key})
//	for update := range c.Updates() { ... }
//
// The files that decide are apart from those that talk to endpoints, and have no clock:
//
//   - agreement compares what the endpoints show: a state counts when most of them show it, or
//     when it follows from signed transactions (replay); an endpoint that shows something else is named.
//   - clock is the chain's time and slot, as far as the last look tells.
//   - tickPlan and rank say whether a tick is due, and who sends it when, so that one of all pays.
//   - delivery is the life of a transaction: sent again, signed anew, landed, refused.
//   - price chooses what is offered for it.
//
// A second client of the same key cannot be noticed, and nobody withdraws a member that
// is gone: the witnesses find that its results are missing.
package solana
