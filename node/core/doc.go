// Package core contains decisions of a member of a run as values. It has no context, clock,
// goroutine, disk or network: package node/client executes the decisions.
//
//   - jobs.go: Jobs tracks the work in progress, and decides whether a result is still wanted when
//     the work ends.
//   - work.go: the kinds of work.
//   - signing.go: Signing orders the publication of this member's results: a result is signed when
//     its signing record is durable, and announced when it is signed.
package core
