package check

import (
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/disk"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// Arrives notes who acts next.
func (c *Checker) Arrives(m *cast.Member) {
	c.outlet.known = c.run.Cast.FromNetwork(c.host.State())[coordinator.ClientID(m.ID)]
}

// promised notes the place of an accepted action that does not wait for more of its kind.
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

// Published notes that clients are shown the state behind so many records.
func (c *Checker) Published(records uint64) { c.outlet.shown = records }

// Acknowledged notes what the host has said is done.
func (c *Checker) Acknowledged(from coordinator.ClientID, nonce uint64, a coordinator.Action) {
	name := disk.Signature{From: from, Nonce: nonce}
	c.acked[name] = true
	if place := c.outlet.promised[name]; place > c.outlet.shown {
		c.Violate(ShownFirst, "%s was told that %s is accepted, which is record %d, and is shown %d", c.NameOf(from), Describe(a), place, c.outlet.shown)
	}
}

// Restarted notes what a host that starts again can see.
func (c *Checker) Restarted() {
	clear(c.outlet.away)
	c.CutOff()
	clear(c.outlet.forgotten)
	for id := range c.run.Cast.FromNetwork(c.host.State()) {
		c.outlet.forgotten[id] = true
	}
}

// survived checks that a host that starts again has what it showed.
func (c *Checker) survived(records uint64) {
	if c.outlet.shown > records {
		c.Violate(NothingLost, "clients were shown %d records, the journal has %d", c.outlet.shown, records)
	}
}

// CutOff notes whose connections are gone.
func (c *Checker) CutOff() {
	for i := range c.outlet.away {
		if c.outlet.away[i] == 0 && !c.host.Connected(i) {
			c.outlet.away[i] = c.run.Now()
		}
	}
}

// Looks notes that the host looks around, and sees which clients are back.
func (c *Checker) Looks() {
	c.CutOff()
	for i := range c.outlet.away {
		if c.host.Connected(i) {
			c.outlet.away[i] = 0
		}
	}
}

// withdrawn checks that a client that the host withdraws was gone for long enough.
func (c *Checker) withdrawn(by, id coordinator.ClientID) {
	if by != scenario.HostID || c.run.Plan.HostLies() {
		return
	}
	since := c.outlet.away[c.run.Cast.Of(id).Index]
	if since == 0 || c.run.Now()-since < scenario.Grace {
		c.Violate(KeepsGrace, "%s was withdrawn, and is gone since %.3f s", c.NameOf(id), float64(since)/float64(second))
	}
}

// waitsNoLonger checks that nobody is gone for longer than the grace and takes part, but for what the
// disk may take.
func (c *Checker) waitsNoLonger(s *coordinator.State) {
	if c.run.Plan.HostLies() || s.RunState == coordinator.Finished {
		return
	}
	limit := scenario.Grace + scenario.Beat + 2*c.run.Plan.DiskMost
	for i, away := range c.outlet.away {
		since := max(away, c.outlet.came[i])
		if m := c.run.Cast.Members[i]; away != 0 && c.run.Now()-since > limit && s.TakesPart(coordinator.ClientID(m.ID)) {
			c.Violate(KeepsGrace, "%s takes part, and is gone since %.3f s", m.Name(), float64(since)/float64(second))
		}
	}
}
