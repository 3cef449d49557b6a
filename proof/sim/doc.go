// Package sim runs whole training runs in one process, on a virtual clock and under
// faults, and checks that what has to hold holds. A seed decides everything: the same
// seed gives the same run, event for event.
//
//	result := sim.Run(sim.Options{Seed: 7, Clients: 64, Rounds: 8, Faults: scenario.AllFaults}) // result.Violation
//	summary, err := sim.RunSeeds(ctx, sim.SeedOptions{First: 1, Last: 1000, …})
//
// What is simulated and what is real:
//
//   - Real: coordinator.State; client.Node, the whole client with all its decisions;
//     the entries and the reading of the journal (record/journal).
//   - Simulated: time (timeline); the host around the state machine (host.go) with its disk
//     (disk); machines that run, crash and start clients (process.go), and their tasks, which
//     are coroutines (tasks.go, coroutine); the network between clients and to the host
//     (network.go, backend.go), and where a run has links with a bandwidth, the time that messages of
//     their size take on them (bandwidth.go, links); a trainer of integers (trainer.go, model), with a toy optimizer
//     behind it where results are audited (audited.go); signatures, which here cannot be forged
//     because a registry knows who made what (signatures).
//
// One seed runs in one goroutine; nothing runs at the same time as anything else.
//
// Package scenario draws from the seed what a run is like and what goes wrong in it (faults.go lets
// it happen), and cast who lies in it. adversary.go has what they do, court.go what they do about
// audits, hog.go what members do that harm others on slow links, gang.go and liarhost.go what those
// do that lie together. Package check lists what has to
// hold; it is told of every step, and asserts by a book of its own, with a page for each subject.
// shrink.go looks for the smallest run that still breaks an assertion.
package sim
