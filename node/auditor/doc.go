// Package auditor implements the audit work of a member in a run with audits: opening its results,
// auditing other members' results, accusing, and voting in trials. docs/audit.md describes the
// rules.
//
// An Auditor uses its client only through two interfaces that it declares, Client (state, rounds,
// model) and Engine (the trainer), and through Options.Submit. The client calls Observe for every
// newer state, Advance after every event, and MayTrain, MayBegin and Preempt before a training. It
// passes the Chain to the training, and each applied round to the Auditor (Record, Keep). No method
// blocks: slow work runs in tasks, and the next Advance uses its results.
//
// The files:
//
//   - chain.go: this client's results. Before the next result is made, the outcome of the newest is
//     known, and the newest is opened.
//   - review.go: drawing other members' results to audit, and accusing trainers of wrong results.
//   - trial.go: voting about accused members.
//   - case.go, recompute.go: the common part of an audit and a vote, which examines one result
//     phase by phase; poll.go repeats a request until it is answered.
//   - record.go, past.go, payloads.go: records of the newest rounds. They contain the attested results,
//     their trainers, their bytes, and the step that each result claims to continue from.
//   - gather.go: collecting the parts of an opening from its trainer and from other members.
//   - openings.go, part.go, turns.go: the parts that this member serves, their bytes, and the order
//     of serving.
//   - random.go: the private random choice of the results to audit.
package auditor
