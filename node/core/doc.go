// Package core contains decisions of a member of a run as values. It has no context, clock,
// goroutine, disk or network: package node/client executes the decisions.
//
// One goroutine drives a Member:
//
//	m.Step(now, event)   // after each event
//	ready := m.Ready()   // effects of the event, for the caller to execute
//	m.Advance()          // after the caller has executed them; only then the next Step may follow
//
// A Member compares the desired state with the actual state in each Step, so events may be lost or
// repeated. The scripts in testdata specify its decisions.
//
//   - member.go: Member passes each event to the phase that it belongs to.
//   - ready.go: the form of events and effects.
//   - seat.go: Join, Ready, Return and Withdraw; holder.go: the wait for a holder of the run's model.
//   - loading.go: Warmup: when to load a model, its sources, and when to give up. returning.go: the way back
//     to the rounds of an epoch.
//   - replica.go: Replica, a member's state in an epoch. cooldown.go: the end of the epoch: outstanding
//     results, the model, and its report.
//   - finish.go: the end of the run.
//   - applying.go: when a member applies the results of a finished round, also before it needs them, and when it
//     gives up. intermediate.go: which models of the running epoch it takes and reports.
//   - training.go: which batch a member trains, and when it trains ahead; outlook.go: whether
//     speculation pays.
//   - background.go: which work of the trainer has precedence. measuring.go: when the member measures
//     the model of an epoch.
//   - speed.go: the speed of the member's trainings; offers.go: which speed it offers, and when.
//   - leaving.go: the remaining work of a leaving member; leave.go: how long it stays.
//   - waiting.go: reports about why a client is idle.
//   - witness.go: when a witness sends its proof, and which members it reports. part.go: Part, a
//     member's part in a round; pace.go: how long members need for a result.
//   - commitments.go: the values that Join and Ready commit to.
//   - actions.go: Actions decides when an action may be sent again.
//   - jobs.go: Jobs tracks the work in progress, and decides whether a result is still wanted when
//     the work ends.
//   - work.go: the kinds of work.
//   - signing.go: Signing orders the publication of this member's results: a result is signed when
//     its signing record is durable, and announced when it is signed.
package core
