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
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// replica is the client's place in an epoch whose model it holds.
type replica struct {
	epoch   epochKey
	hash    [32]byte // after step
	before  [32]byte // after step - 1; in the first round hash
	step    uint32   // newest applied; before the first round the epoch's start step - 1
	has     uint32   // newest step whose results the weights have; more than step only as long as it works out where they are
	closing bool     // the epoch's rounds are over

	coldSteps   uint32   // of the epoch's cold start
	from        [32]byte // digest of the model that the epoch began with
	otherModels bool     // members were found to have begun from another one
}

// isAfter reports whether the weights are later ones than a round's results have to be made from.
func (r *replica) isAfter(step, lag uint32) bool {
	return r.has >= r.epoch.startStep && r.has+lag > step
}

const (
	maxEarly      = tally.MaxCandidates * coordinator.MaxClients
	maxEarlyEach  = 2 * tally.MaxCandidates // of one author
	maxEarlyBytes = 8 << 20                 // of results that were pushed early
)

// newestStep returns the newest step whose results are part of the model here; 0: none.
func newestStep(r *replica, held *handover.Model) uint32 {
	switch {
	case r != nil:
		return r.step
	case held != nil:
		return held.Step
	}
	return 0
}

// findOtherModels says, once in an epoch that begins with a model which does not come from
// members, that members began with different ones. Each has its own from where its user
// said, so nobody but the users can tell which is the right one; all results of one side are
// lost, and the side without a quorum takes over the other's model. The round is that of the
// epoch's first round, or nil.
func (r *replica) findOtherModels(l *roundState, s *coordinator.State, log *slog.Logger) {
	if r.epoch.checkpoint.FromPeers() || r.otherModels || l == nil || !l.Began {
		return
	}
	announced, others := l.Origins()
	if others == 0 || announced < len(l.Slots) && s.RunState == coordinator.RoundTrain {
		return
	}
	r.otherModels = true
	log.Warn("other members began from another model: compare the digest in the line \"holds the model\" and give every member the same --model-path",
		"results", announced, "of another model", others, "digest", hexOf(r.from)[:16])
}

// roundState is a round's tally, and what this client has to do in the round and has done.
type roundState struct {
	*tally.Tally
	start   wire.Head // of the run's log at the round's start; zero where no host signs heads
	opened  time.Time
	pace    pace
	most    time.Time         // when the results of two thirds of the awaited trainers were held; zero: not yet, or nobody looked
	made    time.Time         // when the own result was announced; zero: not yet
	whole   time.Time         // when the results of all healthy members were first seen to be here; zero: not yet, or nobody looked
	claim   coordinator.Claim // of the own training, once it is done
	elected bool              // this client witnesses the round
	seats   int               // members that its epoch began with
	told    bool              // that everything that can be expected is held

	trained    bool                 // training was started
	ahead      assign.BatchID       // of the next round, once begun: not again before that round, should it fail
	commitment tally.Commitment     // of the own result, once announced
	raw        []byte               // the own announcement
	asked      time.Time            // when peers were last asked for its results
	answered   map[identity.ID]bool // who has answered since the round is over

	offences  []*offence             // trainers that signed two results of a batch
	accusedIn *coordinator.State     // newest in which members were looked at
	judged    bool                   // suspects are known
	suspects  []coordinator.ClientID // whose results the witnesses do not hold
}

// leeway is how much later than usual the own result of a round may come: witnesses do not miss it yet.
// It is what they waited in the newest round before in which this client had one, and saw when most had
// one: less what it was behind most. It is zero where there is none.
func (r *roundStates) leeway(step uint32) time.Duration {
	for step--; r.of[step] != nil; step-- {
		if l := r.of[step]; !l.most.IsZero() && !l.made.IsZero() {
			return l.witnessWait() - max(0, l.made.Sub(l.most))
		}
	}
	return 0
}

// newRoundState begins the tally of a round.
func newRoundState(round coordinator.Round, v *view, draws env.Draws, now time.Time) *roundState {
	config := v.state.Config
	l := &roundState{start: v.startOf(round.Step), opened: now, pace: newPace(now), answered: make(map[identity.ID]bool), Tally: tally.New(round, v.state.Epoch.StartStep, draws.Assignments(&round, config))}
	l.seats = max(v.state.Seats(), len(round.Members)) // the epoch may be over
	for i := range l.Slots {
		if owner, known := v.state.Member(l.Slots[i].Owner); known {
			l.Slots[i].OptimizerSince = owner.OptimizerSince
		}
	}
	if index, takesPart := round.MemberIndex(v.myself()); takesPart {
		l.elected = draws.Elected(&round, config, index)
	}
	return l
}

// wellAnswered reports whether so many members have said what they know of the finished round
// that one of them is honest, if fewer than a third of the epoch's first members lie.
func (l *roundState) wellAnswered() bool { return len(l.answered) > (l.seats-1)/3 }

// begin fixes the replica that the round's results must be made from: that after the newest
// step that is applied before it, if it is known. Everything is applied at the start of an epoch.
func (l *roundState) begin(r *replica, lag uint32, report *reporter) {
	from := r.hash
	if r.step+lag > l.Round.Step {
		from = r.before
	}
	if from == ([32]byte{}) {
		return
	}
	l.Begin(tally.ReplicaAt(from, l.start.Hash))
	for i := range l.Slots {
		for _, c := range l.Slots[i].Candidates {
			report.foreign(l.Tally, &l.Slots[i], c)
		}
	}
}

// offence is a batch of which a trainer signed two results.
type offence struct {
	slot  *tally.Slot
	known time.Time // when this client had both
	over  *coordinator.State
}

// offended notes that two results of a batch are known.
func (l *roundState) offended(s *tally.Slot, now time.Time) {
	for _, o := range l.offences {
		if o.slot == s {
			return
		}
	}
	l.offences = append(l.offences, &offence{slot: s, known: now})
}

// roundStates are the rounds that are tallied, announcements for those to come, and the replica of the model that
// they are applied to.
type roundStates struct {
	replica    *replica               // nil: the client has no part in the epoch
	of         map[uint32]*roundState // by step
	steps      []uint32               // ascending; replaced, never modified
	early      []announcement         // for rounds that have not begun here
	earlyBytes int                    // of results among them
	points     commitPoints           // models of the epoch to fall back to
	applier    applier
	taker      taker
}

// put adds the round of a step.
func (ls *roundStates) put(step uint32, l *roundState) {
	ls.of[step] = l
	ls.order()
}

// remove takes the round of a step out.
func (ls *roundStates) remove(step uint32) {
	delete(ls.of, step)
	ls.order()
}

func (ls *roundStates) order() {
	steps := make([]uint32, 0, len(ls.of))
	for step := range ls.of {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	ls.steps = steps
}

// after returns the tallies of the rounds after a step, oldest first.
func (ls *roundStates) after(step uint32) []*tally.Tally {
	open := make([]*tally.Tally, 0, len(ls.steps))
	for _, s := range ls.steps {
		if s > step {
			open = append(open, ls.of[s].Tally)
		}
	}
	return open
}

// lead reports whether the outcome of each round after a step of an epoch, until another, can be told here.
func (ls *roundStates) lead(epochStart, after, until uint32) bool {
	for step := after + 1; step <= until; step++ {
		if l := ls.of[step]; l == nil || !l.Final || l.EpochStart != epochStart {
			return false
		}
	}
	return true
}

// eachBlob calls need for the hash of each result that is held or on its way.
func (ls *roundStates) eachBlob(need func(hash [32]byte)) {
	for _, l := range ls.of {
		l.EachBlob(need)
	}
}

// keepEarly keeps an announcement of a peer that is a moment ahead of the next round.
func (ls *roundStates) keepEarly(u announcement, next uint32) {
	if step := u.result.Step; step < next || step > next+1 || len(ls.early) >= maxEarly {
		return
	}
	count := 0
	for _, other := range ls.early {
		if other.author == u.author {
			count++
		}
	}
	if count >= maxEarlyEach {
		return
	}
	if ls.earlyBytes+len(u.payload) > maxEarlyBytes {
		u.payload = nil
	}
	ls.earlyBytes += len(u.payload)
	ls.early = append(ls.early, u)
}

// takeEarly hands out what was kept.
func (ls *roundStates) takeEarly() []announcement {
	early := ls.early
	ls.early, ls.earlyBytes = nil, 0
	return early
}

// openRounds brings the rounds in line with the newest state.
func (n *Node) openRounds() {
	rounds := n.run.state.Epoch.Rounds
	if len(rounds) == 0 {
		return
	}
	running := n.run.state.RunState == coordinator.RoundTrain || n.run.state.RunState == coordinator.RoundWitness
	newest := rounds[len(rounds)-1].Step
	kept := 2 + n.engine.Lag() // the running one, those not applied before it, and one for peers that are late
	for i, round := range rounds {
		l := n.rounds.of[round.Step]
		if l != nil && l.Round.Seed != round.Seed { // the host lost its memory
			n.closeRound(l)
			l = nil
		}
		if l == nil {
			if round.Step+kept <= newest {
				continue
			}
			l = newRoundState(round, &n.run, n.Draws, n.tasks.Now())
			before := n.rounds.of[round.Step-1]
			if before != nil && before.EpochStart == l.EpochStart && n.engine.Lag() > 1 {
				l.pace.follow(before, l.Slots)
			}
			n.engine.outlook.waited(before, l.opened)
			n.rounds.put(round.Step, l)
		}
		if l.start == (wire.Head{}) && !l.Began {
			l.start = n.run.startOf(round.Step)
		}
		l.Renew(round, !running || i < len(rounds)-1)
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

// closeRound forgets a round and its blobs.
func (n *Node) closeRound(l *roundState) {
	step := l.Round.Step
	n.fetcher.StopRound(l.Tally)
	n.rounds.remove(step)
	n.store.Shelf.DropRound(step)
	n.store.Drop(l.Blobs()...)
}

// hearWaiting enters the announcements that have come meanwhile: what is done about them
// costs the same for one and for many.
func (n *Node) hearWaiting() {
	for range min(len(n.gossip.heard), maxHeardAtOnce) {
		n.hear(<-n.gossip.heard)
	}
}

// hear enters an announcement into the tally, or keeps it for a round to come.
func (n *Node) hear(u announcement) {
	a := u.result
	l := n.rounds.of[a.Step]
	if l == nil {
		if n.run.state != nil && (u.author == (identity.ID{}) || n.run.healthy(coordinator.ClientID(u.author))) {
			n.rounds.keepEarly(u, n.run.state.Progress.Step)
		}
		return
	}
	if a.Start != l.start || u.author == (identity.ID{}) {
		n.compareStarts(l.start, u)
		return
	}
	err := l.Hear(u.author, a, u.raw)
	for _, c := range l.Displaced() {
		n.fetcher.Stop(c)
		n.store.Drop(c.Commitment)
	}
	if u.payload != nil && n.rounds.replica != nil {
		n.fetcher.Take(l.Tally, a, u.payload, n.run.terms(n.engine.trainer, n.SettleTimeout))
	}
	switch {
	case err == nil, errors.Is(err, tally.ErrKnownResult):
	case errors.Is(err, tally.ErrOtherSize):
		n.report.log.Warn("a trainer signed a result with two sizes", "step", a.Step, "batch", a.Batch, "from", u.author.Short())
		if flying := l.Dispute(a.Batch, a.Blob); flying != nil {
			n.fetcher.Interrupt(flying)
		}
	case errors.Is(err, tally.ErrEquivocation):
		l.offended(l.Find(a.Batch), n.tasks.Now())
		n.report.equivocation(l.Tally, u.author, a)
	default:
		n.report.log.Debug("announcement refused", "from", u.author.Short(), "err", err)
	}
}

// compareStarts looks at what a member says that was shown another start of a round, or none.
func (n *Node) compareStarts(own wire.Head, u announcement) {
	other := u.result.Start
	if other == (wire.Head{}) || own == (wire.Head{}) || !other.Contradicts(own) {
		n.report.log.Debug("announcement refused", "from", u.author.Short(), "err", "it names no head of the log, or this client knows none")
		return
	}
	if n.run.lie != nil {
		return
	}
	n.run.lie = n.run.fork(own, u)
	n.engine.cancel()
	n.report.log.Error("the run's host shows different histories: this client stops, and tells the others", "step", own.Step)
	wait, _ := n.tasks.Signal()
	n.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := n.tasks.WithTimeout(ctx, farewellTime)
		defer cancel()
		_ = n.Network.Publish(ctx, own.AppendTo(nil)) // who does not hear it hears another
		_ = wait(ctx)                                 // gossip is on its way as long
		return func() { n.fail(n.run.lie) }
	})
}

// fork is what a member's announcement proves that names another start of a round than the host
// showed this client: both are signed by the host.
func (v *view) fork(own wire.Head, u announcement) error {
	return &follow.Lie{
		Reason: fmt.Sprintf("it showed other members another start of step %d than this client", own.Step),
		Evidence: follow.Evidence{
			Genesis: v.genesis, Heads: []wire.Head{own, u.result.Start}, Index: own.Index, Announcement: bytes.Clone(u.raw),
		},
	}
}

// farewellTime is how long a client stays that tells the others of a fork.
const farewellTime = 2 * time.Second

// fetchResults fetches what was announced in rounds that are not applied.
func (n *Node) fetchResults() {
	if r, trainer := n.rounds.replica, n.engine.trainer; r != nil && trainer != nil {
		n.fetcher.Fetch(n.rounds.after(r.step), n.run.terms(trainer, n.SettleTimeout))
	}
}

// terms are what the run allows a fetch now.
func (v *view) terms(trainer env.Trainer, settle time.Duration) fetch.Terms {
	return fetch.Terms{Trainer: trainer, Settle: v.settleTime(settle), Round: roundTime(v.state.Config)}
}

// fetched is told by the fetcher what came of its fetches.
type fetched struct {
	rounds *roundStates
	store  *exchange.Store
	report *reporter
}

// Late implements fetch.Owner: the round was given up here, or is applied.
func (f fetched) Late(b *tally.Tally) bool {
	l, r := f.rounds.of[b.Round.Step], f.rounds.replica
	return l == nil || l.Tally != b || r != nil && b.Round.Step <= r.step
}

// Held implements fetch.Owner.
func (f fetched) Held(b *tally.Tally, s *tally.Slot, c *tally.Candidate) { f.report.foreign(b, s, c) }

// Rejected implements fetch.Owner.
func (f fetched) Rejected(b *tally.Tally, s *tally.Slot, reason string) {
	f.report.rejected(b, s, reason)
}

// NoRoom implements fetch.Owner: the rounds that run come before members that were away.
func (f fetched) NoRoom() {
	f.store.Forget(0, 0)
	if r := f.rounds.replica; r != nil {
		f.rounds.points.handed.giveWay(r.epoch.startStep)
	}
}

// Drop implements fetch.Owner.
func (f fetched) Drop(hashes ...[32]byte) { f.store.Drop(hashes...) }
