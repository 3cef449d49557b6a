package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/wire"
)

// view is what this client knows of the run: the newest state and where its peers are.
type view struct {
	me      identity.ID
	chance  *rand.Rand         // nobody else knows what it draws
	state   *coordinator.State // nil: none yet; never modified
	peers   []backend.Peer
	genesis []byte                        // that the run began with, signed; nil where nobody signs it
	hash    [32]byte                      // names the run in what is signed
	starts  []wire.Head                   // of the run's log at the starts of the newest rounds; nil where no host signs heads
	fit     map[coordinator.ClientID]bool // the healthy members
	slow    map[coordinator.ClientID]bool // those of them that nobody waits for
	next    foretold                      // newest
	lie     error                         // of the host, with which the client ends in a moment
}

// domainPeers keeps what decides which peers are asked apart from what else a key's secrets are derived for.
const domainPeers = "psyche/peers/v1"

// newView returns what a client knows of a run of which it has seen nothing.
func newView(key identity.Key) view {
	mac := hmac.New(sha256.New, key.Private().Seed())
	mac.Write([]byte(domainPeers))
	return view{me: key.ID(), chance: rand.New(rand.NewChaCha8([32]byte(mac.Sum(nil))))}
}

// renew takes over a newer state and reports whether those changed whom this client may
// talk to.
func (v *view) renew(u backend.Update) (newPeers bool) {
	newMembers := v.state == nil || v.state.RunState != u.State.RunState || !sameMembers(v.state, u.State)
	newPeers = newMembers || !slices.EqualFunc(v.peers, u.Peers, samePeer)
	v.state, v.peers, v.hash, v.genesis, v.starts = u.State, u.Peers, u.Run, u.Genesis, u.Starts
	if newMembers {
		v.fit, v.slow = healthyMembers(u.State)
	}
	return newPeers
}

// names are what participants call themselves, as the host says; of one that it has no address of, nothing is
// known.
func (v *view) names() map[identity.ID]string {
	names := make(map[identity.ID]string)
	for _, peer := range v.peers {
		names[peer.ID] = peer.Name
	}
	return names
}

// startOf returns the head of the run's log at the start of a round, zero if it is not known.
func (v *view) startOf(step uint32) wire.Head {
	for _, start := range v.starts {
		if start.Step == step {
			return start
		}
	}
	return wire.Head{}
}

// epochKey names an epoch by what it starts from. An aborted Warmup that is repeated
// from the same model is the same.
type epochKey struct {
	startStep  uint32
	checkpoint coordinator.Checkpoint
}

// definition is what a trainer of the run is built from.
func (v *view) definition() env.Definition {
	return env.Definition{Model: v.state.Model, Audited: v.state.Config.VerificationPercent > 0}
}

// term returns the number of a step's term in the epoch.
func (k epochKey) term(step uint32) uint32 {
	return (max(step, k.startStep) - k.startStep) / coordinator.TermRounds
}

// term returns the running term of the epoch.
func (v *view) term() uint32 { return v.epoch().term(v.state.Progress.Step) }

// epoch names the running epoch.
func (v *view) epoch() epochKey {
	return epochKey{v.state.Epoch.StartStep, v.state.Model.Checkpoint}
}

// myself returns the key of this client as the coordinator writes it.
func (v *view) myself() coordinator.ClientID { return coordinator.ClientID(v.me) }

// is matches the entry of this client.
func (v *view) is(c coordinator.Client) bool { return c.ID == v.myself() }

// healthy reports whether the client is a healthy member of the epoch.
func (v *view) healthy(id coordinator.ClientID) bool { return v.fit[id] }

// awaits returns of which owners anybody waits for the results of a round, as
// coordinator.State.Awaited does: of healthy ones that are not slow, or of all healthy ones if
// there are no others.
func (v *view) awaits(b *tally.Tally) func(coordinator.ClientID) bool {
	punctual := func(id coordinator.ClientID) bool { return v.fit[id] && !v.slow[id] }
	if slices.ContainsFunc(b.Slots, func(s tally.Slot) bool { return punctual(s.Owner) }) {
		return punctual
	}
	return v.healthy
}

// isMember reports whether this client is a healthy member of the epoch.
func (v *view) isMember() bool { return v.healthy(v.myself()) }

// hasSeat reports whether this client is a member or waits to be one, be it since an
// earlier process.
func (v *view) hasSeat() bool {
	return v.state != nil && (v.isMember() || slices.ContainsFunc(v.state.Pending, v.is))
}

// knownBefore reports whether the run knows this key.
func (v *view) knownBefore() bool {
	return slices.ContainsFunc(v.state.Epoch.Clients, v.is) || slices.ContainsFunc(v.state.Epoch.Exited, v.is) ||
		slices.ContainsFunc(v.state.Pending, v.is)
}

// admitted returns the peers that may talk to this client: members and those that wait, and
// in a finished run the members of its last epoch.
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

// members returns the healthy members but this one, in another order each time.
func (v *view) members() []identity.ID {
	return v.drawn(func(*coordinator.Client) bool { return true })
}

// drawn returns those of the healthy members but this one that are meant, in an order that nobody can
// foresee: or else hostile ones could stand where they are all that are asked.
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

// foretold is the batch that this client will have in the next round, if the members stay
// the same until then.
type foretold struct {
	by    *coordinator.State
	round coordinator.Round
	step  uint32 // of that round; 0: it is not known whether this client takes part
	batch assign.BatchID
	ok    bool // it will have one, as far as that is known
}

// drawsAs reports whether the same members get the same batches in a round of another state.
func (f *foretold) drawsAs(r *coordinator.Round, s *coordinator.State) bool {
	return f.step == r.Step && f.by.Config.VerificationPercent == s.Config.VerificationPercent && f.round.BatchSeed == r.BatchSeed && f.round.DataIndex == r.DataIndex &&
		f.round.BatchSize == r.BatchSize && slices.Equal(f.round.Members, r.Members)
}

// foretell works out what the newest state says of the next round.
func (v *view) foretell(draws env.Draws) foretold {
	if v.next.by == v.state {
		return v.next
	}
	before := v.next
	v.next = foretold{by: v.state}
	round, follows := v.state.NextRound()
	member, takesPart := round.MemberIndex(v.myself())
	if !follows || !takesPart {
		return v.next
	}
	v.next.round, v.next.step = round, round.Step
	if before.step != 0 && before.drawsAs(&round, v.state) { // as after most updates
		v.next.batch, v.next.ok = before.batch, before.ok
		return v.next
	}
	for _, a := range draws.Assignments(&round, v.state.Config) {
		if a.Member == member {
			v.next.batch, v.next.ok = a.Batch, true
		}
	}
	return v.next
}

// healthyMembers returns the healthy members of the epoch, and those of them that are slow.
func healthyMembers(s *coordinator.State) (fit, slow map[coordinator.ClientID]bool) {
	fit, slow = make(map[coordinator.ClientID]bool, len(s.Epoch.Clients)), make(map[coordinator.ClientID]bool)
	for i := range s.Epoch.Clients {
		c := &s.Epoch.Clients[i]
		if c.State != coordinator.Healthy {
			continue
		}
		fit[c.ID] = true
		if c.Lateness == coordinator.Slow {
			slow[c.ID] = true
		}
	}
	return fit, slow
}

// sameMembers reports whether two states have the same members, and the same clients that
// wait. Most updates change neither.
func sameMembers(a, b *coordinator.State) bool {
	same := func(x, y coordinator.Client) bool {
		return x.ID == y.ID && x.State == y.State && x.Lateness == y.Lateness
	}
	return slices.EqualFunc(a.Epoch.Clients, b.Epoch.Clients, same) && slices.EqualFunc(a.Pending, b.Pending, same)
}

func samePeer(a, b backend.Peer) bool { return a.ID == b.ID && slices.Equal(a.Addrs, b.Addrs) }

// settleTime is how long a finished round may take to complete; set: what the options say.
func (v *view) settleTime(set time.Duration) time.Duration {
	if set > 0 {
		return set
	}
	return max(time.Duration(v.state.Config.MaxRoundTrainTime)*time.Millisecond, requestTimeout)
}

// roundTime is how long a round may run.
func roundTime(c coordinator.Config) time.Duration {
	return time.Duration(c.MaxRoundTrainTime+c.RoundWitnessTime) * time.Millisecond
}
