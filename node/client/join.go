package client

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// keepSeat joins if the client has no seat, or has a seat that it cannot fill. In the latter case,
// joining gives that seat up and asks for one in the next epoch.
func (n *Node) keepSeat() {
	s := n.run.state
	if n.seat.leaving.Begun() {
		return
	}
	i := slices.IndexFunc(s.Pending, n.run.is)
	if i >= 0 {
		n.seat.acked = time.Time{}
		// The coordinator relies on pending clients that claimed to hold the model. The held model
		// may be from an epoch that was rolled back, so that the run does not continue from it.
		held := n.models.Held != nil && !s.Model.Checkpoint.FromPeers()
		waits := &s.Pending[i]
		holds := !waits.HoldsModel || held || n.rounds.replica != nil || n.models.holds.checkpoint(s)
		// The run may have recorded a newer model of this client since it joined.
		more := !waits.HoldsModel && n.seat.told != s.Model.Checkpoint && n.models.holds.newest(s).Step > waits.HoldsEarlier
		if holds && !more && n.seat.reveals.opens(waits, s.Progress.Epoch) {
			return
		}
	} else if !n.needsSeat() {
		return
	}
	if n.waitsForHolder() {
		if i >= 0 && s.Pending[i].HoldsModel { // the run relies on a model that this client lost when it was killed
			leave := coordinator.Withdraw{Client: n.run.myself()}
			n.actions.submit("withdraw", leave, leave, func() {})
		}
		return
	}
	if n.tasks.Now().Sub(n.seat.acked) < submitTimeout || !n.seat.checked(n.run.definition(), &n.engine, n.CheckRun, n.fail) {
		return
	}
	epoch := s.Progress.Epoch
	join := coordinator.Join{Epoch: epoch, Commitment: n.seat.reveals.commitment(epoch, n.tasks.Now()), Holds: n.models.holds.newest(s).Digest, Name: n.Name}
	n.seat.asked = true
	sent, of := n.tasks.Now(), s.Model.Checkpoint
	n.actions.submit("join", join, join, func() {
		n.seat.told = of
		n.seat.acked = sent // not the present time, because a suspended process may read the answer much later
		n.report.log.Info("joined", "epoch", epoch)
		n.report.emit(event.Joined{Epoch: epoch})
	})
}

// needsSeat reports whether the client has no usable seat.
func (n *Node) needsSeat() bool {
	s, member, has := n.run.state, n.run.isMember(), n.rounds.replica != nil
	switch s.RunState {
	case coordinator.Finished, coordinator.Uninitialized:
		return false
	case coordinator.Warmup:
		me, ok := s.Member(n.run.myself()) // a member fetches the model, even after a restart
		return !ok || !member || !n.seat.reveals.opens(me, s.Progress.Epoch)
	case coordinator.WaitingForMembers, coordinator.Paused:
		return true // not pending, see keepSeat
	case coordinator.Cooldown: // the run would wait for a client that cannot report the epoch's model
		m := n.models.Held
		return !member || !has && (m == nil || m.Step != s.Progress.Step-1)
	}
	if !member {
		return !n.seat.rejoin.mayTakeSeat(&n.run, n.rounds.follows())
	}
	return !has && !n.engine.holds(n.models.Models, n.run.definition()) && !n.seat.rejoin.possible(&n.run, false)
}

// waitsForHolder reports whether this client should not join yet: it was restarted without the run's
// newest model, its folder has an older model, and no connected client has the newest one. If an
// epoch started now, the run would continue without the newest model, although a client may bring
// that model later.
func (n *Node) waitsForHolder() bool {
	s, m := n.run.state, &n.seat.missing
	c := s.Model.Checkpoint
	if n.AcceptLoss || n.CheckpointDir == "" || !c.FromPeers() || n.models.Held != nil || n.rounds.replica != nil ||
		n.models.holds.checkpoint(s) || len(s.UploadsOf(c.Digest)) > 0 || n.run.othersHold() {
		m.since = time.Time{}
		return false
	}
	now := n.tasks.Now()
	if m.of != c || m.since.IsZero() {
		*m = missingModel{of: c, since: now}
		var newest coordinator.Recorded
		if newest, m.usable = n.saver.Newest(s); m.usable {
			m.older = newest.Step
		} else if m.older, _ = n.folder().NewestBefore(c.Step); m.older == 0 {
			return false // a client that is new or keeps nothing cannot know what other members have
		}
	}
	switch {
	case m.older == 0:
		return false
	case m.usable && now.Sub(m.since) >= holderTimeout:
		return false
	case m.said.IsZero() || now.Sub(m.said) >= holderReminder:
		m.said = now
		n.report.log.Warn(m.text(holderTimeout - now.Sub(m.since)))
	}
	return true
}

// takeSeatBack requests this client's seat.
func (n *Node) takeSeatBack() {
	if !slices.ContainsFunc(n.run.state.Epoch.Exited, n.run.is) {
		return // the seat is freed when the running round ends
	}
	epoch, again := n.run.state.Progress.Epoch, n.seat.again
	n.actions.submit("return", n.run.state.Progress.Step, coordinator.Return{Epoch: epoch}, func() {
		if again && !n.seat.again {
			return // the state already showed the seat before the host's answer arrived, and enter reported it
		}
		n.seat.again = false
		n.report.log.Info("took its seat back", "epoch", epoch)
		n.report.emit(event.Rejoined{Epoch: epoch, Step: n.run.state.Progress.Step})
	})
}
