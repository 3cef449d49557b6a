package client

import (
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/tally"
)

// Limits of concurrent requests to peers.
const (
	maxOwnersAsked = 4  // for their own results of the running round
	maxPeersAsked  = 3  // for all results of a finished round
	maxInformed    = 2  // of maxPeersAsked, peers that are known to hold missing results
	maxClaimAsked  = 32 // for results that few witnesses claim to hold; more members than can be dishonest must answer
)

// repairGossip repairs gossip that may have been lost in the running round (anti-entropy). It
// announces this client's result again until the witnesses have it, and asks the owners of results
// that were not announced here.
func (n *Node) repairGossip() {
	now := n.tasks.Now()
	if n.end != nil || n.rounds.replica == nil || n.run.state.RunState != coordinator.RoundTrain || now.Sub(n.gossip.repaired) < n.RepublishInterval {
		return
	}
	n.gossip.repaired = now
	rs := n.rounds.of[n.run.state.Progress.Step]
	if rs == nil {
		return
	}
	if !rs.shared.IsZero() && now.Sub(rs.shared) >= n.RepublishInterval && rs.Round.Votes(rs.commitment) < int(rs.Round.WitnessesNeeded) {
		n.gossip.publish(rs.raw)
	}
	asked := 0
	for i := range rs.Slots {
		s := &rs.Slots[(i+n.fetcher.Rotation.Turn())%len(rs.Slots)]
		if len(s.Candidates) == 0 && asked < maxOwnersAsked && s.Owner != n.run.myself() && n.run.healthy(s.Owner) {
			n.gossip.ask(identity.ID(s.Owner), rs.Round.Step, n.receive, func() {})
			asked++
		}
	}
	n.fetcher.Rotation.Next()
}

// askFor asks some peers for all results of a finished round. It asks peers that are known to have
// missing results first. In each call it asks different peers, because only few members may have a
// certain result if a trainer signed many.
func (g *gossipReader) askFor(rs *roundState, outcome tally.Outcome, me identity.ID, turns *fetch.Rotation, receive func(announcement)) {
	informed, maxInformed, maxPeersAsked := outcome.Informed, maxInformed, maxPeersAsked
	if outcome.Claimed {
		maxInformed, maxPeersAsked = maxClaimAsked/2, maxClaimAsked // the members that claim to hold the results may not answer
	}
	var peers []identity.ID
	add := func(member int, limit int) {
		id := identity.ID(rs.Round.Members[member])
		if len(peers) < limit && id != me && !slices.Contains(peers, id) {
			peers = append(peers, id)
		}
	}
	turn := turns.Turn()
	for i := range informed {
		add(int(informed[(turn*maxInformed+i)%len(informed)]), maxInformed)
	}
	for i := range rs.Round.Members {
		add((turn*maxPeersAsked+i)%len(rs.Round.Members), maxPeersAsked)
	}
	turns.Next()
	for _, id := range peers {
		g.ask(id, rs.Round.Step, receive, func() { rs.answered[id] = true })
	}
}
