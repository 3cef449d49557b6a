// Package client is the node: it takes part in a run, trains its batches, exchanges
// results with its peers and keeps its model bit for bit the one of the run.
//
// The main type is Node:
//
//	node, err := client.New(client.Options{…})
//	err = node.Run(ctx) // nil when the run is finished
//
// It knows training, network, data and host through the interfaces of node/env; package
// train, node/p2pnet, package data and host/tcp are behind them in a real client,
// node/memnet and host/memory in tests.
//
// # How it works
//
// One goroutine, the loop of Run (loop.go), owns all state. Whatever takes time runs in
// tasks that the loop starts and that hand it a continuation when they are done; the
// trainer does one thing at a time (engine.go). After every event the loop calls reconcile,
// which compares what should be with what is and starts what is missing. So a state that was
// never seen, a lost message or a broken connection needs no special path: the next
// reconcile meets it.
//
// # A result, from a peer's gossip to the weights
//
//  1. gossip.go: listen verifies the signature of an announcement and hands it to the loop. A
//     small result comes with it, and pushed checks that too.
//  2. rounds.go: hear enters it into the tally of its round (node/tally, hear.go).
//  3. node/fetch gets its blob from whoever has it, unless it came, verifies it and enters that.
//  4. round.go: an elected witness sends the proof of what its tally holds as soon as
//     that is all that can be expected, or at the round's end what it is.
//  5. settle.go: when the round is over the tally decides from the witnesses' proofs which
//     results count (node/tally, outcome.go); they are applied to the weights, and the
//     replica hash is extended. A client that cannot, or whose replica hash is not the one of
//     the witnesses, gives up its place and joins again (node.go, desynchronise).
//
// # The phases
//
//   - seat.go: keepSeat joins when the client has no place in the run, or one that it cannot
//     fill.
//   - warmup.go: a member obtains the model that the epoch starts from (node/handover)
//     and says Ready.
//   - round.go: what is due is applied, the own batch trained, its result announced.
//     Tokens of the next round are read ahead and its training begins ahead too, with an
//     apply_lag of 1 from what foresee.go expects to count; its result is made when the round
//     has begun as foretold. At the round's end a witness that has not yet proves what it holds.
//   - rejoin.go: a member without the model of the running epoch gets it from what was counted
//     since the epoch began, and a client that was dropped takes its seat back.
//   - cooldown.go: after an epoch's last round the outstanding results are applied, taker.go takes the
//     model, it is shared and its digest reported; node/keep writes the checkpoint.
//   - audits.go: in a run with audits node/auditor opens the own results, looks at those of others
//     when there is time, and votes in trials; it sees this package as audits.go shows it.
//   - finish.go: the end of the run, also for members that were cut off just before.
//
// When two results of one batch are known, equivocation.go has the member that signed both ejected.
//
// Around them: view.go has what is known of the run, submitter.go the actions on their way to
// the coordinator, engine.go also the tokens that the trainer is given and what this key has
// signed, heal.go what is done about lost gossip, report.go what people are told. node.go has what
// a Node is made of.
//
// loop.go also has the clock and the tasks of a Node that runs by itself: package sim drives the same
// Node by Step, on a virtual clock and in an order that a seed decides.
package client
