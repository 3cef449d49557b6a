package client

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/wire"
)

const (
	maxEarly      = tally.MaxCandidates * coordinator.MaxClients
	maxEarlyEach  = 2 * tally.MaxCandidates // for one author
	maxEarlyBytes = 8 << 20                 // of early pushed results
)

// newestStep returns the newest step whose results the model includes; 0: none.
func newestStep(r *core.Replica, held *modelsync.Model) uint32 {
	switch {
	case r != nil:
		return r.Step
	case held != nil:
		return held.Step
	}
	return 0
}

// beganWith returns the digest of the model that an epoch started with, or zero if it is unknown,
// because the client starts with a later one.
func beganWith(key core.Epoch, m *modelsync.Model) (digest [32]byte) {
	switch {
	case key.Checkpoint.FromPeers():
		return key.Checkpoint.Digest
	case m.Origin == key.Checkpoint:
		return m.Digest
	}
	return digest
}

// findOtherModels logs, once in an epoch, that members started with different models. This can happen
// if the starting model does not come from members: each member then loads it from the location that
// its user set, and only the users can decide which model is right. All results made from one of the
// models are lost, and members whose model has no quorum take over the other model. l is the epoch's
// first round, or nil.
func findOtherModels(r *core.Replica, rs *roundState, s *coordinator.State, log *slog.Logger) {
	if r.Epoch.Checkpoint.FromPeers() || r.OtherModels || rs == nil || !rs.Began {
		return
	}
	announced, others := rs.Origins()
	if others == 0 || announced < len(rs.Slots) && s.RunState == coordinator.RoundTrain {
		return
	}
	r.OtherModels = true
	log.Warn("other members started from a different model: compare the digest in the line \"holds the model\" and give every member the same --model-path",
		"results", announced, "other_model", others, "digest", hexOf(r.From)[:16])
}

// roundState is a round's tally, and this client's work in the round.
type roundState struct {
	*tally.Tally
	core.Part
	past   bool              // the round was over when this client learned of it
	start  wire.Head         // head of the run's log at the round's start; zero if no host signs heads
	made   time.Time         // when this client's result was made; zero: not yet
	shared time.Time         // when gossip first announced this client's result; zero: not yet
	claim  coordinator.Claim // claim about this client's training, once that is done
	seats  int               // number of members at the start of its epoch

	commitment tally.Commitment     // commitment of this client's result, once announced
	raw        []byte               // this client's announcement
	asked      time.Time            // when peers were last asked for its results
	answered   map[identity.ID]bool // peers that have answered since the end of the round

	offences []*offence // batches for which a trainer signed two results
}

// leeway estimates how much later than usual this client's result of a round may come and still be in
// time for the witnesses. The estimate is from the newest previous round for which this client knows
// when it had its own result, and when two thirds of the results were held. It is the time that
// witnesses wait after that, minus the delay of this client's result after that. Without such a round
// it is zero.
func (r *roundStates) leeway(step uint32) time.Duration {
	for step--; r.of[step] != nil; step-- {
		if rs := r.of[step]; !rs.Most.IsZero() && !rs.made.IsZero() {
			return rs.WitnessWait() - max(0, rs.made.Sub(rs.Most))
		}
	}
	return 0
}

// newRoundState returns the state of a new round.
func newRoundState(round coordinator.Round, v *view, draws env.Draws, now time.Time) *roundState {
	config := v.state.Config
	index, takesPart := round.MemberIndex(v.myself())
	batches := draws.Assignments(&round, config)
	rs := &roundState{
		Part: core.NewPart(round.Step, takesPart && draws.Elected(&round, config, index), now), start: v.startOf(round.Step),
		answered: make(map[identity.ID]bool), Tally: tally.New(round, v.state.Epoch.StartStep, batches),
	}
	rs.Divide(round.Members, round.Levels[:len(round.Members)], batches)
	if config.SharesBySpeed {
		rs.Promised(&round, batches, v.state.Model.MaxSeqLen)
	}
	rs.seats = max(v.state.Seats(), len(round.Members)) // the epoch may be over
	for i := range rs.Slots {
		if owner, known := v.state.Member(rs.Slots[i].Owner); known {
			rs.Slots[i].OptimizerSince = owner.OptimizerSince
		}
	}
	return rs
}

// offering returns the event that compares this client's offer with its speed. rs is nil if the round is unknown.
func (rs *roundState) offering(training *core.Underway, me coordinator.ClientID) core.Offering {
	if rs == nil {
		return core.Offering{}
	}
	held, all := rs.Progress(func(id coordinator.ClientID) bool { return id != me })
	return core.Offering{Training: training, Part: &rs.Part, Held: len(held), Other: len(all)}
}

// part returns this client's part in the round; nil: the round is unknown.
func (rs *roundState) part() *core.Part {
	if rs == nil {
		return nil
	}
	return &rs.Part
}

// trainers returns the owners of the round's batches.
func (rs *roundState) trainers() []coordinator.ClientID {
	ids := make([]coordinator.ClientID, len(rs.Slots))
	for i := range rs.Slots {
		ids[i] = rs.Slots[i].Owner
	}
	return ids
}

// ownBatch returns a client's batch; nil: none.
func (rs *roundState) ownBatch(id identity.ID) *assign.BatchID {
	if own := rs.Own(id); own != nil {
		return &own.Batch
	}
	return nil
}

// awaited are the results of a round. They implement core.Results.
type awaited struct {
	*tally.Tally
	run *view
}

// Arrived returns the trainers whose results this client holds.
func (a awaited) Arrived() []coordinator.ClientID {
	held, _ := a.Progress(func(coordinator.ClientID) bool { return true })
	return held
}

// Awaited returns the trainers for which the round waits, and the ones whose results this client holds.
func (a awaited) Awaited() (held, all []coordinator.ClientID) {
	return a.Progress(a.run.awaits(a.Tally))
}

// Members returns the round's members for which rounds wait.
func (a awaited) Members() []coordinator.ClientID {
	return slices.DeleteFunc(slices.Clone(a.Round.Members), func(id coordinator.ClientID) bool { return !a.run.fit[id] || a.run.slow[id] })
}

// wellAnswered reports whether an honest member has answered a request about the finished round: more
// members have answered than can be dishonest, which are fewer than a third of the epoch's first ones.
func (rs *roundState) wellAnswered() bool { return len(rs.answered) > (rs.seats-1)/3 }

// begin sets the replica that the round's results must be made from: the replica after the newest
// step that is applied before it, if it is known. At the start of an epoch everything is applied.
func (rs *roundState) begin(r *core.Replica, lag uint32, report *reporter) {
	from := r.Hash
	if r.Step+lag > rs.Round.Step {
		from = r.Before
	}
	if from == ([32]byte{}) {
		return
	}
	rs.Begin(tally.ReplicaAt(from, rs.start.Hash))
	for i := range rs.Slots {
		for _, c := range rs.Slots[i].Candidates {
			report.Held(rs.Tally, &rs.Slots[i], c)
		}
	}
}

// offence is a batch for which a trainer signed two results.
type offence struct {
	slot  *tally.Slot
	known time.Time // when this client learned of the second result
	over  *coordinator.State
}

// offended records that two results of a batch are known.
func (rs *roundState) offended(s *tally.Slot, now time.Time) {
	for _, o := range rs.offences {
		if o.slot == s {
			return
		}
	}
	rs.offences = append(rs.offences, &offence{slot: s, known: now})
}

// roundStates contains the tallied rounds, announcements for future rounds, and the replica that
// the rounds are applied to.
type roundStates struct {
	replica    *core.Replica          // nil: the client does not follow the epoch
	of         map[uint32]*roundState // by step
	early      []announcement         // for rounds that have not started here
	earlyBytes int                    // bytes of the results in early
}

// Round returns the tally of a round, and the commitment of this client's result once it is announced.
func (states *roundStates) Round(step uint32) (*tally.Tally, tally.Commitment) {
	rs := states.of[step]
	if rs == nil {
		return nil, tally.Commitment{}
	}
	return rs.Tally, rs.commitment
}

// newestOf returns the newest round of a replica's epoch; 0: none is known.
func (states *roundStates) newestOf(r *core.Replica) (newest uint32) {
	for step, rs := range states.of {
		if r != nil && rs.EpochStart == r.Epoch.StartStep {
			newest = max(newest, step)
		}
	}
	return newest
}

// steps returns the steps of the rounds in ascending order.
func (states *roundStates) steps() []uint32 { return slices.Sorted(maps.Keys(states.of)) }

// after returns the tallies of the rounds after a step, oldest first.
func (states *roundStates) after(step uint32) []*tally.Tally {
	open := make([]*tally.Tally, 0, len(states.of))
	for _, s := range states.steps() {
		if s > step {
			open = append(open, states.of[s].Tally)
		}
	}
	return open
}

// lead reports whether this client's tallies suffice to determine the outcomes of all rounds of an
// epoch after one step, up to another.
func (states *roundStates) lead(epochStart, after, until uint32) bool {
	for step := after + 1; step <= until; step++ {
		if rs := states.of[step]; rs == nil || !rs.Final || rs.EpochStart != epochStart {
			return false
		}
	}
	return true
}

// eachBlob calls need for the hash of each result that is held or being fetched.
func (states *roundStates) eachBlob(need func(hash [32]byte)) {
	for _, rs := range states.of {
		rs.EachBlob(need)
	}
}

// keepEarly keeps an announcement of a peer that is slightly ahead, for the next round.
func (states *roundStates) keepEarly(msg announcement, next uint32) {
	if step := msg.result.Step; step < next || step > next+1 || len(states.early) >= maxEarly {
		return
	}
	count, bytes := 0, len(msg.payload)
	for _, other := range states.early {
		if other.author == msg.author {
			count++
			bytes += len(other.payload)
		}
	}
	if count >= maxEarlyEach {
		return
	}
	if bytes > maxPushedEach || states.earlyBytes+len(msg.payload) > maxEarlyBytes {
		msg.payload = nil
	}
	states.earlyBytes += len(msg.payload)
	states.early = append(states.early, msg)
}
