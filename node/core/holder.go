package core

import (
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// A restarted client may have only an older model of the run, from which the run could continue.
// Such a client waits up to HolderTimeout for a holder of the newest model, and reports that it waits
// every holderReminder.
const (
	HolderTimeout  = 5 * time.Minute
	holderReminder = time.Minute
)

// missing describes a client's wait for the run's newest recorded model, which no connected client
// has.
type missing struct {
	of     coordinator.Checkpoint
	since  time.Time // zero: the model is available
	said   time.Time
	older  uint32 // step of the newest checkpoint in the folder
	usable bool   // the run has recorded that older checkpoint
}

// AwaitsHolder reports that the client waits for a holder of the run's newest recorded model.
type AwaitsHolder struct {
	Newest uint32 // step of that model
	Older  uint32 // step of the newest checkpoint in the folder
	Usable bool   // the run has recorded that older checkpoint
	Left   time.Duration
}

func (AwaitsHolder) report() {}

// awaits reports whether a client without a model in memory should not join yet: it was restarted
// without the run's newest model, its folder has an older model, and no connected client has the
// newest one. If an epoch started now, the run would continue without the newest model, although a
// client may bring that model later.
func (m *missing) awaits(c *common, hasModel bool) bool {
	run := c.state.Model.Checkpoint
	if c.AcceptLoss || !c.Folder || !run.FromPeers() || hasModel ||
		c.Holdings.Checkpoint(c.state) || len(c.state.UploadsOf(run.Digest)) > 0 || c.othersHold() {
		m.since = time.Time{}
		return false
	}
	if m.of != run || m.since.IsZero() {
		*m = missing{of: run, since: c.now}
		var newest coordinator.Recorded
		if newest, m.usable = c.Holdings.Saved(c.state); m.usable {
			m.older = newest.Step
		} else {
			m.older = c.Holdings.Before(run.Step)
		}
	}
	switch {
	case m.older == 0:
		return false // a client that is new or keeps nothing cannot know what other members have
	case m.usable && c.now.Sub(m.since) >= HolderTimeout:
		return false
	case m.said.IsZero() || c.now.Sub(m.said) >= holderReminder:
		m.said = c.now
		c.report(AwaitsHolder{Newest: run.Step, Older: m.older, Usable: m.usable, Left: HolderTimeout - c.now.Sub(m.since)})
	}
	return true
}

// othersHold reports whether another client may hold the run's model.
func (c *common) othersHold() bool {
	for i := range c.state.Epoch.Clients {
		if other := &c.state.Epoch.Clients[i]; other.State == coordinator.Healthy && other.ID != c.ID {
			return true
		}
	}
	for i := range c.state.Pending {
		if other := &c.state.Pending[i]; other.HoldsModel && other.ID != c.ID {
			return true
		}
	}
	return false
}
