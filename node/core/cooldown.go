package core

import "github.com/psyche-go/psyche/core/coordinator"

// Events of the end of an epoch.
type (
	// Close advances the end of the epoch of a member's replica. The caller starts Ready.Next, and
	// repeats Close until Ready.Next is nil. Then no work for this epoch or an earlier one is left.
	Close struct {
		Replica *Replica // nil: none
		Newest  uint32   // newest round of the replica's epoch; 0: none is known
		Taken   bool     // the member has taken the model after the replica's newest step
	}

	// Cooldown follows a complete Close in Cooldown.
	Cooldown struct{ Held *Model }

	// Persisted follows an event with Ready.Persist.
	Persisted struct {
		Done bool // the model is on the disk, or the disk had its time
		HeldOut
	}
)

// Reported means that the host accepted the report of the model of a step.
type Reported struct {
	Step   uint32
	Digest [32]byte
}

func (Close) event()     {}
func (Cooldown) event()  {}
func (Persisted) event() {}

func (Reported) report() {}

// cooldown decides how a member ends an epoch.
type cooldown struct {
	persists *Model   // model that is being written before its report; nil: none
	reports  Reported // newest submitted report
	measuring
}

// close applies the outstanding results, takes the model, and leaves the epoch. If the run has recorded
// a model after the epoch, later steps are lost, and the members that had their results may have left.
func (d *cooldown) close(c *common, e Close) {
	if c.state.RunState == coordinator.Cooldown {
		d.begin(c)
		c.Jobs.cancelTraining(none)
	}
	r := e.Replica
	if r == nil {
		return
	}
	switch c.state.RunState {
	case coordinator.Warmup, coordinator.RoundTrain, coordinator.RoundWitness:
		if !r.Closing && r.Epoch == EpochOf(c.state) {
			return
		}
	}
	r.Closing = true
	c.Jobs.cancelTraining(none)
	c.Jobs.cancelRecomputation(true)
	last := max(r.Step, e.Newest)
	if known, recorded := r.Recorded(c.state); known {
		last = max(r.Step, min(last, recorded))
	}
	switch want := max(last, r.Has); {
	case r.Step < want:
		c.ready.Next = Apply{Step: want}
	case !e.Taken:
		c.ready.Next = Snapshot{r.Step}
	default:
		c.ready.LeaveEpoch = true
	}
}

// look stops a measurement after the epoch's Cooldown.
func (d *cooldown) look(c *common) {
	if c.state.RunState != coordinator.Cooldown {
		d.stop(c)
	}
}

// ask asks for the model to be on the disk before the member reports it.
func (d *cooldown) ask(c *common, e Cooldown) {
	d.persists = nil
	last := c.state.Progress.Step - 1
	if e.Held == nil || e.Held.Step != last || !c.isMember() {
		return
	}
	if me, _ := c.state.Member(c.ID); me.Report.Step != last {
		d.persists = e.Held
		c.ready.Persist = e.Held
	}
}

// persisted reports the model, once it is measured, if it should be. A leaving member waits neither for
// the disk nor for a measurement.
func (d *cooldown) persisted(c *common, e Persisted) {
	m := d.persists
	if m == nil {
		return
	}
	loss, done := d.claim(c, m, e.HeldOut)
	if (!e.Done || !done) && !c.Leave.Begun() {
		return
	}
	d.persists = nil
	report := coordinator.ReportCheckpoint{Step: m.Step + 1, Digest: m.Digest, HeldOut: loss}
	if c.submit(checkpointKind, report, report) {
		d.reports = Reported{m.Step, m.Digest}
	}
}

// accepted handles the host's acceptance of a report.
func (d *cooldown) accepted(c *common) { c.report(d.reports) }
