package sim

import (
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// arrives notes who acts next.
func (c *checker) arrives(m *machine) {
	c.outlet.known = c.world.cast.FromNetwork(c.host.state)[coordinator.ClientID(m.ID)]
}

// promised notes the place of an accepted action that does not wait for more of its kind.
func (c *checker) promised(name signature, a coordinator.Action) {
	switch a := a.(type) {
	case coordinator.Join:
		c.outlet.came[c.world.cast.Of(name.from).Index] = c.world.now
	case coordinator.Ready, coordinator.WitnessRound, coordinator.ReportCheckpoint:
	case coordinator.Withdraw:
		c.withdrawn(name.from, a.Client)
	default:
		if _, returns := a.(coordinator.Return); returns {
			c.outlet.came[c.world.cast.Of(name.from).Index] = c.world.now
		}
		c.outlet.promised[name] = c.host.core.Log().Head().Index + 1
	}
}

// published notes that clients are shown the state behind so many records.
func (c *checker) published(records uint64) { c.outlet.shown = records }

// acknowledged notes what the host has said is done.
func (c *checker) acknowledged(from coordinator.ClientID, nonce uint64, a coordinator.Action) {
	name := signature{from, nonce}
	c.acked[name] = true
	if place := c.outlet.promised[name]; place > c.outlet.shown {
		c.violate(ShownFirst, "%s was told that %s is accepted, which is record %d, and is shown %d", c.nameOf(from), describe(a), place, c.outlet.shown)
	}
}

// restarted notes what a host that starts again can see.
func (c *checker) restarted() {
	clear(c.outlet.away)
	c.cutOff()
	clear(c.outlet.forgotten)
	for id := range c.world.cast.FromNetwork(c.host.state) {
		c.outlet.forgotten[id] = true
	}
}

// survived checks that a host that starts again has what it showed.
func (c *checker) survived(records uint64) {
	if c.outlet.shown > records {
		c.violate(NothingLost, "clients were shown %d records, the journal has %d", c.outlet.shown, records)
	}
}

// cutOff notes whose connections are gone.
func (c *checker) cutOff() {
	for i := range c.outlet.away {
		if c.outlet.away[i] == 0 && !c.host.connected(i) {
			c.outlet.away[i] = c.world.now
		}
	}
}

// looks notes that the host looks around, and sees which clients are back.
func (c *checker) looks() {
	c.cutOff()
	for i := range c.outlet.away {
		if c.host.connected(i) {
			c.outlet.away[i] = 0
		}
	}
}

// withdrawn checks that a client that the host withdraws was gone for long enough.
func (c *checker) withdrawn(by, id coordinator.ClientID) {
	w := c.world
	if by != scenario.HostID || c.world.plan.HostLies() {
		return
	}
	since := c.outlet.away[w.cast.Of(id).Index]
	if since == 0 || w.now-since < scenario.Grace {
		c.violate(Patient, "%s was withdrawn, and is gone since %.3f s", c.nameOf(id), float64(since)/float64(second))
	}
}

// waitsNoLonger checks that nobody is gone for longer than the grace and takes part, but for what the
// disk may take.
func (c *checker) waitsNoLonger(s *coordinator.State) {
	w := c.world
	if c.world.plan.HostLies() || s.RunState == coordinator.Finished {
		return
	}
	limit := scenario.Grace + scenario.Beat + 2*w.plan.DiskMost
	for i, away := range c.outlet.away {
		since := max(away, c.outlet.came[i])
		if m := w.machines[i]; away != 0 && w.now-since > limit && s.TakesPart(coordinator.ClientID(m.ID)) {
			c.violate(Patient, "%s takes part, and is gone since %.3f s", m.Name(), float64(since)/float64(second))
		}
	}
}
