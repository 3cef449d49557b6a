package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// seat is the client's way into the run.
type seat struct {
	greeted bool      // a state was seen
	acked   time.Time // when a Join was accepted that no state shows yet
	asked   bool      // this process asked for a place
	again   bool      // the next entry is a return: the model was lost, or the process restarted
	check   *runCheck // newest; nil: none yet
	waiting waiting   // as it was logged last
}

// errand is an action on its way to the coordinator.
type errand struct {
	about     any // what it is about; another one may go at once
	flying    bool
	notBefore time.Time
}

// observe takes over a newer state.
func (n *Node) observe(u backend.Update) {
	if u.State == nil {
		return
	}
	newPeers, newMembers := !slices.EqualFunc(n.peers, u.Peers, samePeer), n.state == nil || !sameMembers(n.state, u.State)
	n.state, n.peers = u.State, u.Peers
	if newMembers {
		n.fit = healthyMembers(u.State)
	}
	if !n.seat.greeted {
		n.seat.greeted = true
		n.seat.again = n.knownBefore()
	}
	if newPeers || newMembers {
		n.Network.SetMembers(n.admitted())
	}
	n.openRounds()
	n.reportState()
	n.dropShares()
}

// knownBefore reports whether the run knew this key before this process joined.
func (n *Node) knownBefore() bool {
	is := func(c coordinator.Client) bool { return c.ID == coordinator.ClientID(n.id) }
	return slices.ContainsFunc(n.state.Epoch.Clients, is) || slices.ContainsFunc(n.state.Epoch.Exited, is) ||
		slices.ContainsFunc(n.state.Pending, is)
}

// healthy reports whether the client is a healthy member of the epoch.
func (n *Node) healthy(id coordinator.ClientID) bool { return n.fit[id] }

// healthyMembers returns the healthy members of the epoch.
func healthyMembers(s *coordinator.State) map[coordinator.ClientID]bool {
	fit := make(map[coordinator.ClientID]bool, len(s.Epoch.Clients))
	for i := range s.Epoch.Clients {
		if c := &s.Epoch.Clients[i]; c.State == coordinator.Healthy {
			fit[c.ID] = true
		}
	}
	return fit
}

// sameMembers reports whether two states have the same members, and the same clients that
// wait. Most updates change neither.
func sameMembers(a, b *coordinator.State) bool {
	same := func(x, y coordinator.Client) bool { return x.ID == y.ID && x.State == y.State }
	return slices.EqualFunc(a.Epoch.Clients, b.Epoch.Clients, same) && slices.EqualFunc(a.Pending, b.Pending, same)
}

func samePeer(a, b backend.Peer) bool { return a.ID == b.ID && slices.Equal(a.Addrs, b.Addrs) }

// isMember reports whether this client is a healthy member of the epoch.
func (n *Node) isMember() bool { return n.healthy(coordinator.ClientID(n.id)) }

// hasSeat reports whether this client is a member or waits to be one, be it since an
// earlier process.
func (n *Node) hasSeat() bool {
	is := func(c coordinator.Client) bool { return c.ID == coordinator.ClientID(n.id) }
	return n.state != nil && (n.isMember() || slices.ContainsFunc(n.state.Pending, is))
}

// admitted returns the peers that may talk to this client: members and those that wait.
func (n *Node) admitted() []backend.Peer {
	waits := make(map[identity.ID]bool, len(n.state.Pending))
	for i := range n.state.Pending {
		waits[identity.ID(n.state.Pending[i].ID)] = true
	}
	admitted := make([]backend.Peer, 0, len(n.peers))
	for _, peer := range n.peers {
		if peer.ID != n.id && (waits[peer.ID] || n.healthy(coordinator.ClientID(peer.ID))) {
			admitted = append(admitted, peer)
		}
	}
	return admitted
}

// others returns the clients but this one, starting at another one with every call, so
// that questions are spread.
func (n *Node) others(clients []coordinator.ClientID) []identity.ID {
	var ids []identity.ID
	for _, id := range clients {
		if id != coordinator.ClientID(n.id) {
			ids = append(ids, identity.ID(id))
		}
	}
	if len(ids) < 2 {
		return ids
	}
	n.turn++
	first := n.turn % len(ids)
	return slices.Concat(ids[first:], ids[:first])
}

// epoch names the running epoch.
func (n *Node) epoch() epochKey {
	return epochKey{n.state.Epoch.StartStep, n.state.Model.Checkpoint}
}

// keepSeat joins when the client has no place in the run, or has one that it cannot
// fill: then joining gives the place up and asks for one in the next epoch.
func (n *Node) keepSeat() {
	if i := slices.IndexFunc(n.state.Pending, func(c coordinator.Client) bool { return c.ID == coordinator.ClientID(n.id) }); i >= 0 {
		n.seat.acked = time.Time{}
		// The coordinator counts on pending clients that it believes to hold the model.
		if !n.state.Pending[i].HoldsModel || n.model != nil || n.replica != nil || n.holdsCheckpoint() {
			return
		}
	} else if !n.needsSeat() {
		return
	}
	if n.Runtime.Now().Sub(n.seat.acked) < submitTimeout || !n.runChecked() {
		return
	}
	epoch := n.state.Progress.Epoch
	join := coordinator.Join{Epoch: epoch}
	if n.holdsCheckpoint() {
		join.Holds = n.state.Model.Checkpoint.Digest
	}
	n.seat.asked = true
	n.submit("join", join, join, func() {
		n.seat.acked = n.Runtime.Now()
		n.log.Info("joined", "epoch", epoch)
		n.emit(event.Joined{Epoch: epoch})
	})
}

// needsSeat reports whether the client has no usable place.
func (n *Node) needsSeat() bool {
	switch n.state.RunState {
	case coordinator.Finished, coordinator.Uninitialized:
		return false
	case coordinator.Warmup:
		return !n.isMember() // a member fetches the model, restarted or not
	case coordinator.WaitingForMembers, coordinator.Paused:
		return true // not pending, see keepSeat
	case coordinator.Cooldown:
		return !n.isMember() || (n.replica == nil && n.model == nil)
	default:
		return !n.isMember() || (n.replica == nil && !n.holdsModel())
	}
}

// desynchronise gives up the replica: the trainer's weights are not the run's any more.
// The client joins again and gets the model from what it holds of the run's checkpoint, or
// from its peers.
func (n *Node) desynchronise(reason string) {
	n.log.Warn("desynchronised: leaving the epoch to get the model from peers", "reason", reason)
	n.emit(event.Desynchronised{Epoch: n.state.Progress.Epoch, Step: n.state.Progress.Step, Reason: reason})
	if n.op != nil {
		n.op.cancel()
	}
	for _, l := range n.rounds {
		l.stopFetches()
	}
	n.replica, n.model = nil, nil
	n.forgetResults(0) // they may not be the run's
	n.seat.again = true
}

// answered reports whether an action of this kind is on its way, or one about the same was
// answered a moment ago: submit does nothing then.
func (n *Node) answered(kind string, about any) bool {
	e := n.errands[kind]
	return e != nil && (e.flying || e.about == about && n.Runtime.Now().Before(e.notBefore))
}

// submit sends an action unless the same is on its way or was answered a moment ago.
// Callers call it until the state shows the effect. Accepted runs in the loop.
func (n *Node) submit(kind string, about any, a coordinator.Action, accepted func()) {
	if n.answered(kind, about) {
		return
	}
	e := n.errands[kind]
	if e == nil {
		e = &errand{}
		n.errands[kind] = e
	}
	e.about, e.flying = about, true
	n.spawn(func(ctx context.Context) func() {
		ctx, cancel := n.Runtime.WithTimeout(ctx, submitTimeout)
		defer cancel()
		err := n.Backend.Submit(ctx, a)
		return func() {
			e.flying = false
			var code coordinator.Code
			switch {
			case err == nil:
				e.notBefore = n.Runtime.Now().Add(effectTimeout)
				accepted()
			case errors.Is(err, coordinator.ErrDuplicate):
				e.notBefore = n.Runtime.Now().Add(effectTimeout)
				n.log.Debug("submitted before", "action", kind)
			case errors.Is(err, coordinator.ErrNotAuthorised):
				e.notBefore = n.Runtime.Now().Add(notAdmittedPause)
				n.log.Warn("the run does not admit this key, or has ejected it", "action", kind, "id", n.id)
			case errors.As(err, &code):
				e.notBefore = n.Runtime.Now().Add(refusalPause)
				n.log.Debug("refused", "action", kind, "err", err)
			default: // ErrDisconnected: nobody knows whether it was applied
				e.notBefore = n.Runtime.Now().Add(heartbeat)
				n.log.Debug("not submitted", "action", kind, "err", err)
			}
		}
	})
}

// withdraw tells the coordinator that the client leaves, as the last thing it does.
func (n *Node) withdraw(ctx context.Context) {
	if !n.seat.asked && !n.hasSeat() {
		return
	}
	ctx, cancel := n.Runtime.WithTimeout(context.WithoutCancel(ctx), n.WithdrawTimeout)
	defer cancel()
	if err := n.Backend.Submit(ctx, coordinator.Withdraw{Client: coordinator.ClientID(n.id)}); err != nil {
		n.log.Debug("withdraw", "err", err)
	}
}

// reportState writes an event when something of the state changed that people follow.
func (n *Node) reportState() {
	if n.Events == nil {
		return
	}
	s := n.state
	now := event.State{
		RunState: s.RunState.String(), Epoch: s.Progress.Epoch, Step: s.Progress.Step,
		Pending: len(s.Pending), Ready: len(s.Epoch.Ready), IsMember: n.isMember(),
	}
	for _, c := range s.Epoch.Clients {
		if c.State == coordinator.Healthy {
			now.Members = append(now.Members, identity.ID(c.ID).String())
		}
	}
	if round := s.CurrentRound(); round != nil {
		for _, member := range round.ElectedWitnesses(s.Config) {
			now.Elected = append(now.Elected, identity.ID(round.Members[member]).String())
		}
		now.Witnesses, now.Quorum = len(round.Witnesses), int(round.WitnessesNeeded)
	}
	if digest := s.Model.Checkpoint.Digest; digest != [32]byte{} {
		now.Digest = hexOf(digest)
	}
	if !sameState(n.seen, now) {
		n.seen = now
		n.emit(now)
	}
}
