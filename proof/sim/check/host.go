package check

import (
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/disk"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// Arrives records the client that acts next.
func (c *Checker) Arrives(m *cast.Member) {
	c.outlet.known = c.run.Cast.FromNetwork(c.host.State())[coordinator.ClientID(m.ID)]
}

// promised records an accepted action whose answer does not wait for more actions of its kind.
func (c *Checker) promised(name disk.Signature, a coordinator.Action) {
	switch a := a.(type) {
	case coordinator.Join:
		c.outlet.came[c.run.Cast.Of(name.From).Index] = c.run.Now()
	case coordinator.Ready, coordinator.WitnessRound, coordinator.ReportCheckpoint:
	case coordinator.Withdraw:
		c.withdrawn(name.From, a.Client)
	default:
		if _, returns := a.(coordinator.Return); returns {
			c.outlet.came[c.run.Cast.Of(name.From).Index] = c.run.Now()
		}
		c.outlet.promised[name] = c.host.Log().Head().Index + 1
	}
}

// Published records that clients see the state after a number of records.
func (c *Checker) Published(records uint64) { c.outlet.shown = records }

// Acknowledged records an action that the host has acknowledged.
func (c *Checker) Acknowledged(from coordinator.ClientID, nonce uint64, a coordinator.Action) {
	name := disk.Signature{From: from, Nonce: nonce}
	c.acked[name] = true
	if place := c.outlet.promised[name]; place > c.outlet.shown {
		c.Violate(ShownFirst, "the host acknowledged to %s that it accepted %s as record %d, but published only %d records", c.NameOf(from), Describe(a), place, c.outlet.shown)
	}
}

// Restarted resets the knowledge of a restarted host.
func (c *Checker) Restarted() {
	clear(c.outlet.away)
	c.CutOff()
	clear(c.outlet.forgotten)
	for id := range c.run.Cast.FromNetwork(c.host.State()) {
		c.outlet.forgotten[id] = true
	}
}

// survived checks that a restarted host still has everything that it published.
func (c *Checker) survived(records uint64) {
	if c.outlet.shown > records {
		c.Violate(NothingLost, "the host published %d records, but the journal has %d", c.outlet.shown, records)
	}
}

// CutOff records the disconnected clients.
func (c *Checker) CutOff() {
	for i := range c.outlet.away {
		if c.outlet.away[i] == 0 && !c.host.Connected(i) {
			c.outlet.away[i] = c.run.Now()
		}
	}
}

// Looks records that the host checks the connections, and sees which clients are back.
func (c *Checker) Looks() {
	c.CutOff()
	for i := range c.outlet.away {
		if c.host.Connected(i) {
			c.outlet.away[i] = 0
		}
	}
}

// withdrawn checks that a withdrawn client was disconnected for long enough.
func (c *Checker) withdrawn(by, id coordinator.ClientID) {
	if by != scenario.HostID || c.run.Plan.HasByzantineHost() {
		return
	}
	since := c.outlet.away[c.run.Cast.Of(id).Index]
	if since == 0 || c.run.Now()-since < scenario.Grace {
		c.Violate(KeepsGrace, "%s was withdrawn too early; disconnected since %.3f s (0: connected)", c.NameOf(id), float64(since)/float64(second))
	}
}

// waitsNoLonger checks that every participant that is disconnected for longer than the grace period
// is withdrawn, with a tolerance for the disk.
func (c *Checker) waitsNoLonger(s *coordinator.State) {
	if c.run.Plan.HasByzantineHost() || s.RunState == coordinator.Finished {
		return
	}
	limit := scenario.Grace + scenario.Beat + 2*c.run.Plan.DiskMost
	for i, away := range c.outlet.away {
		since := max(away, c.outlet.came[i])
		if m := c.run.Cast.Members[i]; away != 0 && c.run.Now()-since > limit && s.TakesPart(coordinator.ClientID(m.ID)) {
			c.Violate(KeepsGrace, "%s still takes part, but is disconnected since %.3f s", m.Name(), float64(since)/float64(second))
		}
	}
}
