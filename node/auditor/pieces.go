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

// hasTurn reports whether a case may use the trainer. The case whose recomputation was interrupted has precedence,
// because the trainer would drop its progress for the progress of a second case. Trials precede reviews, and cases
// that may end in an accusation precede other reviews.
func (a *Auditor) hasTurn(q *auditCase) bool {
	switch {
	case a.unfinished == nil, a.unfinished.resultID == q.resultID:
		return true
	case a.isTrial(a.unfinished):
		return false
	}
	return a.isTrial(q) || q.failed > 0 || q == a.ofItself
}

// inherit continues the time of another case about the same result, whose progress the trainer continues.
func (a *Auditor) inherit(q *auditCase) {
	if u := a.unfinished; u != nil && u != q && u.resultID == q.resultID {
		q.spent = max(q.spent, u.spent)
	}
}

func (a *Auditor) isTrial(q *auditCase) bool {
	j := a.trials[q.resultID]
	return j != nil && &j.auditCase == q
}

// isPursued reports whether a case is still a part of this client's work.
func (a *Auditor) isPursued(q *auditCase) bool {
	if a.isTrial(q) {
		return a.mayJudge(a.trials[q.resultID])
	}
	r := a.reviews[q.resultID]
	return r != nil && &r.auditCase == q || a.ofItself == q
}
