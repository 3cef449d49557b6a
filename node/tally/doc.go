// Package tally implements the tally of a round: which results are announced, which this client
// holds, which count according to the witnesses' proofs, which are missing, and which members should
// have the missing results.
//
// It is pure: no I/O, no clock, no goroutines. Callers pass in the time, and blobs are represented
// by their hashes. An auditor with a run's log and the announcements computes the same counted
// results as every client:
//
//	t := tally.New(round, epochStart, round.Assignments(config))
//	t.Renew(round, true)                        // with the witnesses of the finished round
//	err := t.Receive(author, announcement, raw)    // each announcement, in any order
//	outcome := t.Decide()                       // outcome.Counted is final when it is Known
//
// The files, from input to output:
//
//   - tally.go: a Tally, its slots and candidates, and their state transitions.
//   - receive.go: which announcements are entered, and which are displaced.
//   - outcome.go: this client's proof of the results that it holds, the outcome of a finished round,
//     and its missing results.
//   - ballot.go, lists.go: how the witnesses' filters, roots and lists decide which results count.
//   - replica.go: the hash of all applied results.
package tally
