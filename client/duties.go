package client

import (
	"context"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// duties are what a member does, in a run with audits, that others can rely on results: it opens
// its own, verifies another's when it does not train, and votes when it is on a jury.
type duties struct {
	past   audits.Past
	shown  *audits.Shown
	opener *opener           // nil: nothing is audited
	seeds  map[uint32]uint64 // of the newest rounds, by step
	// auditors are who audits, in a round, the own result of the round before, by its step.
	auditors map[uint32][]coordinator.ClientID

	types map[coordinator.ClientID]audit.Precision // that trainers were found to compute in

	verifying  map[uint32]*verification // by the step of the round in which this client verifies
	scrutinies map[uint32]*scrutiny     // by the step of the round in which others verified this client
	juries     map[juryKey]*juryDuty
	answer     *answer // to what this client is accused of
	fresh      uint32  // step of the run when the momentum began as zeros
}

// keptSeeds are as many as a trial may be about.
const keptSeeds = 12

func newDuties() *duties {
	return &duties{
		shown: audits.NewShown(), seeds: make(map[uint32]uint64), auditors: make(map[uint32][]coordinator.ClientID),
		types:     make(map[coordinator.ClientID]audit.Precision),
		verifying: make(map[uint32]*verification), scrutinies: make(map[uint32]*scrutiny), juries: make(map[juryKey]*juryDuty),
	}
}

// duty is a client as far as it does its duties.
type duty struct{ *Node }

// opensTo returns what opens results that are trained now; nil where nothing is audited.
func (n duty) opensTo() *opener {
	auditor, ok := n.engine.trainer.(env.Auditor)
	if !ok || !n.engine.built.Audited {
		return nil
	}
	d := n.seat.duties
	if d.opener == nil || d.opener.trainer != auditor {
		d.opener = &opener{me: n.run.me, shown: d.shown, log: n.report.log, trainer: auditor}
	}
	return d.opener
}

// forgetMomentum notes that the momentum begins as zeros.
func (d *duties) forgetMomentum(step uint32) { d.opener, d.fresh = nil, step }

// mayBegin reports whether a result may go on from what this client's momentum is: from its newest
// one, or from zeros if the run knows that its optimizer began not before that. An earlier process
// of this client has made results otherwise, and whoever audits this one's would accuse it.
func (d *duties) mayBegin(since uint32) bool {
	return d.opener != nil && d.opener.newest() != 0 || since >= d.fresh
}

// beginsAnew makes the run know that the optimizer begins as zeros, where it does not: who leaves and
// takes its seat back has a new one. It reports whether this client may train.
func (n duty) beginsAnew() bool {
	if n.opensTo() == nil || n.seat.duties.mayBegin(n.run.sinceOf(n.run.myself())) {
		return true
	}
	n.errands.submit("withdraw", n.run.state.Progress.Step, coordinator.Withdraw{Client: n.run.myself()}, func() {
		n.report.log.Info("the momentum begins anew: leaving for a moment, so that the run knows it")
	})
	return false
}

// attend does what is due of all duties. It is called after every event.
func (n duty) attend() {
	d := n.seat.duties
	if n.run.state.Config.VerificationPercent == 0 {
		return
	}
	if n.replica == nil || n.opensTo() == nil {
		return
	}
	for _, step := range slices.Sorted(maps.Keys(d.verifying)) {
		n.verify(d.verifying[step])
	}
	for _, step := range slices.Sorted(maps.Keys(d.scrutinies)) {
		n.scrutinise(d.scrutinies[step])
	}
	for _, key := range slices.SortedFunc(maps.Keys(d.juries), juryKey.compare) {
		n.judge(d.juries[key])
	}
	n.answerFor()
}

// look takes over what a newer state says, before anything is done about it: what is to be opened
// has to be known before the next result is made.
func (n duty) look() {
	d, s := n.seat.duties, n.run.state
	if s.Config.VerificationPercent == 0 {
		return
	}
	for i := range s.Epoch.Rounds {
		r := &s.Epoch.Rounds[i]
		if d.seeds[r.Step] != r.Seed || d.auditors[r.Step] == nil {
			d.seeds[r.Step], d.auditors[r.Step] = r.Seed, append([]coordinator.ClientID{}, s.Auditors(r.Step, n.run.myself())...)
		}
		if o := d.opener; o != nil && r.Step > 1 && o.newest() == r.Step-1 && len(d.auditors[r.Step]) > 0 && o.draw(r.Step-1, r.Seed) {
			n.tasks.Spawn(func(context.Context) func() {
				o.open()
				return func() {}
			})
		}
		n.allow(r)
	}
	for step := range d.seeds {
		if step+keptSeeds <= s.Progress.Step || step > s.Progress.Step {
			delete(d.seeds, step)
			delete(d.auditors, step)
		}
	}
	n.findAudits()
	n.findScrutinies()
	n.findTrials()
}

// allow lets those ask for the own result of the round before whose duty it is, and who have
// committed to what they computed.
func (n duty) allow(r *coordinator.Round) {
	for _, id := range n.seat.duties.auditors[r.Step] {
		if member, ok := r.MemberIndex(id); ok && r.Sealed.Has(member) {
			n.seat.duties.shown.Allow(r.Step-1, identity.ID(id))
		}
	}
	if t := n.run.state.Trial(n.run.myself()); t != nil && !t.Fault.OfVerifier() {
		for _, id := range t.Jury {
			n.seat.duties.shown.Allow(t.Step-1, identity.ID(id))
		}
	}
}

// sinceOf returns the first step that a client's optimizer remembers, as far as the run knows.
func (v *view) sinceOf(id coordinator.ClientID) uint32 {
	for _, clients := range [][]coordinator.Client{v.state.Epoch.Clients, v.state.Epoch.Exited} {
		if i := slices.IndexFunc(clients, func(c coordinator.Client) bool { return c.ID == id }); i >= 0 {
			return clients[i].OptimizerSince
		}
	}
	return 0
}
