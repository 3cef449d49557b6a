package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// replica is the state of a client that follows an epoch with the epoch's model.
type replica struct {
	epoch   epochKey
	hash    [32]byte // after step
	before  [32]byte // after step - 1; in the first round hash
	step    uint32   // newest applied step; before the first round the epoch's start step - 1
	has     uint32   // newest step whose results the weights include; may exceed step after a return to the epoch
	closing bool     // the epoch's rounds are over

	coldSteps   uint32   // length of the epoch's cold start
	from        [32]byte // digest of the model that the epoch started with
	otherModels bool     // other members were found to have started from another model
}

// isAfter reports whether the weights are too new for the results of a round.
func (r *replica) isAfter(step, lag uint32) bool {
	return r.has >= r.epoch.startStep && r.has+lag > step
}

const (
	maxEarly      = tally.MaxCandidates * coordinator.MaxClients
	maxEarlyEach  = 2 * tally.MaxCandidates // for one author
	maxEarlyBytes = 8 << 20                 // of early pushed results
)

// newestStep returns the newest step whose results the model includes; 0: none.
func newestStep(r *replica, held *modelsync.Model) uint32 {
	switch {
	case r != nil:
		return r.step
	case held != nil:
		return held.Step
	}
	return 0
}

// findOtherModels logs, once in an epoch, that members started with different models. This can happen
// if the starting model does not come from members: each member then loads it from the location that
// its user set, and only the users can decide which model is right. All results made from one of the
// models are lost, and members whose model has no quorum take over the other model. l is the epoch's
// first round, or nil.
func (r *replica) findOtherModels(rs *roundState, s *coordinator.State, log *slog.Logger) {
	if r.epoch.checkpoint.FromPeers() || r.otherModels || rs == nil || !rs.Began {
		return
	}
	announced, others := rs.Origins()
	if others == 0 || announced < len(rs.Slots) && s.RunState == coordinator.RoundTrain {
		return
	}
	r.otherModels = true
	log.Warn("other members started from a different model: compare the digest in the line \"holds the model\" and give every member the same --model-path",
		"results", announced, "other_model", others, "digest", hexOf(r.from)[:16])
}

// roundState is a round's tally, and this client's work in the round.
type roundState struct {
	*tally.Tally
	start   wire.Head // head of the run's log at the round's start; zero if no host signs heads
	opened  time.Time
	pace    pace
	most    time.Time         // when the results of two thirds of the awaited trainers were held; zero: not yet, or not observed
	made    time.Time         // when this client's result was announced; zero: not yet
	whole   time.Time         // when the results of all healthy members were first seen to be here; zero: not yet, or not observed
	claim   coordinator.Claim // claim about this client's training, once that is done
	elected bool              // this client is a witness of the round
	seats   int               // number of members at the start of its epoch
	told    bool              // the client reported that everything that can be expected is held

	trained    bool                 // training has started
	ahead      assign.BatchID       // batch of the next round whose training was started ahead; it starts ahead only once
	commitment tally.Commitment     // commitment of this client's result, once announced
	raw        []byte               // this client's announcement
	asked      time.Time            // when peers were last asked for its results
	answered   map[identity.ID]bool // peers that have answered since the end of the round

	offences  []*offence             // batches for which a trainer signed two results
	accusedIn *coordinator.State     // newest state in which members were examined
	judged    bool                   // suspects is set
	suspects  []coordinator.ClientID // members whose results the witnesses do not hold
}

// leeway estimates how much later than usual this client's result of a round may come and still be in
// time for the witnesses. The estimate is from the newest previous round for which this client knows
// when it had its own result, and when two thirds of the results were held. It is the time that
// witnesses wait after that, minus the delay of this client's result after that. Without such a round
// it is zero.
func (r *roundStates) leeway(step uint32) time.Duration {
	for step--; r.of[step] != nil; step-- {
		if rs := r.of[step]; !rs.most.IsZero() && !rs.made.IsZero() {
			return rs.witnessWait() - max(0, rs.made.Sub(rs.most))
		}
	}
	return 0
}

// newRoundState returns the state of a new round.
func newRoundState(round coordinator.Round, v *view, draws env.Draws, now time.Time) *roundState {
	config := v.state.Config
	rs := &roundState{start: v.startOf(round.Step), opened: now, pace: newPace(now), answered: make(map[identity.ID]bool), Tally: tally.New(round, v.state.Epoch.StartStep, draws.Assignments(&round, config))}
	rs.seats = max(v.state.Seats(), len(round.Members)) // the epoch may be over
	for i := range rs.Slots {
		if owner, known := v.state.Member(rs.Slots[i].Owner); known {
			rs.Slots[i].OptimizerSince = owner.OptimizerSince
		}
	}
	if index, takesPart := round.MemberIndex(v.myself()); takesPart {
		rs.elected = draws.Elected(&round, config, index)
	}
	return rs
}

// wellAnswered reports whether an honest member has answered a request about the finished round: more
// members have answered than can be dishonest, which are fewer than a third of the epoch's first ones.
func (rs *roundState) wellAnswered() bool { return len(rs.answered) > (rs.seats-1)/3 }

// begin sets the replica that the round's results must be made from: the replica after the newest
// step that is applied before it, if it is known. At the start of an epoch everything is applied.
func (rs *roundState) begin(r *replica, lag uint32, report *reporter) {
	from := r.hash
	if r.step+lag > rs.Round.Step {
		from = r.before
	}
	if from == ([32]byte{}) {
		return
	}
	rs.Begin(tally.ReplicaAt(from, rs.start.Hash))
	for i := range rs.Slots {
		for _, c := range rs.Slots[i].Candidates {
			report.foreign(rs.Tally, &rs.Slots[i], c)
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
	replica    *replica               // nil: the client does not follow the epoch
	of         map[uint32]*roundState // by step
	steps      []uint32               // ascending; replaced, never modified in place
	early      []announcement         // for rounds that have not started here
	earlyBytes int                    // bytes of the results in early
}

// put adds the round of a step.
func (states *roundStates) put(step uint32, rs *roundState) {
	states.of[step] = rs
	states.order()
}

// remove removes the round of a step.
func (states *roundStates) remove(step uint32) {
	delete(states.of, step)
	states.order()
}

func (states *roundStates) order() {
	steps := make([]uint32, 0, len(states.of))
	for step := range states.of {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	states.steps = steps
}

// after returns the tallies of the rounds after a step, oldest first.
func (states *roundStates) after(step uint32) []*tally.Tally {
	open := make([]*tally.Tally, 0, len(states.steps))
	for _, s := range states.steps {
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
	count := 0
	for _, other := range states.early {
		if other.author == msg.author {
			count++
		}
	}
	if count >= maxEarlyEach {
		return
	}
	if states.earlyBytes+len(msg.payload) > maxEarlyBytes {
		msg.payload = nil
	}
	states.earlyBytes += len(msg.payload)
	states.early = append(states.early, msg)
}

// takeEarly returns and removes the kept announcements.
func (states *roundStates) takeEarly() []announcement {
	early := states.early
	states.early, states.earlyBytes = nil, 0
	return early
}

// openRounds updates the rounds from the newest state.
func (n *Node) openRounds() {
	rounds := n.run.state.Epoch.Rounds
	if len(rounds) == 0 {
		return
	}
	running := n.run.state.RunState == coordinator.RoundTrain || n.run.state.RunState == coordinator.RoundWitness
	newest := rounds[len(rounds)-1].Step
	kept := 2 + n.engine.Lag() // the running round, the unapplied rounds before it, and one more for late peers
	for i, round := range rounds {
		rs := n.rounds.of[round.Step]
		if rs != nil && rs.Round.Seed != round.Seed { // the host lost its state
			n.closeRound(rs)
			rs = nil
		}
		if rs == nil {
			if round.Step+kept <= newest {
				continue
			}
			rs = newRoundState(round, &n.run, n.Draws, n.tasks.Now())
			before := n.rounds.of[round.Step-1]
			if before != nil && before.EpochStart == rs.EpochStart && n.engine.Lag() > 1 {
				rs.pace.follow(before, rs.Slots)
			}
			n.engine.outlook.waited(before, rs.opened)
			n.rounds.put(round.Step, rs)
		}
		if rs.start == (wire.Head{}) && !rs.Began {
			rs.start = n.run.startOf(round.Step)
		}
		rs.Renew(round, !running || i < len(rounds)-1)
	}
	for _, step := range n.rounds.steps {
		behind := n.rounds.replica != nil && step > n.rounds.replica.step && step+coordinator.StoredRounds > newest
		ahead := step > newest // the host went back: these rounds are not the run's
		if ahead || step+kept <= newest && !behind {
			n.closeRound(n.rounds.of[step])
		}
	}
	for _, u := range n.rounds.takeEarly() {
		n.hear(u)
	}
}

// closeRound drops a round and its blobs.
func (n *Node) closeRound(rs *roundState) {
	step := rs.Round.Step
	n.fetcher.StopRound(rs.Tally)
	n.rounds.remove(step)
	n.store.Cache.DropRound(step)
	n.store.Drop(rs.Blobs()...)
}

// hear enters an announcement into the tally, or keeps it for a future round.
func (n *Node) hear(msg announcement) {
	a := msg.result
	rs := n.rounds.of[a.Step]
	if rs == nil {
		if n.run.state != nil && (msg.author == (identity.ID{}) || n.run.healthy(coordinator.ClientID(msg.author))) {
			n.rounds.keepEarly(msg, n.run.state.Progress.Step)
		}
		return
	}
	if a.Start != rs.start || msg.author == (identity.ID{}) {
		n.compareStarts(rs.start, msg)
		return
	}
	err := rs.Hear(msg.author, a, msg.raw)
	for _, c := range rs.Displaced() {
		n.fetcher.Stop(c)
		n.store.Drop(c.Commitment)
	}
	if msg.payload != nil && n.rounds.replica != nil {
		n.fetcher.Take(rs.Tally, a, msg.payload, n.run.terms(n.engine.trainer))
	}
	switch {
	case err == nil, errors.Is(err, tally.ErrKnownResult):
	case errors.Is(err, tally.ErrOtherSize):
		n.report.log.Warn("a trainer signed a result with two sizes", "step", a.Step, "batch", a.Batch, "from", msg.author.Short())
		if flying := rs.Dispute(a.Batch, a.Blob); flying != nil {
			n.fetcher.Interrupt(flying)
		}
	case errors.Is(err, tally.ErrEquivocation):
		rs.offended(rs.Find(a.Batch), n.tasks.Now())
		n.report.equivocation(rs.Tally, msg.author, a)
	default:
		n.report.log.Debug("announcement refused", "from", msg.author.Short(), "err", err)
	}
}

// compareStarts handles an announcement whose head of the log at the start of the round differs from
// this client's head, or is missing.
func (n *Node) compareStarts(own wire.Head, msg announcement) {
	other := msg.result.Start
	if other == (wire.Head{}) || own == (wire.Head{}) || !other.Contradicts(own) {
		n.report.log.Debug("announcement refused", "from", msg.author.Short(), "err", "the announcement has no head of the log, or this client knows none")
		return
	}
	if n.run.hostFault != nil {
		return
	}
	n.run.hostFault = n.run.fork(own, msg)
	n.engine.Cancel()
	n.report.log.Error("the run's host shows members different histories; this client stops and informs the other members", "step", own.Step)
	wait, _ := n.tasks.Signal()
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, forkNoticeTime)
		defer cancel()
		_ = n.Network.Publish(ctx, own.AppendTo(nil)) // members that do not get this message get another member's
		_ = wait(ctx)                                 // gives gossip time to deliver the message
		return func() { n.fail(n.run.hostFault) }
	})
}

// fork returns the proof that the host showed members different logs. msg is a member's
// announcement with another head at the start of a round than own. The host signed both heads.
func (v *view) fork(own wire.Head, msg announcement) error {
	return &follow.HostFault{
		Reason: fmt.Sprintf("the host showed other members a different start of step %d than this client", own.Step),
		Evidence: follow.Evidence{
			Genesis: v.genesis, Heads: []wire.Head{own, msg.result.Start}, Index: own.Index, Announcement: bytes.Clone(msg.raw),
		},
	}
}

// forkNoticeTime is how long a client stays to inform other members of a fork.
const forkNoticeTime = 2 * time.Second

// fetchResults fetches results that are announced in unapplied rounds.
func (n *Node) fetchResults() {
	if r, trainer := n.rounds.replica, n.engine.trainer; r != nil && trainer != nil {
		n.fetcher.Fetch(n.rounds.after(r.step), n.run.terms(trainer))
	}
}

// terms returns the run's current limits for a fetch.
func (v *view) terms(trainer env.Trainer) fetch.Terms {
	return fetch.Terms{Trainer: trainer, Completion: v.CompletionTime(), Round: roundTime(v.state.Config)}
}

// fetched receives the results of the fetcher.
type fetched struct {
	rounds *roundStates
	shares *models.Shares
	store  *exchange.Store
	report *reporter
}

// Late implements fetch.Owner: the round was dropped here, or is applied.
func (f fetched) Late(t *tally.Tally) bool {
	rs, r := f.rounds.of[t.Round.Step], f.rounds.replica
	return rs == nil || rs.Tally != t || r != nil && t.Round.Step <= r.step
}

// Held implements fetch.Owner.
func (f fetched) Held(t *tally.Tally, s *tally.Slot, c *tally.Candidate) { f.report.foreign(t, s, c) }

// Rejected implements fetch.Owner.
func (f fetched) Rejected(t *tally.Tally, s *tally.Slot, reason string) {
	f.report.rejected(t, s, reason)
}

// NoRoom implements fetch.Owner. To free memory for running rounds, it drops data that is kept only for
// members that were away.
func (f fetched) NoRoom() {
	f.store.Forget(0, 0)
	if r := f.rounds.replica; r != nil {
		f.shares.Stop(r.epoch.startStep)
	}
}

// Drop implements fetch.Owner.
func (f fetched) Drop(hashes ...[32]byte) { f.store.Drop(hashes...) }
