package check

import (
	"bytes"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// crowded checks that no client was admitted beyond the seat limit of its network, as far as the
// host can know. A restarted host learns the networks of connected clients when a client joins.
func (c *Checker) crowded(s *coordinator.State, joined coordinator.ClientID) {
	there := 0
	if !c.run.Cast.InCoalition(joined) {
		return
	}
	for id := range c.run.Cast.FromNetwork(s) {
		if id == joined || c.host.Connected(c.run.Cast.Of(id).Index) {
			delete(c.outlet.forgotten, id)
		}
		if !c.outlet.forgotten[id] {
			there++
		}
	}
	if limit := c.run.Plan.Crew.Size; there > limit && !c.outlet.known {
		c.Violate(SeatsFair, "%s joined, so that %d clients of its network take part, want at most %d", c.NameOf(joined), there, limit)
	}
}

// Announces checks that no life of an honest client signs two results.
func (c *Checker) Announces(m *cast.Member, a wire.ResultAnnouncement) {
	c.pace.heard(m, a, c.run.Now())
	if !m.Honest() {
		return
	}
	of := signing{m.Index, a.Step, a.Batch}
	if blob, known := c.signed[of]; known && blob != a.Blob {
		c.Violate(SignedOnce, "%s signs two results of batch %v in step %d", m.Name(), a.Batch, a.Step)
	}
	c.signed[of] = a.Blob
}

// proved checks an accepted proof that a client signed two results, and that the client is out.
func (c *Checker) proved(s *coordinator.State, a coordinator.Equivocation) {
	name := c.NameOf(a.Client)
	signed := make(map[signing]map[[32]byte]bool)
	two := false
	for _, known := range c.run.Registry.OfStep(a.Step) {
		if !bytes.Equal(known.Author[:], a.Client[:]) {
			continue
		}
		of := signing{step: a.Step, batch: known.Announcement.Batch}
		if signed[of] == nil {
			signed[of] = make(map[[32]byte]bool)
		}
		signed[of][known.Announcement.Blob] = true
		two = two || len(signed[of]) > 1
	}
	if !two {
		c.Violate(Ejected, "%s was proved guilty, but did not sign two results in step %d", name, a.Step)
	}
	if member, ok := s.Member(a.Client); ok && member.State == coordinator.Healthy || s.IsPending(a.Client) {
		c.Violate(Ejected, "%s signed two results in step %d, but was not excluded", name, a.Step)
	}
	until := s.Progress.Epoch + 1 + uint32(s.Config.EjectionEpochs)
	c.ejected[a.Client], c.courts.kept[a.Client] = until, max(until, c.courts.kept[a.Client])
}

// staysOut checks that a participating client was not ejected recently.
func (c *Checker) staysOut(s *coordinator.State, id coordinator.ClientID) {
	if until := c.ejected[id]; s.Progress.Epoch < until {
		c.Violate(Ejected, "%s returned in epoch %d, before the end of its ejection in epoch %d", c.NameOf(id), s.Progress.Epoch, until)
	}
}

// rewindEjections adopts the ejections of a restarting host.
func (c *Checker) rewindEjections(s *coordinator.State) {
	clear(c.ejected)
	for _, e := range s.Authority.Ejections {
		c.ejected[e.Client] = e.Until
	}
}

// deceived checks a client that ended because it found that its host is Byzantine.
func (c *Checker) deceived(p Client, fault *follow.HostFault) {
	heads := fault.Evidence.Heads
	if !c.run.Forked() || len(heads) != 2 || !heads[0].Contradicts(heads[1]) {
		c.Violate(NodeSound, "%s: %v, without two contradicting heads as evidence", p.Member().Name(), fault)
		return
	}
	for _, head := range heads {
		if !head.Verify(identity.ID(scenario.HostID), [32]byte{}) {
			c.Violate(NodeSound, "%s: %v, with a head that the host did not sign", p.Member().Name(), fault)
		}
	}
}

// isOutvoted reports whether Byzantine members are more than a third of an epoch's remaining
// members, because honest members were dropped or left. The reports of the honest members are then
// not a quorum.
func (c *Checker) isOutvoted(members []coordinator.Client) bool {
	healthy, honest := 0, 0
	for i := range members {
		if members[i].State != coordinator.Healthy {
			continue
		}
		healthy++
		if c.honest(members[i].ID) {
			honest++
		}
	}
	return honest < QuorumOf(healthy)
}
