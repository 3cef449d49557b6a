package sim

import (
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// arrives notes who acts next.
func (c *checker) arrives(m *cast.Member) {
	c.outlet.known = c.run.Cast.FromNetwork(c.host.State())[coordinator.ClientID(m.ID)]
}

// promised notes the place of an accepted action that does not wait for more of its kind.
func (c *checker) promised(name signature, a coordinator.Action) {
	switch a := a.(type) {
	case coordinator.Join:
		c.outlet.came[c.run.Cast.Of(name.from).Index] = c.run.Now()
	case coordinator.Ready, coordinator.WitnessRound, coordinator.ReportCheckpoint:
	case coordinator.Withdraw:
		c.withdrawn(name.from, a.Client)
	default:
		if _, returns := a.(coordinator.Return); returns {
			c.outlet.came[c.run.Cast.Of(name.from).Index] = c.run.Now()
		}
		c.outlet.promised[name] = c.host.Records() + 1
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
	for id := range c.run.Cast.FromNetwork(c.host.State()) {
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
		if c.outlet.away[i] == 0 && !c.host.Connected(i) {
			c.outlet.away[i] = c.run.Now()
		}
	}
}

// looks notes that the host looks around, and sees which clients are back.
func (c *checker) looks() {
	c.cutOff()
	for i := range c.outlet.away {
		if c.host.Connected(i) {
			c.outlet.away[i] = 0
		}
	}
}

// withdrawn checks that a client that the host withdraws was gone for long enough.
func (c *checker) withdrawn(by, id coordinator.ClientID) {
	if by != scenario.HostID || c.run.Plan.HostLies() {
		return
	}
	since := c.outlet.away[c.run.Cast.Of(id).Index]
	if since == 0 || c.run.Now()-since < scenario.Grace {
		c.violate(Patient, "%s was withdrawn, and is gone since %.3f s", c.nameOf(id), float64(since)/float64(second))
	}
}

// waitsNoLonger checks that nobody is gone for longer than the grace and takes part, but for what the
// disk may take.
func (c *checker) waitsNoLonger(s *coordinator.State) {
	if c.run.Plan.HostLies() || s.RunState == coordinator.Finished {
		return
	}
	limit := scenario.Grace + scenario.Beat + 2*c.run.Plan.DiskMost
	for i, away := range c.outlet.away {
		since := max(away, c.outlet.came[i])
		if m := c.run.Cast.Members[i]; away != 0 && c.run.Now()-since > limit && s.TakesPart(coordinator.ClientID(m.ID)) {
			c.violate(Patient, "%s takes part, and is gone since %.3f s", m.Name(), float64(since)/float64(second))
		}
	}
}
