// Package tally keeps the tally of a round: who announced what, what is held of it, what
// the witnesses say, which results count in the end, what is lacking, and which members should have
// it.
//
// It is pure: no I/O, no clock, no goroutine. Time is passed in, blobs are known by their
// hashes only. An auditor that has a run's log and the announcements arrives at the same
// counted results as every client:
//
//	t := tally.New(round, epochStart, round.Assignments(config))
//	t.Renew(round, true)                        // with the witnesses of the finished round
//	err := t.Hear(author, announcement, raw)    // each announcement, in any order
//	outcome := t.Decide()                       // outcome.Counted stands when it is Known
//
// The files, from what comes in to what comes out:
//
//   - tally.go: a Tally, its slots and candidates, and how these change their state.
//   - hear.go: which announcements are entered, and which make room for others.
//   - outcome.go: the proof of what is held, the outcome of a finished round, and what of
//     it is lacking.
//   - ballot.go, lists.go: how the witnesses' filters, roots and lists decide what counts.
//   - replica.go: the hash of everything that was applied.
package tally
