package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// scrutiny is what a trainer does with those who verified a result of it that counted: it compares
// what they reveal with its own gradient. So who verifies such a result can expect that somebody looks
// at what it sealed.
type scrutiny struct {
	step      uint32 // of the round in which they verified
	inquiry          // about the own result, where what somebody reveals is not like it
	verifiers map[coordinator.ClientID]*revealed
}

// revealed is what is known here of what a verifier reveals.
type revealed struct {
	asked  int
	asking bool
	first  time.Time // when it was asked first
	again  time.Time // not before
	done   bool      // nothing is held against it

	bound   bool          // what it revealed is what it had sealed: it cannot show a jury something else
	strange []audit.Print // which are not those that were expected
	exactly bool          // they are known not to be of the own type
	looked  int           // exams that they were compared with

	fault coordinator.Fault // of which it is to be accused; 0: of nothing
	why   string
}

// silence is for how long a verifier is asked, where its accuser has that long.
const silence = 3 * askPause

// findScrutinies begins what the newest state asks this client to look at, and forgets what is over.
func (n duty) findScrutinies() {
	d, s := n.seat.duties, n.run.state
	rounds := s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness
	for step, auditors := range d.auditors {
		if d.scrutinies[step] != nil || len(auditors) == 0 || !rounds || step+coordinator.AccuseRounds < s.Progress.Step {
			continue
		}
		c := &scrutiny{
			step: step, inquiry: inquiry{step: step - 1, trainer: n.run.myself(), seed: d.seeds[step]},
			verifiers: make(map[coordinator.ClientID]*revealed),
		}
		for _, id := range auditors {
			c.verifiers[id] = &revealed{}
		}
		d.scrutinies[step] = c
	}
	for step := range d.scrutinies {
		if step+coordinator.AccuseRounds < s.Progress.Step || step > s.Progress.Step || !rounds {
			delete(d.scrutinies, step)
		}
	}
}

// scrutinise goes on with a scrutiny. Nobody is asked about a result that did not count: not all who
// verify have to hold it.
func (n duty) scrutinise(c *scrutiny) {
	d := n.seat.duties
	if c.found == nil {
		own, err := d.past.Case(c.inquiry.step, c.trainer, n.run.sinceOf(c.trainer), n.engine.lag())
		if err != nil {
			return // not applied yet, or the result was never announced
		}
		c.found, c.types = &own, d.typesFor(c.trainer, n.opensTo().trainer.Precisions())
	}
	if !c.found.Result.Head.Counted {
		return
	}
	n.lookAtVerifiers(c.step, &c.inquiry, c.verifiers, kindOf("accuse verifiers of", c.step), func(v *revealed, id coordinator.ClientID) reportReader {
		return n.compareWithOwn(c, v, id)
	})
}

// reportReader looks at a report beside the loop, and returns what to do in the loop then.
type reportReader func(context.Context, audits.Report) func()

// lookAtVerifiers asks who verified a result what they reveal, has that looked at, and accuses under a
// kind of errand. While one is on trial nobody else is accused from here, so first is who loses its
// seat for sure.
func (n duty) lookAtVerifiers(step uint32, q *inquiry, who map[coordinator.ClientID]*revealed, kind string, look func(*revealed, coordinator.ClientID) reportReader) {
	turn := func(id coordinator.ClientID) int {
		if who[id].fault == coordinator.FaultPrints {
			return 0
		}
		return 1
	}
	ids := slices.SortedFunc(maps.Keys(who), func(a, b coordinator.ClientID) int {
		return cmp.Or(turn(a)-turn(b), slices.Compare(a[:], b[:]))
	})
	for _, id := range ids {
		switch v := who[id]; {
		case v.done:
		case v.fault == coordinator.FaultUnrevealed && !q.found.Result.Head.Counted: // it need not hold the result
		case v.fault != 0:
			if n.accuse(kind, step, id, v.fault, v.why) {
				return
			}
		case v.strange != nil:
			n.confirm(q, v, id)
		default:
			n.question(step, id, v, look(v, id))
		}
	}
}

// compareWithOwn returns what compares a report with what the own opening implies. What is not known
// here is held against nobody.
func (n duty) compareWithOwn(c *scrutiny, v *revealed, id coordinator.ClientID) reportReader {
	evidence, auditor, network := n.seat.duties.shown.Evidence(c.inquiry.step), n.opensTo().trainer, n.Network
	own, seed := *c.found, c.seed
	return func(ctx context.Context, report audits.Report) func() {
		share, exact, err := shareOfOwn(ctx, network, auditor, own, evidence, seed, report.Prints(), id)
		return func() {
			if err != nil {
				n.report.log.Debug("look at prints", "step", c.step, "verifier", identity.ID(id).Short(), "err", err)
			}
			if v.done = err != nil || share >= audit.PrintsShare; v.done {
				return
			}
			v.strange, v.exactly = report.Prints(), exact
		}
	}
}

// shareOfOwn returns the share of a verifier's prints that are those of the gradient which the own
// evidence implies, and whether it says exactly what that gradient was.
func shareOfOwn(ctx context.Context, blobs env.Blobs, auditor env.Auditor, own audits.Case, evidence []byte, seed uint64, prints []audit.Print, verifier coordinator.ClientID) (share float64, exact bool, err error) {
	shapes := auditor.Shapes()
	e, err := audits.DecodeEvidence(evidence, shapes)
	if err != nil {
		return 0, false, err
	}
	payload, err := blobs.Fetch(ctx, own.Result.Commitment, uint64(own.Result.Size), nil)
	if err != nil {
		return 0, false, err
	}
	header, result, err := auditor.Decode(payload)
	if err != nil {
		return 0, false, err
	}
	claims, err := own.Claims(header, result, e)
	if err != nil {
		return 0, false, err
	}
	exam := audit.Exam{
		Shapes: shapes, Step: header.Step, Trainer: header.Trainer, Decay: auditor.Decay(),
		Chunks: audit.Chunks(seed, header.Step, header.Trainer, shapes, audit.DefaultChunks),
	}
	exact = true
	for _, claim := range claims {
		implied, sharp, err := exam.Implied(claim)
		if err != nil {
			return 0, false, err
		}
		exam.Updates, exact = implied, exact && sharp
		share = max(share, audit.Alike(exam.Prints(audit.PrintSeed(seed, verifier)), prints, audit.AccusedBeyond))
	}
	return share, exact, nil
}

// question asks a verifier that has judged for what it reveals, and has that looked at beside the loop.
// Who does not answer is to be accused of that, and so is who reveals something else than it had sealed:
// nothing binds it to that, and who says it were wrong would lose to a jury that is shown the truth.
func (n duty) question(step uint32, id coordinator.ClientID, v *revealed, look reportReader) {
	s, now := n.run.state, n.tasks.Now()
	round := s.RoundOfStep(step)
	if round == nil {
		return
	}
	if member, ok := round.MemberIndex(id); !ok || !round.Judged.Has(member) {
		return
	}
	last := s.Progress.Step >= step+coordinator.AccuseRounds // rounds may be shorter than the pauses between questions
	switch {
	case !n.run.healthy(id):
		v.done = true
		return
	case v.asked > 0 && last && s.RunState == coordinator.RoundWitness, v.asked >= leastAsked && (last || now.Sub(v.first) >= silence):
		v.fault, v.why = coordinator.FaultUnrevealed, "it did not reveal what it had sealed"
		return
	case v.asking || now.Before(v.again):
		return
	}
	if v.asked == 0 {
		v.first = now
	}
	v.asking = true
	v.asked++
	sealed, known := n.run.sealOf(step, id)
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, requestTimeout)
		defer cancel()
		report, err := audits.AskReport(ctx, n.Network, identity.ID(id), step)
		verdict := func() { v.fault, v.why = coordinator.FaultUnrevealed, notSealed }
		if err == nil && (!known || sealed == report.Seal()) {
			verdict = look(ctx, report)
		}
		return func() {
			v.asking = false
			v.again = n.tasks.Now().Add(pauseAfter(v.asked))
			switch {
			case err != nil:
				n.report.log.Debug("ask for a report", "step", step, "verifier", identity.ID(id).Short(), "err", err)
			case v.fault == 0 || v.fault == coordinator.FaultUnrevealed: // an answer that was slow is one
				v.fault, v.bound = 0, known
				verdict()
			}
		}
	})
}

// confirm compares prints that are not like what is known here with the gradient in every other type
// that is computed here, as jurors will, and in the same one where what an opening implies is not exact.
// Own duties come first; in the last round in which it may accuse its own training waits.
func (n duty) confirm(q *inquiry, v *revealed, id coordinator.ClientID) {
	if own := n.opensTo().trainer.Precisions()[0]; v.exactly && len(q.exams) == 0 {
		q.types = slices.DeleteFunc(q.types, func(p audit.Precision) bool { return p == own })
	}
	switch {
	case v.looked < len(q.exams):
		own := q.exams[v.looked].Prints(audit.PrintSeed(q.seed, id))
		v.looked++
		v.done = audit.Alike(own, v.strange, audit.AccusedBeyond) >= audit.PrintsShare
	case v.looked == len(q.types):
		v.fault, v.why = coordinator.FaultUnrevealed, fmt.Sprintf("its prints of step %d are not those of the gradient", q.step)
		if v.bound {
			v.fault = coordinator.FaultPrints
		}
	case q.err != nil: // it cannot be found out
		v.done = true
	case !n.seat.duties.verifies():
		n.ready(q, v.looked+1, n.run.state.Progress.Step > q.step+coordinator.AccuseRounds)
	}
}

// verifies reports whether a verdict of this client is due.
func (d *duties) verifies() bool {
	for _, v := range d.verifying {
		if v.open && !v.told {
			return true
		}
	}
	return false
}

// accuse accuses a member, as long as the run's rules allow it; if they do not, such as because it is on
// trial already, it returns false.
func (n duty) accuse(kind string, step uint32, whom coordinator.ClientID, of coordinator.Fault, why string) bool {
	a := coordinator.Accuse{Step: step, Client: whom, Fault: of}
	if n.run.state.MayAccuse(n.run.myself(), a) != nil {
		return false
	}
	n.errands.submit(kind, a, a, func() {
		n.report.log.Warn("accused a member", "of", of, "client", identity.ID(whom).Short(), "step", step, "why", why)
		n.report.emit(event.Accused{Step: step, Client: identity.ID(whom).String(), Fault: of.String(), Detail: why})
	})
	return true
}
