package auditor

// A recomputation yields to all other work. Then the trainer keeps its progress, as far as there is memory, and
// the next request for the same recomputation continues it, perhaps in a later round. The trainer keeps only one.
// So an interrupted recomputation precedes others.

// dropUnfinished makes the trainer drop the progress of an interrupted recomputation that is no longer needed.
func (a *Auditor) dropUnfinished() {
	q := a.unfinished
	if q == nil || a.isPursued(q) && !q.isOver() {
		return
	}
	a.unfinished = nil
	a.Engine.Auditor().Abandon(q.Step, q.Trainer)
}

// isPursued reports whether a case is still a part of this client's work.
func (a *Auditor) isPursued(q *auditCase) bool {
	r, j := a.reviews[q.resultID], a.trials[q.resultID]
	return r != nil && &r.auditCase == q || j != nil && &j.auditCase == q || a.ofItself == q
}
