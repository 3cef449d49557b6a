// Package sim runs whole training runs in one process, on a virtual clock and under
// faults, and checks that what has to hold holds. A seed decides everything: the same
// seed gives the same run, event for event.
//
//	result := sim.Run(sim.Options{Seed: 7, Clients: 64, Rounds: 8, Faults: sim.AllFaults}) // result.Violation
//	summary, err := sim.RunSeeds(ctx, sim.SeedOptions{First: 1, Last: 1000, …})
//
// What is simulated and what is real:
//
//   - Real: coordinator.State; client.Node, the whole client with all its decisions;
//     the entries and the reading of the journal (record/journal).
//   - Simulated: time; the host around the state machine with its disk (host.go,
//     disk.go); machines that run, crash and start clients (process.go); the network
//     between clients and to the host (network.go, backend.go); a trainer of integers
//     (trainer.go), with a toy optimizer behind it where results are audited (audited.go);
//     signatures, which here cannot be forged because a registry knows who made what
//     (registry.go).
//
// One seed runs in one goroutine. Tasks of a client are coroutines (tasks.go) that the
// event loop (world.go) resumes; nothing runs at the same time as anything else.
//
// plan.go draws from the seed what a run is like and what goes wrong in it; adversary.go has
// the participants that lie, court.go those that do so about audits, gang.go and liarhost.go
// those that lie together. assertion.go lists what has to hold. checker_memory.go and chain.go
// are what the checker knows of a run; checker.go is told of every step, and asserts by that
// book, with a page for each subject (checker_court.go, checker_seats.go …). shrink.go looks for
// the smallest run that still breaks an assertion.
package sim
