package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

const (
	askPause   = time.Second // between two questions for the same, at most
	leastPause = 50 * time.Millisecond
	leastAsked = 3 // before it is said that somebody did not open or reveal
)

// verification is what a member does in a round in which it does not train: it finds out what the
// gradient of a trainer of the round before should have been, seals that, has the trainer open, and
// says what came of it.
type verification struct {
	step uint32 // of the round
	inquiry
	open      bool // seals and verdicts are taken
	sealed    bool // the own seal is in the log
	precision int  // of its exams the one that the verdict is by

	evidence []byte
	asking   bool
	asked    int
	askAgain time.Time

	looking bool
	verdict *finding // nil: not given yet
	said    []byte   // the report
	told    bool     // the verdict is in the log
	noted   bool     // it was reported

	fellows map[coordinator.ClientID]*revealed // who verified the same
	accused coordinator.Fault                  // of which the trainer is to be accused; 0: of nothing
	why     string
}

// findAudits begins what the newest state asks this client to verify, and forgets what is over.
func (n duty) findAudits() {
	d, s := n.seat.duties, n.run.state
	for _, v := range d.verifying {
		v.open = false
	}
	for _, a := range s.Audits(n.run.myself()) {
		v := d.verifying[a.Step]
		if v == nil && a.Sealed && !a.Judged {
			continue // an earlier process sealed what it had computed; from later weights the bits are others
		}
		if v == nil && !a.Judged {
			v = &verification{
				step: a.Step, inquiry: inquiry{step: a.Step - 1, trainer: a.Trainer, seed: d.seeds[a.Step]},
				fellows: make(map[coordinator.ClientID]*revealed),
			}
			for _, id := range s.Auditors(a.Step, a.Trainer) {
				if id != n.run.myself() {
					v.fellows[id] = &revealed{}
				}
			}
			d.verifying[a.Step] = v
		}
		if v != nil {
			v.open, v.sealed, v.told = true, a.Sealed, v.told || a.Judged
		}
	}
	for step := range d.verifying {
		if step+coordinator.AccuseRounds < s.Progress.Step || step > s.Progress.Step || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
			delete(d.verifying, step)
		}
	}
}

// examines reports whether a verification of the round waits for the trainer: what is not yet of
// this round gives way to it.
func (d *duties) examines(step uint32) bool {
	v := d.verifying[step]
	return v != nil && v.err == nil && len(v.exams) == 0
}

// kind names an action so that those of several rounds go side by side: errands of one kind about
// two things would take turns without a pause.
func (v *verification) kind(action string) string { return kindOf(action, v.step) }

func kindOf(action string, step uint32) string {
	return fmt.Sprintf("%s %d", action, step%coordinator.StoredRounds)
}

// last reports whether there is no time left: the round is the second one and ends.
func (n duty) last(v *verification) bool {
	s := n.run.state
	return s.Progress.Step > v.step && s.RunState == coordinator.RoundWitness || s.Progress.Step > v.step+1
}

// verify goes on with a verification.
func (n duty) verify(v *verification) {
	switch {
	case v.told:
		n.afterVerdict(v)
		return
	case !v.open:
		return
	case v.err == nil && len(v.exams) == 0:
		if !n.ready(&v.inquiry, 1, true) && v.err == nil {
			return
		}
	}
	if len(v.exams) == 0 && !errors.Is(v.err, errNoResult) {
		return // nothing is known of the gradient: better late than to judge without it
	}
	if !v.sealed {
		n.seal(v)
		return
	}
	if v.verdict == nil {
		n.find(v)
	}
	if v.verdict != nil {
		n.tell(v)
	}
}

// seal commits to what was computed, before anything is opened.
func (n duty) seal(v *verification) {
	seal := audits.Report{Salt: n.seat.reveals.salt(v.step)}.Seal() // where there is nothing to compute
	if len(v.exams) > 0 {
		seal = audit.Seal(audit.SealPrints, n.seat.reveals.salt(v.step), audit.EncodePrints(v.exams[0].Prints(audit.PrintSeed(v.seed, n.run.me))))
	}
	n.errands.submit(v.kind("seal"), v.step, coordinator.SealVerdict{Step: v.step, Seal: seal}, func() {})
}

// find has the trainer open, and looks at that.
func (n duty) find(v *verification) {
	switch {
	case len(v.exams) == 0: // there is nothing to audit
		v.verdict = &finding{reason: v.err.Error()}
	case v.looking:
	case v.evidence == nil:
		n.ask(v)
	case v.precision >= len(v.exams): // another type is tried
		if !n.ready(&v.inquiry, v.precision+1, true) && (v.err != nil || n.last(v)) {
			v.verdict = &finding{outcome: audit.Strange, unclear: true, reason: "it may be right in a type that could not be computed in here"}
			v.precision = 0
		}
	default:
		n.lookAt(v)
	}
}

// gaveUp reports whether a trainer that was asked so often, and has not opened, will not: in the middle
// of the second round, by the length of the first, when it was asked three times, or twice if rounds
// are shorter than the pauses may get. In the end once has to do: without a verdict the verifier would
// be late for what the trainer did not do.
func (n duty) gaveUp(v *verification) bool {
	first, second := n.rounds.of[v.step], n.rounds.of[v.step+1]
	switch {
	case n.last(v):
		return v.asked > 0
	case first == nil || second == nil:
		return false
	}
	length, least := second.opened.Sub(first.opened), leastAsked
	if length < askPause {
		least--
	}
	return v.asked >= least && n.tasks.Now().Sub(second.opened) >= length/2
}

// pauseAfter returns how long to wait after so many questions.
func pauseAfter(asked int) time.Duration { return min(askPause, leastPause<<min(asked-1, 10)) }

// ask asks the trainer for its opening.
func (n duty) ask(v *verification) {
	if v.asking {
		return
	}
	if n.gaveUp(v) || !n.run.healthy(v.trainer) {
		// Asked once it may not have seen the seal yet.
		v.verdict = &finding{outcome: audit.Unopened, loose: true, unclear: v.asked < 2, reason: "it did not open"}
		return
	}
	if n.tasks.Now().Before(v.askAgain) {
		return
	}
	v.asking = true
	v.asked++
	shapes := n.opensTo().trainer.Shapes()
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, requestTimeout)
		defer cancel()
		evidence, err := audits.AskOpening(ctx, n.Network, identity.ID(v.trainer), v.inquiry.step, shapes)
		return func() {
			v.asking = false
			v.askAgain = n.tasks.Now().Add(pauseAfter(v.asked))
			if err != nil {
				n.report.log.Debug("ask for an opening", "step", v.inquiry.step, "trainer", identity.ID(v.trainer).Short(), "err", err)
				return
			}
			v.evidence = evidence
		}
	})
}

// lookAt compares what was opened with the newest exam. What is not right in one type may be in
// another one, as long as only the gradient is not.
func (n duty) lookAt(v *verification) {
	v.looking = true
	at, more := v.precision, v.precision+1 < len(v.types)
	exam, in := v.exams[at], v.types[at]
	n.tasks.Spawn(func(context.Context) func() {
		f := v.look(v.evidence, exam, in, in.Limits().Wider())
		return func() {
			v.looking = false
			if f.outcome == audit.Strange && more {
				v.precision++
				return
			}
			v.verdict = &f
			if f.outcome == audit.Passed {
				n.seat.duties.types[v.trainer] = in
			}
		}
	})
}

// tell gives the verdict.
func (n duty) tell(v *verification) {
	f := v.verdict
	if v.said == nil {
		var exam *audit.Exam
		if len(v.exams) > 0 {
			exam = v.exams[0]
		}
		v.said = n.reportOf(&v.inquiry, f, exam, v.step)
		n.seat.duties.shown.KeepReport(v.step, v.said)
	}
	said := coordinator.Verdict{Step: v.step, Passed: f.outcome == audit.Passed || len(v.exams) == 0, Body: sha256.Sum256(v.said)}
	n.errands.submit(v.kind("verdict"), v.step, said, func() {
		if v.told = true; v.noted {
			return
		}
		v.noted = true
		trainer := identity.ID(v.trainer)
		n.report.log.Info("verdict", "step", v.inquiry.step, "trainer", trainer.Short(), "outcome", f.String(), "why", f.reason)
		n.report.emit(event.Verdict{Step: v.inquiry.step, Trainer: trainer.String(), Outcome: f.String(), Opening: len(v.evidence), Detail: f.reason})
	})
	if v.accused == 0 && f.guilty() {
		v.accused, v.why = coordinator.FaultResult, f.reason
		if f.loose {
			v.accused = coordinator.FaultUnopened
		}
	}
}

// guilty reports whether the trainer is to blame as far as is known.
func (f *finding) guilty() bool {
	return f.outcome == audit.Faulty || !f.unclear && (f.outcome == audit.Unopened || f.outcome == audit.Strange)
}

// String names what came of it.
func (f *finding) String() string {
	switch {
	case f.outcome == 0:
		return "nothing to audit"
	case f.unclear:
		return "unclear"
	}
	return f.outcome.String()
}

// reportOf returns what is revealed of a verdict. Without an exam there was nothing to audit.
func (n duty) reportOf(q *inquiry, f *finding, exam *audit.Exam, step uint32) []byte {
	salt := n.seat.reveals.salt(step)
	if exam == nil {
		return salt[:]
	}
	verdict := exam.Verdict(n.run.hash, n.run.me, q.found.Result.Commitment, q.seed, f.report, audit.F32Limits)
	verdict.Outcome = f.outcome
	if verdict.Fault = f.report.Fault; f.outcome != audit.Faulty {
		verdict.Fault = audit.FaultNone
	}
	report, err := audits.Report{Salt: salt, Verdict: verdict}.Encode()
	if err != nil {
		n.report.log.Error("write a verdict", "step", q.step, "err", err)
		return nil
	}
	return report
}

// afterVerdict accuses the trainer, or compares what others reveal that verified the same.
func (n duty) afterVerdict(v *verification) {
	if v.accused != 0 {
		n.accuse(v.kind("accuse"), v.step, v.trainer, v.accused, v.why)
		return
	}
	if v.verdict == nil || v.verdict.outcome != audit.Passed {
		return
	}
	n.lookAtVerifiers(v.step, &v.inquiry, v.fellows, v.kind("accuse"), func(fellow *revealed, id coordinator.ClientID) reportReader {
		return compareWithExam(v, fellow, id)
	})
}

// compareWithExam returns what compares a report with the exam that this client's own verdict is by.
func compareWithExam(v *verification, fellow *revealed, id coordinator.ClientID) reportReader {
	exam, seed, counted := v.exams[v.precision], v.seed, v.found.Result.Head.Counted
	return func(_ context.Context, report audits.Report) func() {
		if report.Nothing() && !counted { // it need not hold the result
			return func() { fellow.done = true }
		}
		share := audit.Alike(exam.Prints(audit.PrintSeed(seed, id)), report.Prints(), audit.AccusedBeyond)
		return func() {
			if fellow.done = share >= audit.PrintsShare; !fellow.done {
				fellow.strange = report.Prints()
			}
		}
	}
}
