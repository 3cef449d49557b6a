package core

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of a leaving member.
type (
	// Interrupted begins the graceful leave. After Limit, no new work starts.
	Interrupted struct{ Limit time.Duration }

	// Leaving checks whether anything is left to do before the member withdraws. The caller repeats it
	// after every other event.
	Leaving struct {
		Replica    *Replica           // nil: none
		Held       *Model             // nil: none
		InMemory   bool               // the parts of Held are in memory
		Round      *coordinator.Round // running round; nil: unknown
		HostFault  bool               // the host is proved dishonest
		Unreported bool               // the member has a model that it has not reported
		Writing    bool               // the model at the end of the epoch is being written
		Copies
	}
)

// Reports of a leaving member.
type (
	// Leaves means that a member leaves.
	Leaves struct{ Limit time.Duration }

	// StillLeaving means that a model is still being copied, hashed or written for the other members.
	StillLeaving struct {
		Bytes      int
		For, Limit time.Duration
	}
)

func (Interrupted) event() {}
func (Leaving) event()     {}

func (Leaves) report()       {}
func (StillLeaving) report() {}

// interrupt begins to leave.
func (c *common) interrupt(limit time.Duration) {
	c.Leave.Begin(c.now, limit)
	c.Jobs.cancelTraining(none)
	c.Jobs.cancelRecomputation(true)
	if c.state != nil && c.isMember() {
		c.report(Leaves{limit})
	}
}

// leave does the remaining work of a leaving member.
func (c *common) leave(e Leaving) {
	if c.state == nil || e.HostFault || !c.isMember() || c.Leave.late(c.now) && !c.stays(e) {
		c.ready.Gone = true
		return
	}
	switch c.state.RunState {
	case coordinator.Warmup:
		c.ready.Gone = !c.onlyHolder()
	case coordinator.RoundTrain, coordinator.RoundWitness:
		c.leaveRound(e)
	case coordinator.Cooldown:
		c.leaveCooldown(e)
	default:
		c.ready.Gone = true
	}
}

// stays reports whether the member stays after its time limit, and reports that from time to time.
func (c *common) stays(e Leaving) bool {
	_, copying := c.Jobs.Work().(Snapshot)
	limit, stays := c.Leave.Extend(c.now, copying || e.Writing, !e.Finished || e.Unreported, e.Bytes)
	if !stays {
		return false
	}
	if passed, due := c.Leave.remind(c.now); due {
		c.report(StillLeaving{e.Bytes, passed.Round(time.Second), limit})
	}
	return true
}

// leaveRound reports the newest model that includes all counted results. If this member has sent its
// proof of the running round, it first waits for the outcome of that round.
func (c *common) leaveRound(e Leaving) {
	r, step := e.Replica, c.state.Progress.Step
	me, _ := c.state.Member(c.ID)
	switch {
	case !r.follows():
		c.ready.Gone = true
	case c.Leave.late(c.now): // only work in progress is completed
	case e.Round != nil && c.witnessed(e.Round) && c.Leave.awaitsOutcome(c.now):
	case r.Step+1 < step:
		c.ready.Next = Apply{Step: step - 1}
	case r.Step < c.state.Epoch.StartStep, max(me.Report.Step, c.state.Epoch.Commit.Step) >= r.Step:
		c.ready.Gone = e.Finished
	case !e.Busy && !e.Has(r.Step) && c.Jobs.Idle():
		c.ready.Next = Snapshot{r.Step}
	}
}

// leaveCooldown reports the epoch's model and, if there is a folder, writes it to the disk.
func (c *common) leaveCooldown(e Leaving) {
	me, _ := c.state.Member(c.ID)
	last := c.state.Progress.Step - 1
	if e.Held == nil || e.Held.Step != last {
		c.ready.Gone = e.Replica == nil
		return
	}
	c.ready.CopyHeld = c.Folder && !e.Has(last) && !c.Leave.late(c.now) && e.InMemory
	c.ready.Gone = me.Report.Step == last && e.Finished && !c.ready.CopyHeld
}

// onlyHolder reports whether this client is the only member with the model that an epoch starts from,
// and other members are waiting for the model.
func (c *common) onlyHolder() bool {
	holds := func(m *coordinator.Client) bool { return m.HoldsModel || slices.Contains(c.state.Epoch.Ready, m.ID) }
	me, ok := c.state.Member(c.ID)
	if !ok || !c.state.Model.Checkpoint.FromPeers() || !holds(me) {
		return false
	}
	others := false
	for i := range c.state.Epoch.Clients {
		other := &c.state.Epoch.Clients[i]
		if other.State != coordinator.Healthy || other.ID == c.ID {
			continue
		}
		if holds(other) {
			return false
		}
		others = true
	}
	return others
}
