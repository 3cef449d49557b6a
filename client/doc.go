// Package client is the node: it takes part in a run, trains its batches, exchanges
// results with its peers and keeps its model bit for bit the one of the run.
//
// The main type is Node:
//
//	node, err := client.New(client.Options{…})
//	err = node.Run(ctx) // nil when the run is finished
//
// The package knows training, network, data and host through the interfaces of
// network.go; package train, client/p2pnet, package data and backend/tcp are behind them
// in a real client, memnet and backend/memory in tests.
//
// # How it works
//
// One goroutine, the loop of Run (node.go), owns all state. Whatever takes time runs in
// goroutines that the loop starts and that hand it a continuation when they are done;
// the trainer does one thing at a time. After every event the loop calls reconcile, which
// compares what should be with what is and starts what is missing. So a state that was
// never seen, a lost message or a broken connection needs no special path: the next
// reconcile meets it.
//
// # A tour of one round
//
//   - membership.go: observe takes over the coordinator's newest state; keepSeat joins
//     when the client has no place in the run, or one that it cannot fill.
//   - warmup.go: a member loads the model that the checkpoint names: its own, the one
//     the run began with, or from its peers, manifest first, then every tensor and file
//     from any holder. Then it says Ready. model.go knows what is held and shared.
//     replay.go gets there from an earlier model that is held, by the results that were counted since,
//     when these are fewer bytes; history.go keeps them for others.
//   - round_train.go: keepUp applies the round apply_lag before (settle, below). Then the own
//     batch is trained, its result becomes a blob, and a signed announcement is gossiped.
//   - rounds.go: announcements of peers are entered into the round's books (results.go).
//     fetch.go gets and verifies their blobs; a peer that stalls gives way to others as
//     soon as it is slower than its size and the pace of the others explain. heal.go
//     repeats and asks for what gossip lost.
//   - round_witness.go: an elected witness sends its proof when it holds the results of
//     all healthy members, or at the round's end what it has. settle decides from the
//     proofs which results count (replica.go), completes them, applies them and extends
//     the replica hash. A client that cannot, or whose replica hash is not the one of
//     the witnesses, gives up its place and joins again (desynchronise).
//   - cooldown.go: after an epoch's last round the outstanding results are applied, the
//     model is shared as blobs, its digest reported, and save.go writes the checkpoint.
//
// runtime.go has clock and tasks as an interface: package sim drives the same Node by Step
// (step.go) on a virtual clock, in an order that a seed decides.
//
// exchange.go and history.go have the protocols that clients answer for each other, report.go the
// words of events.
package client
