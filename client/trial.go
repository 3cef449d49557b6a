package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// patientRounds is for how many rounds, of those in which jurors may vote, an examination waits
// until nobody else needs the trainer. After that the own training waits: a trial comes first.
const patientRounds = 2

// notSealed is held against a verifier by who asks it and by jurors.
const notSealed = "what it reveals is not what it had sealed"

// juryKey names a trial.
type juryKey struct {
	step    uint32
	accused coordinator.ClientID
}

func (k juryKey) compare(other juryKey) int {
	return cmp.Or(cmp.Compare(k.step, other.step), slices.Compare(k.accused[:], other.accused[:]))
}

// juryDuty is a trial that this client votes in.
type juryDuty struct {
	trial coordinator.Trial // newest known
	inquiry
	evidence []byte
	blob     [32]byte // the opening, once fetched: others can have it from here
	fetching bool
	again    time.Time
	asked    int

	precision int
	looking   bool
	finding   *finding
	said      [32]byte // hash of the verdict that the vote rests on
	abstains  bool
}

// findTrials begins to prepare for trials in which this client may have to vote, as soon as they
// begin: the rounds that they are about are known then. It says how trials end.
func (n duty) findTrials() {
	d, s := n.seat.duties, n.run.state
	open := make(map[juryKey]bool, len(s.Epoch.Trials))
	for i := range s.Epoch.Trials {
		t := s.Epoch.Trials[i]
		key := juryKey{t.Step, t.Accused}
		open[key] = true
		j := d.juries[key]
		if j == nil {
			j = &juryDuty{inquiry: inquiry{step: t.Step - 1, trainer: t.Accused, seed: d.seeds[t.Step]}}
			if t.Fault.OfVerifier() {
				audited, ok := s.AuditOf(t.Step, t.Accused)
				if j.trainer = audited.Trainer; !ok {
					j.err = audits.ErrNotKept
				}
			}
			if d.seeds[t.Step] == 0 {
				j.err = audits.ErrNotKept
			}
			d.juries[key] = j
			n.report.trial(&t, "begins")
		}
		j.trial = t
	}
	for key, j := range d.juries {
		if !open[key] {
			delete(d.juries, key)
			n.store.Drop(j.blob)
			n.report.trial(&j.trial, n.run.endOf(&j.trial))
		}
	}
}

// endOf says how a trial ended.
func (v *view) endOf(t *coordinator.Trial) string {
	for _, e := range v.state.Authority.Ejections {
		switch {
		case e.Client == t.Accused && e.Reason == coordinator.FoundGuilty:
			return "the accused is ejected"
		case e.Client == t.Accuser && e.Reason == coordinator.AccusedWrongly:
			return "the accuser is ejected"
		}
	}
	return "nobody loses"
}

// presses reports whether a trial has waited long enough for the trainer to be idle.
func (n duty) presses() bool {
	for _, j := range n.seat.duties.juries {
		if n.votes(j) && j.err == nil && j.evidence != nil && n.patienceIsOver(j) {
			return true
		}
	}
	return false
}

func (n duty) patienceIsOver(j *juryDuty) bool {
	return n.run.state.Progress.Step > j.trial.OpenUntil()+patientRounds
}

// votes reports whether this client still has to vote.
func (n duty) votes(j *juryDuty) bool {
	me := n.run.myself()
	return j.trial.IsJuror(me) && !j.trial.HasVoted(me) && !j.abstains && j.finding == nil && n.run.isMember()
}

// judge goes on with a trial.
func (n duty) judge(j *juryDuty) {
	me := n.run.myself()
	if !j.trial.IsJuror(me) || j.trial.HasVoted(me) || j.abstains || !n.run.isMember() {
		return
	}
	switch {
	case j.finding != nil:
		n.vote(j)
	case j.looking:
	case j.evidence == nil:
		n.getEvidence(j)
	case n.ready(&j.inquiry, j.precision+1, n.patienceIsOver(j)):
		n.lookAtEvidence(j)
	case j.err != nil && n.wordsOf(j) != nil:
		j.finding, j.said = n.wordsOf(j), sha256.Sum256(j.evidence)
	case j.err != nil: // nobody is condemned for what is not known here
		j.abstains = true
		n.report.log.Warn("no vote on a trial", "accused", identity.ID(j.trial.Accused).Short(), "step", j.trial.Step, "why", j.err)
	}
}

// getEvidence fetches what the accused opened, or asks the accused where no Open is in the log. What
// nobody gives is against it.
func (n duty) getEvidence(j *juryDuty) {
	t, s := &j.trial, n.run.state
	opened := t.Opening != [32]byte{}
	if j.fetching || !opened && s.Progress.Step <= t.OpenUntil() {
		return
	}
	if j.hasAsked(s.Progress.Step) {
		j.finding = &finding{outcome: audit.Unopened, reason: "nobody has what it should have opened"}
		return
	}
	if n.tasks.Now().Before(j.again) {
		return
	}
	j.fetching = true
	j.asked++
	opening := t.Opening
	holders := slices.Insert(n.run.members(n.fetcher.Rotation.Next), 0, identity.ID(t.Accused))
	shapes, want := n.opensTo().trainer.Shapes(), *t
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, requestTimeout)
		defer cancel()
		evidence, err := fetchEvidence(ctx, n.Network, want, holders, shapes)
		return func() {
			j.fetching = false
			j.again = n.tasks.Now().Add(pauseAfter(j.asked))
			if err != nil {
				n.report.log.Debug("get the evidence of a trial", "accused", holders[0].Short(), "step", want.Step, "err", err)
				return
			}
			j.evidence, j.blob = evidence, opening
		}
	})
}

// hasAsked reports whether it was asked often enough for what nobody has. In the last round in which
// votes are taken once is enough: rounds may be shorter than the pauses between questions, and a trial
// in which nobody votes lets the accused go, and finds its jurors late.
func (j *juryDuty) hasAsked(step uint32) bool {
	return step > j.trial.OpenUntil()+patientRounds && (j.asked >= leastAsked || j.asked > 0 && step >= j.trial.VoteUntil())
}

// fetchEvidence gets evidence from whoever has it: what is opened from anybody, else from the accused,
// who is the first of the holders.
func fetchEvidence(ctx context.Context, network env.Network, t coordinator.Trial, holders []identity.ID, shapes audit.Shapes) ([]byte, error) {
	switch {
	case t.Opening != [32]byte{}:
		return network.FetchUpTo(ctx, t.Opening, uint64(audits.MaxEvidenceSize(shapes)), holders)
	case t.Fault.OfVerifier():
		report, err := audits.AskReport(ctx, network, holders[0], t.Step)
		if err != nil {
			return nil, err
		}
		return report.Encode()
	}
	return audits.AskOpening(ctx, network, holders[0], t.Step-1, shapes)
}

// wordsOf judges what a verifier shows of a result that is not held here: it did not count, so nobody
// has to hold it. It returns nil where that takes an exam.
func (n duty) wordsOf(j *juryDuty) *finding {
	if !j.trial.Fault.OfVerifier() || !errors.Is(j.err, errNoResult) {
		return nil
	}
	report, err := audits.DecodeReport(j.evidence)
	sealed, known := n.run.sealOf(j.trial.Step, j.trial.Accused)
	switch {
	case err != nil:
		return &finding{outcome: audit.Unopened, reason: err.Error()}
	case known && report.Seal() != sealed:
		return &finding{outcome: audit.Unopened, reason: notSealed}
	case report.Nothing() || j.trial.Fault == coordinator.FaultUnrevealed:
		return &finding{outcome: audit.Passed}
	}
	return nil
}

// lookAtEvidence compares it with the newest exam.
func (n duty) lookAtEvidence(j *juryDuty) {
	j.looking = true
	at, more := j.precision, j.precision+1 < len(j.types)
	exam, in, prints, accused := j.exams[at], j.types[at], j.trial.Fault.OfVerifier(), j.trial.Accused
	sealed, known := n.run.sealOf(j.trial.Step, accused)
	n.tasks.Spawn(func(context.Context) func() {
		var f finding
		if prints {
			f = j.compare(j.evidence, exam, accused)
			if report, err := audits.DecodeReport(j.evidence); err == nil && known && report.Seal() != sealed {
				f = finding{outcome: audit.Unopened, reason: notSealed}
			}
		} else {
			f = j.look(j.evidence, exam, in, in.Limits())
		}
		return func() {
			j.looking = false
			if f.outcome == audit.Strange && more {
				j.precision++
				return
			}
			j.finding = &f
			j.said = sha256.Sum256(n.reportOf(&j.inquiry, &f, exam, j.trial.Step))
		}
	})
}

// compare compares the prints of a verifier with this juror's.
func (q *inquiry) compare(evidence []byte, exam *audit.Exam, verifier coordinator.ClientID) finding {
	report, err := audits.DecodeReport(evidence)
	if err != nil {
		return finding{outcome: audit.Unopened, reason: err.Error()}
	}
	if report.Nothing() && !q.found.Result.Head.Counted { // it need not hold the result
		return finding{outcome: audit.Passed}
	}
	if audit.Alike(exam.Prints(audit.PrintSeed(q.seed, verifier)), report.Prints(), audit.PrintsWithin) < audit.PrintsShare {
		return finding{outcome: audit.Strange, reason: "its prints are not those of the gradient"}
	}
	return finding{outcome: audit.Passed}
}

// vote gives the vote.
func (n duty) vote(j *juryDuty) {
	t := &j.trial
	if !t.MayVote(n.run.state.Progress.Step) {
		return
	}
	v := coordinator.Vote{Step: t.Step, Client: t.Accused, Guilty: j.finding.outcome != audit.Passed, Body: j.said}
	n.errands.submit("vote on "+identity.ID(t.Accused).String(), juryKey{t.Step, t.Accused}, v, func() {
		accused := identity.ID(t.Accused)
		n.report.log.Info("voted", "accused", accused.Short(), "step", t.Step, "guilty", v.Guilty, "why", j.finding.reason)
		n.report.emit(event.Voted{Step: t.Step, Accused: accused.String(), Guilty: v.Guilty, Detail: j.finding.reason})
	})
}

// answer is what this client opens when it is accused.
type answer struct {
	trial juryKey
	blob  [32]byte
}

// answerFor opens what this client is accused of, for everybody to fetch.
func (n duty) answerFor() {
	d := n.seat.duties
	t := n.run.state.Trial(n.run.myself())
	if t == nil {
		if d.answer != nil {
			n.store.Drop(d.answer.blob)
			d.answer = nil
		}
		return
	}
	if t.Opening != [32]byte{} || len(t.Jury) == 0 || n.run.state.Progress.Step > t.OpenUntil() {
		return
	}
	key := juryKey{t.Step, t.Accused}
	if d.answer == nil || d.answer.trial != key {
		evidence := d.shown.Evidence(t.Step - 1)
		if t.Fault.OfVerifier() {
			evidence = d.shown.Report(t.Step)
		}
		if evidence == nil {
			n.giveUpSeat(t)
			return
		}
		blob, err := n.Network.Put(evidence)
		if err != nil {
			n.report.log.Error("open for a trial", "step", t.Step, "err", err)
			return
		}
		d.answer = &answer{trial: key, blob: blob}
	}
	n.errands.submit("open", key, coordinator.Open{Step: t.Step, Blob: d.answer.blob}, func() {
		n.report.log.Warn("opened for a trial against this client", "step", t.Step, "fault", t.Fault, "accuser", identity.ID(t.Accuser).Short())
	})
}

// giveUpSeat leaves when this client is accused and has nothing to open: another process of it made
// the result. It loses the rest of the epoch, and not the next one too.
func (n duty) giveUpSeat(t *coordinator.Trial) {
	n.errands.submit("withdraw", t.Step, coordinator.Withdraw{Client: n.run.myself()}, func() {
		n.report.log.Warn("accused of what an earlier process of this client did: it leaves", "step", t.Step, "accuser", identity.ID(t.Accuser).Short())
	})
}

// eachBlob calls need for what is kept for audits.
func (d *duties) eachBlob(need func(hash [32]byte)) {
	d.past.EachBlob(need)
	if d.answer != nil {
		need(d.answer.blob)
	}
	for _, j := range d.juries {
		need(j.blob)
	}
}
