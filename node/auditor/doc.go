// Package auditor is what a member of a run with audits does so that all can rely on each other's
// results. docs/audit.md has the rules.
//
// An Auditor sees its client through three things that it declares itself: Client (the state, the
// rounds, the model), Engine (the trainer) and the Submit of its Options. The client tells it of every
// newer state (Observe) and of every event (Advance), asks it before a training (MayTrain, MayBegin,
// Press), hands the Chain to the training, and each applied round to it (Record, Keep). Nothing
// of it waits: what takes time runs in tasks, and is asked for again by the next Advance.
//
// The files:
//
//   - chain.go: the own results: what became of the newest is known, and it is opened, before the next
//     is made.
//   - review.go: throwing dice for results of others, and accusing those that are not right.
//   - trial.go: voting about those who are accused.
//   - case.go, recompute.go: what both do to know what to think of a result, phase by phase; poll.go is
//     how something is asked for until it is there.
//   - record.go, past.go, payloads.go: what is kept of the newest rounds: which results are held, whose,
//     from which step each says that it goes on, and their bytes, whatever they weigh.
//   - gather.go: collecting the parts of an opening from its trainer and from other members.
//   - openings.go, part.go, turns.go: the parts that this member serves, their bytes, and the order of serving.
//   - dice.go: which result a member looks at.
package auditor
