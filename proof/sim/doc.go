// Package sim implements deterministic simulation testing of whole training runs. A run executes in
// one process, on a virtual clock and under injected faults, and is checked for violated
// assertions. A seed determines everything: the same seed gives the same run, event for event.
//
//	result := sim.Run(sim.Options{Seed: 7, Clients: 64, Rounds: 8, Faults: scenario.AllFaults}) // result.Violation
//	summary, err := sim.RunSeeds(ctx, sim.SeedOptions{First: 1, Last: 1000, …})
//
// Real and simulated parts:
//
//   - Real: coordinator.State; client.Node, the whole client with all its decisions; the entries
//     and the reading of the journal (record/journal).
//   - Simulated: time (timeline); the host around the state machine (host.go) with its disk (disk);
//     machines that run, crash and start clients (process.go), and their tasks, which are
//     coroutines (tasks.go, coroutine); the network between clients and to the host (network.go,
//     backend.go), and in runs whose links have a bandwidth, the transfer times of messages
//     (bandwidth.go, links); an integer trainer (trainer.go, model), with a toy optimizer in runs
//     with audits (audited.go); signatures, which cannot be forged because a registry knows their
//     authors (signatures).
//
// A seed runs in one goroutine, without any concurrency.
//
// Package scenario draws the parameters and faults of a run from the seed (faults.go injects them),
// and cast selects the Byzantine members. Their behaviour is in adversary.go, in court.go for
// audits, in hog.go for members that harm others on slow links, and in coalition.go and byzantinehost.go for
// coalitions. Package check lists the assertions. It observes every step, and asserts from its own
// independent records, with one file for each subject. shrink.go searches for the smallest run that
// still violates an assertion.
package sim
