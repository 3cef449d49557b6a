package core

import (
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Member decides what a member of a run does, phase by phase. It is not safe for concurrent use.
//
//	m.Step(now, event) // after every event
//	m.Ready()          // the effects of the event, for the caller to execute
//	m.Advance()        // after that; only then the next event may follow
type Member struct {
	common
	seat         seat
	loading      loading
	returning    returning
	waiting      waiting
	cooldown     cooldown
	finish       finish
	witness      witness
	training     training
	applying     applying
	intermediate intermediate
	offers       offers
	taken        bool // Ready has returned the effects
}

// Events of every phase.
type (
	// Seen is a newer state of the run. The member does not modify it.
	Seen struct{ State *coordinator.State }

	// Answered is the host's answer to a submitted action. Err is nil if the host accepted the action.
	Answered struct {
		Kind string
		Err  error
	}
)

func (Seen) event()     {}
func (Answered) event() {}

// New returns a client that has not seen a run.
func New(o Options) *Member { return &Member{common: common{Options: o}} }

// Step handles an event.
func (m *Member) Step(now time.Time, e Event) {
	if m.taken {
		panic("core: Step between Ready and Advance")
	}
	m.now = now
	c := &m.common
	switch e := e.(type) {
	case Seen:
		m.state = e.State
	case Began:
		m.commitments = newCommitments(e.Secret)
		m.seat.begin(c)
		m.finish.begin(c, m.seat.again)
	case Look:
		m.returning.cancelLoad(c, e.Replica)
		m.cooldown.look(c)
		m.seat.look(c, &m.returning, e)
		m.waiting.look(c)
	case Checked:
		m.seat.done(c, e)
	case Warmup:
		m.loading.warmup(c, e)
	case Obtained:
		m.loading.obtained(c, e)
		m.returning.obtained(c, e)
	case Rejoin:
		m.returning.look(c, &m.loading, e)
	case Replayed:
		m.returning.replayed(c, e)
	case Prepared:
		if m.offers.prepare(c, e) {
			m.seat.prepared(c)
		}
	case Entered:
		m.seat.entered(c)
	case Lost:
		m.seat.again = true
		m.returning.lost(c)
	case SitDown:
		m.seat.sitDown(c, &m.returning, e)
	case Left:
		m.seat.left(c)
	case Close:
		m.cooldown.close(c, e)
	case Cooldown:
		m.cooldown.ask(c, e)
	case Persisted:
		m.cooldown.persisted(c, e)
	case Evaluated:
		m.cooldown.evaluated(c, e)
	case Interrupted:
		c.interrupt(e.Limit)
	case Leaving:
		c.leave(e)
	case Over:
		m.finish.over(c, e)
	case Finish:
		m.finish.look(c, &m.loading, e)
	case Answered:
		m.answered(e)
	default:
		m.round(e)
	}
}

// round handles an event of the rounds.
func (m *Member) round(e Event) {
	c := &m.common
	switch e := e.(type) {
	case InRound:
		c.inRound()
	case Urgent:
		c.urgent(e)
	case Turn:
		m.training.look(c, e)
	case Ahead:
		m.training.lookAhead(c, m.intermediate.owed, e)
	case Permitted:
		m.training.permitted(c)
	case Tokens:
		m.training.tokens(c, e)
	case Attest:
		m.witness.attest(c, e)
	case Proof:
		m.witness.prove(c, e)
	case Accuse:
		m.witness.accuse(c, e)
	case Offering:
		m.offers.look(c, e)
	case Measured:
		m.offers.measured(e)
		m.cooldown.trained(e)
	case Outstanding:
		c.outstanding(e)
	case Judged:
		c.judged(e)
	case Early:
		c.early(e)
	case Counted:
		m.applying.counted(c, &m.intermediate, e)
	case Mispredicted:
		c.mispredicted(e)
	case Applied:
		m.applying.applied(c, e)
	case Idle:
		m.intermediate.look(c, e)
	case Unreported:
		c.unreported(e)
	}
}

// Ready returns the effects of the events since the last Advance.
func (m *Member) Ready() Ready {
	m.taken = true
	return m.ready
}

// Advance must be called once the effects that Ready returned are executed.
func (m *Member) Advance() {
	if !m.taken {
		panic("core: Advance before Ready")
	}
	m.ready, m.taken = Ready{}, false
}

// answered handles the host's answer to an action.
func (m *Member) answered(e Answered) {
	action := m.Actions.Done(m.now, e.Kind, e.Err)
	switch {
	case e.Err != nil:
	case e.Kind == checkpointKind:
		m.cooldown.accepted(&m.common)
	case e.Kind == intermediateKind:
		r := action.(coordinator.ReportCheckpoint)
		m.report(ReportedTaken{coordinator.Recorded{Step: r.Step - 1, Digest: r.Digest}})
	case e.Kind == offerKind:
		m.report(Offered{action.(coordinator.Offer)})
	case e.Kind == witnessKind, e.Kind == healthKind:
		m.witness.accepted(&m.common, action)
	default:
		m.seat.accepted(&m.common, action)
	}
}

// Lingers reports whether the run has ended for this client, which stays only for other clients.
func (m *Member) Lingers() bool { return m.finish.said }
