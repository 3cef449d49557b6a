package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/wire"
)

// view is this client's knowledge of the run: the newest state and the addresses of its peers.
type view struct {
	me        identity.ID
	chance    *rand.Rand         // private random source
	state     *coordinator.State // nil: none yet; never modified
	peers     []backend.Peer
	genesis   []byte                        // signed genesis of the run; nil if no host signs it
	hash      [32]byte                      // identifies the run in signed messages
	starts    []wire.Head                   // heads of the run's log at the starts of the newest rounds; nil if no host signs heads
	fit       map[coordinator.ClientID]bool // healthy members
	slow      map[coordinator.ClientID]bool // healthy members that rounds do not wait for
	next      nextBatch                     // newest prediction of this client's next batch
	hostFault error                         // proof of a dishonest host, with which the client ends soon

	completion time.Duration // Options.CompletionTimeout
}

// domainPeers is the key derivation domain of the secret for choosing peers.
const domainPeers = "psyche/peers/v1"

// newView returns the view of a client that has seen nothing of a run.
func newView(key identity.Key, completion time.Duration) view {
	mac := hmac.New(sha256.New, key.Private().Seed())
	mac.Write([]byte(domainPeers))
	return view{me: key.ID(), completion: completion, chance: rand.New(rand.NewChaCha8([32]byte(mac.Sum(nil))))}
}

// State returns the newest state of the run. The caller must not modify it.
func (v *view) State() *coordinator.State { return v.state }

// renew updates the view from a newer state. It reports whether the set of peers that this client
// may talk to has changed.
func (v *view) renew(u backend.Update) (newPeers bool) {
	newMembers := v.state == nil || v.state.RunState != u.State.RunState || !sameMembers(v.state, u.State)
	newPeers = newMembers || !slices.EqualFunc(v.peers, u.Peers, samePeer)
	v.state, v.peers, v.hash, v.genesis, v.starts = u.State, u.Peers, u.Run, u.Genesis, u.Starts
	if newMembers {
		v.fit, v.slow = healthyMembers(u.State)
	}
	return newPeers
}

// names returns the names that participants chose, as reported by the host. It does not include
// participants without a known address.
func (v *view) names() map[identity.ID]string {
	names := make(map[identity.ID]string)
	for _, peer := range v.peers {
		names[peer.ID] = peer.Name
	}
	return names
}

// startOf returns the head of the run's log at the start of a round, or zero if it is unknown.
func (v *view) startOf(step uint32) wire.Head {
	for _, start := range v.starts {
		if start.Step == step {
			return start
		}
	}
	return wire.Head{}
}

// definition returns the parameters of a trainer of the run.
func (v *view) definition() env.Definition {
	return env.Definition{Model: v.state.Model, Audited: v.state.Config.VerificationPercent > 0}
}

// epoch returns the running epoch.
func (v *view) epoch() core.Epoch { return core.EpochOf(v.state) }

// myself returns the key of this client as a coordinator.ClientID.
func (v *view) myself() coordinator.ClientID { return coordinator.ClientID(v.me) }

// is reports whether c is the entry of this client.
func (v *view) is(c coordinator.Client) bool { return c.ID == v.myself() }

// healthy reports whether the client is a healthy member of the epoch.
func (v *view) healthy(id coordinator.ClientID) bool { return v.fit[id] }

// awaits returns a function that reports for which owners the round waits, as
// coordinator.State.Awaited does: for the healthy owners that are neither slow nor excused, or
// for all healthy owners if there is none.
func (v *view) awaits(t *tally.Tally) func(coordinator.ClientID) bool {
	punctual := func(id coordinator.ClientID) bool { return v.fit[id] && !v.slow[id] }
	if slices.ContainsFunc(t.Slots, func(s tally.Slot) bool { return punctual(s.Owner) }) {
		return punctual
	}
	return v.healthy
}

// isMember reports whether this client is a healthy member of the epoch.
func (v *view) isMember() bool { return v.healthy(v.myself()) }

// hasSeat reports whether this client is a member or pending, including through an earlier process.
func (v *view) hasSeat() bool {
	return v.state != nil && (v.isMember() || slices.ContainsFunc(v.state.Pending, v.is))
}

// admitted returns the peers that may talk to this client: members and pending clients, and in a
// finished run the members of its last epoch.
func (v *view) admitted() []backend.Peer {
	waits := make(map[identity.ID]bool, len(v.state.Pending))
	for i := range v.state.Pending {
		waits[identity.ID(v.state.Pending[i].ID)] = true
	}
	if v.state.RunState == coordinator.Finished {
		for _, clients := range [][]coordinator.Client{v.state.Epoch.Clients, v.state.Epoch.Exited} {
			for i := range clients {
				waits[identity.ID(clients[i].ID)] = true
			}
		}
	}
	admitted := make([]backend.Peer, 0, len(v.peers))
	for _, peer := range v.peers {
		if peer.ID != v.me && (waits[peer.ID] || v.healthy(coordinator.ClientID(peer.ID))) {
			peer.Waits = v.state.RunState != coordinator.Finished && !v.healthy(coordinator.ClientID(peer.ID))
			admitted = append(admitted, peer)
		}
	}
	return admitted
}

// connected returns the clients that have an address.
func (v *view) connected() map[coordinator.ClientID]bool {
	connected := make(map[coordinator.ClientID]bool, len(v.peers))
	for _, peer := range v.peers {
		connected[coordinator.ClientID(peer.ID)] = true
	}
	return connected
}

// Members returns the healthy members except this client, in a different order each time.
func (v *view) Members() []identity.ID {
	return v.drawn(func(*coordinator.Client) bool { return true })
}

// drawn returns the healthy members for which meant returns true, except this client, in an
// unpredictable order. In a predictable order, dishonest members could arrange that all requests go to
// them.
func (v *view) drawn(meant func(c *coordinator.Client) bool) (ids []identity.ID) {
	for i := range v.state.Epoch.Clients {
		if c := &v.state.Epoch.Clients[i]; c.State == coordinator.Healthy && !v.is(*c) && meant(c) {
			ids = append(ids, identity.ID(c.ID))
		}
	}
	v.chance.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// othersHold reports whether another client may hold the run's model.
func (v *view) othersHold() bool {
	for id := range v.fit {
		if id != v.myself() {
			return true
		}
	}
	return slices.ContainsFunc(v.state.Pending, func(c coordinator.Client) bool { return !v.is(c) && c.HoldsModel })
}

// nextBatch is the batch that this client will have in the next round, if the members stay the same
// until then.
type nextBatch struct {
	core.Prediction // Step 0: it is unknown whether this client is in that round
	by              *coordinator.State
	round           coordinator.Round
}

// drawsAs reports whether the same members get the same batches in a round of another state.
func (b *nextBatch) drawsAs(r *coordinator.Round, s *coordinator.State) bool {
	return b.Step == r.Step && b.by.Config.VerificationPercent == s.Config.VerificationPercent && b.round.BatchSeed == r.BatchSeed && b.round.Position == r.Position &&
		b.round.BatchSize == r.BatchSize && b.round.Levels == r.Levels && b.round.Warming == r.Warming && b.by.Config.RetryLost == s.Config.RetryLost && slices.Equal(b.round.Members, r.Members)
}

// predict returns the prediction for the next round from the newest state.
func (v *view) predict(draws env.Draws) nextBatch {
	if v.next.by == v.state {
		return v.next
	}
	before := v.next
	v.next = nextBatch{by: v.state}
	round, follows := v.state.NextRound()
	member, takesPart := round.MemberIndex(v.myself())
	if !follows || !takesPart {
		return v.next
	}
	v.next.round, v.next.Step = round, round.Step
	if before.Step != 0 && before.drawsAs(&round, v.state) { // as after most updates
		v.next.Batch, v.next.OK = before.Batch, before.OK
		return v.next
	}
	for _, a := range draws.Assignments(&round, v.state.Config) {
		if a.Member == member {
			v.next.Batch, v.next.OK = a.Batch, true
		}
	}
	return v.next
}

// healthyMembers returns the healthy members of the epoch, and those for which the round does not wait.
func healthyMembers(s *coordinator.State) (fit, slow map[coordinator.ClientID]bool) {
	fit, slow = make(map[coordinator.ClientID]bool, len(s.Epoch.Clients)), make(map[coordinator.ClientID]bool)
	for i := range s.Epoch.Clients {
		c := &s.Epoch.Clients[i]
		if c.State != coordinator.Healthy {
			continue
		}
		fit[c.ID] = true
		if !s.Awaits(c) {
			slow[c.ID] = true
		}
	}
	return fit, slow
}

// sameMembers reports whether two states have the same members and the same pending clients, and rounds
// that wait for the same members. Most updates change none of them.
func sameMembers(a, b *coordinator.State) bool {
	same := func(x, y coordinator.Client) bool {
		return x.ID == y.ID && x.State == y.State && x.Lateness == y.Lateness && x.Offer == y.Offer && x.Excuses == y.Excuses
	}
	if b.Config.SharesBySpeed && a.Progress.Step != b.Progress.Step {
		return false
	}
	return slices.EqualFunc(a.Epoch.Clients, b.Epoch.Clients, same) && slices.EqualFunc(a.Pending, b.Pending, same)
}

func samePeer(a, b backend.Peer) bool { return a.ID == b.ID && slices.Equal(a.Addrs, b.Addrs) }

// CompletionTime returns the time limit for completing a finished round, and for reading the tokens
// of a batch.
func (v *view) CompletionTime() time.Duration {
	if v.completion > 0 {
		return v.completion
	}
	return max(time.Duration(v.state.Config.MaxRoundTrainTime)*time.Millisecond, requestTimeout)
}

// modelSyncTime returns the time limit for getting a model from a holder: the time that members
// have for it before every epoch (warmup_time).
func (v *view) modelSyncTime() time.Duration {
	return time.Duration(v.state.Config.WarmupTime) * time.Millisecond
}

// newestRollbackGap returns the newest rollback gap. It reports whether the model that the epoch starts from
// lacks the steps of this gap.
func (v *view) newestRollbackGap() (coordinator.RollbackGap, bool) {
	s := v.state
	if len(s.RollbackGaps) == 0 {
		return coordinator.RollbackGap{}, false
	}
	newest := s.RollbackGaps[len(s.RollbackGaps)-1]
	return newest, newest.Last+1 == s.Epoch.StartStep
}
