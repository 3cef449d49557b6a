package client

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// Peers that are asked at once.
const (
	maxOwnersAsked = 4 // each for its own result of the running round
	maxPeersAsked  = 3 // for all results of a finished round
	maxInformed    = 2 // of them, that are known to hold what is missing
)

// heal looks after gossip that may have been lost in the running round: it announces the
// own result again until the witnesses have it, and asks the owners of results that were
// not announced here.
func (n *Node) heal() {
	now := n.Runtime.Now()
	if n.ended || n.replica == nil || n.state.RunState != coordinator.RoundTrain || now.Sub(n.healed) < n.RepublishInterval {
		return
	}
	n.healed = now
	l := n.rounds[n.state.Progress.Step]
	if l == nil {
		return
	}
	if l.raw != nil && l.round.Votes(l.commitment) < int(l.round.WitnessesNeeded) {
		n.publish(l.raw)
	}
	asked := 0
	for i := range l.slots {
		s := &l.slots[(i+n.turn)%len(l.slots)]
		if len(s.candidates) == 0 && asked < maxOwnersAsked && s.owner != coordinator.ClientID(n.id) && n.healthy(s.owner) {
			n.ask(identity.ID(s.owner), l.round.Step)
			asked++
		}
	}
	n.turn++
}

// askFor asks some peers for all results of a finished round, informed ones first, others
// each time: of a trainer that signed many results each may be held by few.
func (n *Node) askFor(l *ledger, informed []uint16) {
	now := n.Runtime.Now()
	if now.Sub(l.asked) < min(fetchPause, n.RepublishInterval) {
		return
	}
	l.asked = now
	var peers []identity.ID
	add := func(member int, limit int) {
		id := identity.ID(l.round.Members[member])
		if len(peers) < limit && id != n.id && !slices.Contains(peers, id) {
			peers = append(peers, id)
		}
	}
	for i := range informed {
		add(int(informed[(n.turn*maxInformed+i)%len(informed)]), maxInformed)
	}
	for i := range l.round.Members {
		add((n.turn*maxPeersAsked+i)%len(l.round.Members), maxPeersAsked)
	}
	n.turn++
	for _, id := range peers {
		n.ask(id, l.round.Step)
	}
}

// ask asks a peer for the announcements it has of a round, and hears them.
func (n *Node) ask(peer identity.ID, step uint32) {
	n.spawn(func(ctx context.Context) func() {
		ctx, cancel := n.Runtime.WithTimeout(ctx, requestTimeout)
		defer cancel()
		heard, err := n.roundResults(ctx, peer, step)
		return func() {
			if err != nil {
				n.log.Debug("ask for results", "peer", peer.Short(), "step", step, "err", err)
			}
			for _, u := range heard {
				n.hear(u)
			}
		}
	})
}

// roundResults gets the verified announcements that a peer has of a round and that are new
// here.
func (n *Node) roundResults(ctx context.Context, peer identity.ID, step uint32) ([]utterance, error) {
	request := binary.LittleEndian.AppendUint32(nil, step)
	response, err := n.Network.Request(ctx, peer, roundProtocol, request, maxRoundResponse)
	if err != nil {
		return nil, err
	}
	raws, err := decodeAnnouncements(response)
	if err != nil {
		return nil, err
	}
	raws = n.shelf.unknown(step, raws) // a signature costs more to verify than everything else here
	heard := make([]utterance, 0, len(raws))
	for _, raw := range raws {
		author, a, err := n.Announcements.Open(raw)
		if err != nil {
			return heard, err
		}
		if a.Step == step {
			heard = append(heard, utterance{author: author, announcement: a, raw: raw})
		}
	}
	return heard, nil
}

// publish gossips an announcement.
func (n *Node) publish(raw []byte) {
	n.spawn(func(ctx context.Context) func() {
		ctx, cancel := n.Runtime.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := n.Network.Publish(ctx, raw)
		return func() {
			if err != nil {
				n.log.Debug("publish announcement", "err", err)
			}
		}
	})
}
