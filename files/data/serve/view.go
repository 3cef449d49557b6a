package serve

import (
	"fmt"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data/remote/message"
)

// maxDeliveries is the maximum number of times that a round's batch is delivered to its client. It
// is somewhat more than the number of a client's attempts.
const maxDeliveries = 10

// run is the server's view of the run, updated by states.
type run struct {
	mu        sync.Mutex
	members   map[coordinator.ClientID]bool // true: healthy members; false: pending clients
	begun     uint64                        // number of sequences in rounds so far
	retries   bool                          // rounds may also have older sequences, which were lost
	rounds    []round                       // newest last, including the next one if known
	past      past                          // batches for members other than their trainers
	hash      [32]byte                      // hash of the run
	delivered map[delivery]uint64           // number of sequences delivered of batches in rounds
	changed   chan struct{}                 // closed when the next state arrives
}

// round contains the owners of the batches of one round.
type round struct {
	step    uint32
	seed    uint64
	batches map[coordinator.ClientID]share
}

// share is the batch of a client.
type share struct {
	batch     assign.BatchID   // positions
	sequences []assign.BatchID // intervals
}

// delivery identifies the batch of a client in one round. Its positions belong to no other round.
type delivery struct {
	client coordinator.ClientID
	batch  assign.BatchID
}

func newRun() *run {
	return &run{delivered: make(map[delivery]uint64), changed: make(chan struct{})}
}

// follow processes a newer state of the run with that hash.
func (r *run) follow(state *coordinator.State, hash [32]byte) {
	members := make(map[coordinator.ClientID]bool, len(state.Epoch.Clients)+len(state.Pending))
	for i := range state.Pending {
		members[state.Pending[i].ID] = false
	}
	for i := range state.Epoch.Clients {
		if c := &state.Epoch.Clients[i]; c.State == coordinator.Healthy {
			members[c.ID] = true
		} else {
			delete(members, c.ID)
		}
	}
	r.mu.Lock()
	old := r.rounds
	r.mu.Unlock()
	rounds := make([]round, 0, len(state.Epoch.Rounds)+1)
	for i := range state.Epoch.Rounds {
		rounds = append(rounds, roundOf(&state.Epoch.Rounds[i], state.Config, old))
	}
	// Clients read their batches of the next round while they exchange results of the running one. The
	// members of the next round may change until it starts, so it is computed again for every state.
	if next, follows := state.NextRound(); follows {
		rounds = append(rounds, roundOf(&next, state.Config, nil))
	}
	kept := make(map[delivery]bool)
	for _, of := range rounds {
		for client, own := range of.batches {
			kept[delivery{client, own.batch}] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members, r.begun, r.retries, r.rounds, r.hash = members, state.Progress.DataIndex, state.Config.RetryLost, rounds, hash
	r.past.follow(state)
	for d := range r.delivered {
		if !kept[d] {
			delete(r.delivered, d)
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// roundOf computes the owners of batches, unless they are in old.
func roundOf(from *coordinator.Round, c coordinator.Config, old []round) round {
	for _, known := range old {
		if known.step == from.Step && known.seed == from.Seed {
			return known
		}
	}
	r := round{step: from.Step, seed: from.Seed, batches: make(map[coordinator.ClientID]share)}
	for _, a := range from.Assignments(c) {
		r.batches[from.Members[a.Member]] = share{a.Batch, from.Sequences(a.Batch)}
	}
	return r
}

// decision is the answer to a client according to the newest state.
type decision struct {
	refused *message.Refusal // nil: allowed
	others  bool             // allowed for an audit or a comparison; members that get their own batches have priority
	wait    <-chan struct{}  // closed when there is a newer state; nil: that would not change the decision
}

func (r *run) refuse(mayChange bool, code message.Code, format string, values ...any) decision {
	d := decision{refused: &message.Refusal{Code: code, Reason: fmt.Sprintf(format, values...)}}
	if mayChange {
		d.wait = r.changed
	}
	return d
}

// admit decides whether a key may be connected.
func (r *run) admit(id coordinator.ClientID) decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, part := r.members[id]; !part && r.past.readers[id] == nil {
		return r.refuse(true, message.NotMember, "the key is not a member of the run's epoch and is not waiting for the next epoch; join the run first")
	}
	return decision{}
}

// name returns the run's hash.
func (r *run) name() [32]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hash
}

// isPart reports whether a key may stay connected.
func (r *run) isPart(id coordinator.ClientID) bool { return r.admit(id).refused == nil }

// grant decides about a request, and counts a granted request for samples as delivered.
func (r *run) grant(id coordinator.ClientID, request message.Request) decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	auditor := r.past.readers[id]
	if !r.members[id] && (auditor == nil || request.Kind == message.Fingerprint) {
		return r.refuse(true, message.NotMember, "the key is not a healthy member of the run's epoch")
	}
	if request.Kind == message.Fingerprint {
		if index := request.Sequences[0].Start; index >= r.begun {
			return r.refuse(true, message.NotTrained, "sequence %d was not used in any round yet", index)
		}
		return decision{others: true}
	}
	for i := len(r.rounds) - 1; i >= 0; i-- {
		own, ok := r.rounds[i].batches[id]
		if !ok || !r.members[id] || !within(request.Sequences, own.sequences) {
			continue
		}
		d, n := delivery{id, own.batch}, request.Len()
		if limit := maxDeliveries * own.batch.Len(); n > limit || r.delivered[d] > limit-n {
			return r.refuse(false, message.Repeated, "batch %v was already delivered %d times", own.batch, maxDeliveries)
		}
		r.delivered[d] += n
		return decision{}
	}
	return r.grantPast(auditor, request)
}

// within reports whether each of the intervals lies in one of the allowed intervals.
func within(intervals, allowed []assign.BatchID) bool {
	for _, interval := range intervals {
		if !slices.ContainsFunc(allowed, func(a assign.BatchID) bool { return a.Start <= interval.Start && interval.End <= a.End }) {
			return false
		}
	}
	return true
}

// grantPast decides about a batch that is not the client's own.
func (r *run) grantPast(auditor *reader, request message.Request) decision {
	n := request.Len()
	switch {
	case auditor == nil || !within(request.Sequences, r.past.allowed):
		// The client may have a newer state, in which the round is over or has lost sequences.
		mayChange := r.retries || slices.ContainsFunc(request.Sequences, func(s assign.BatchID) bool {
			return s.End > r.begun || auditor != nil && s.End > r.past.over
		})
		return r.refuse(mayChange, message.NotAssigned, "sequences %v are neither assigned to the key nor open for audits by every member", request.Sequences)
	case n > auditor.credit:
		return r.refuse(false, message.Repeated, "the key has used its credit for other members' batches; wait for the next rounds")
	}
	auditor.credit -= n
	return decision{others: true}
}
