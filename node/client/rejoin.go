package client

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

const (
	maxRejoins           = 5                           // attempts to return to a running epoch from its first model
	maxIntermediateTries = 2 * len(intermediatePauses) // attempts before that to start from an intermediate checkpoint, two for each checkpoint
	askedHolders         = 3                           // members asked for the model; few, because each of them reads and hashes it

	// commitTimeout is the time limit of the first request for a manifest. It is short, so that
	// silent dishonest members cost little time. It doubles for later attempts, in case honest
	// members need longer.
	commitTimeout = time.Second
)

// intermediatePauses are the pauses between the two attempts to get an intermediate checkpoint. In
// the pause, a holder can read the checkpoint from its disk. If a holder has replaced the
// checkpoint by a newer one, later attempts request the newer one.
var intermediatePauses = [...]time.Duration{600 * time.Millisecond, 1200 * time.Millisecond, 4800 * time.Millisecond}

// rejoin is a client's return to the rounds of an epoch. The client starts from the epoch's newest
// intermediate checkpoint. If there is none, or it is not available, it starts from the model that the
// epoch started with. Then it applies the results counted since that model.
type rejoin struct {
	engine  *engine
	models  *modelsync.Models
	store   *exchange.Store
	auditor *auditor.Auditor
	report  *reporter

	replayed
}

// replayed is a client's progress in its return to an epoch.
type replayed struct {
	epoch        epochKey
	model        *modelsync.Model     // model that it started from
	commit       coordinator.Recorded // intermediate checkpoint being tried, or started from
	holders      []identity.ID        // members that receive a request for it
	tries        int                  // failed attempts to start from an intermediate checkpoint
	first        uint32               // step of the model that it started from
	step         uint32               // step reached; before first if the hash there is known and tallies lead from it to first
	hash, before [32]byte             // replica hashes after step, and after the step before; zero: unknown
	failures
	notBefore time.Time
}

// failures counts failed attempts to return in one term of an epoch.
type failures struct {
	failed int
	term   uint32 // of the newest failure
}

// add counts a failed attempt. In a new term, earlier failures count as at most one. They do not count
// as zero, which would mean that the client has had no replica in this epoch.
func (f *failures) add(term uint32) {
	if f.term != term {
		*f = failures{min(f.failed, 1), term}
	}
	f.failed++
}

// tooMany reports whether the client waits for the next term, or for the next epoch.
func (f *failures) tooMany(term uint32) bool { return f.failed >= maxRejoins && f.term == term }

// possible reports whether a client without a replica can still get one in this epoch.
func (r *rejoin) possible(v *view, own *replica) bool {
	s := v.state
	if own != nil || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness || r.epoch == v.epoch() && r.tooMany(v.term()) {
		return false
	}
	return v.isMember() || s.MayReturn(v.myself())
}

// mayTakeSeat reports whether a client with a replica of the epoch can take its seat back.
func (r *rejoin) mayTakeSeat(v *view, own *replica) bool {
	return own != nil && !own.closing && !v.isMember() && v.state.MayReturn(v.myself()) && !r.tooMany(v.term())
}

// again restarts the return after the client lost its replica, unless that happens too often.
func (r *rejoin) again(epoch epochKey, term uint32) {
	r.into(epoch)
	r.engine.End(core.Return)
	r.replayed = replayed{epoch: epoch, failures: r.failures}
	r.add(term)
}

// into resets the progress for another epoch.
func (r *rejoin) into(epoch epochKey) {
	if r.epoch != epoch {
		r.engine.End(core.Return)
		r.replayed = replayed{epoch: epoch}
	}
}

// needsModel reports whether nothing was replayed yet, so that a model is needed to start.
func (r *rejoin) needsModel() bool { return r.model == nil || r.step == r.first }

// from starts from a model that the trainer is prepared for: an intermediate checkpoint, whose
// replica hash is unknown, or the epoch's first model.
func (r *rejoin) from(m *modelsync.Model) {
	switch {
	case r.model == m:
	case r.begins(m):
		r.model, r.first, r.step, r.hash, r.before = m, m.Step, m.Step, [32]byte{}, [32]byte{}
	default:
		start, before := startReplicaOf(m), r.epoch.startStep-1
		r.model, r.first, r.step, r.hash, r.before = m, before, before, start, start
	}
}

// begins reports whether a model is the intermediate checkpoint being tried.
func (r *rejoin) begins(m *modelsync.Model) bool {
	return m != nil && r.commit.Step != 0 && m.Digest == r.commit.Digest
}

// knows reports whether the replica hash after the reached step is known.
func (r *rejoin) knows() bool { return r.hash != [32]byte{} }

// rejoin gets the model of the running round. The loop calls it until the client has a replica.
func (n *Node) rejoin() {
	r := n.seat.rejoin
	r.into(n.run.epoch())
	if !n.engine.Idle() || n.tasks.Now().Before(r.notBefore) {
		return
	}
	if r.step < r.first && !n.rounds.lead(r.epoch.startStep, r.step, r.first) { // a tally is missing
		r.step, r.hash, r.before = r.first, [32]byte{}, [32]byte{}
	}
	if r.needsModel() {
		m := n.beginning()
		switch {
		case m == nil:
			return
		case n.engine.prepared.model != m || n.engine.prepared.epoch != r.epoch:
			n.prepare(m, r.epoch)
			return
		}
		r.from(m)
	}
	if rs := n.rounds.of[r.step+1]; r.knows() && rs != nil && rs.EpochStart == r.epoch.startStep { // tallies cover the following rounds
		n.enter(r.model, r.epoch, r.step, r.hash, r.before)
		return
	}
	q, ok := n.run.quorum(n.engine.Lag())
	if ok && (q.after > r.step || r.asksForHash() && n.rounds.lead(r.epoch.startStep, q.after, r.step)) {
		r.replay(&n.run, q, n.run.Members(), n.run.CompletionTime())
	}
}

// asksForHash reports whether to request the replica hash of a quorum even if no result has to be
// replayed to reach it. From that hash, this client can compute the following hashes with the outcomes
// of the rounds in its tallies. Otherwise it would have to wait for the next quorum, which may in turn
// wait for this client. A client that lost its replica in this epoch does not need the hash, because
// its tallies suffice.
func (r *rejoin) asksForHash() bool { return !r.knows() && r.failed == 0 }

// beginning returns the model that the return to the epoch starts from, or nil while it is being
// fetched.
func (n *Node) beginning() *modelsync.Model {
	r, s := n.seat.rejoin, n.run.state
	if r.begins(n.models.Held) {
		return n.models.Held
	}
	if s.Epoch.Commit.Step != 0 && r.tries < maxIntermediateTries {
		if r.tries%2 == 0 || r.commit.Step == 0 { // otherwise ask the same members again, which may have it ready now
			r.commit, r.holders = s.Epoch.Commit, n.run.holders(s.Epoch.Commit.Step)
		}
		r.obtainIntermediate(&n.run, &n.models.copies, n.obtained)
		return nil
	}
	r.commit = coordinator.Recorded{}
	if !n.engine.holds(n.models.Models, n.run.definition()) {
		n.obtainModel()
		return nil
	}
	return n.models.Held
}

// obtainIntermediate gets the intermediate checkpoint being tried. It uses this client's own copy,
// or an older checkpoint and the results counted since then, or asks members that hold it. The
// model is accepted only with the digest that a quorum reported. obtained is called with the
// result.
func (r *rejoin) obtainIntermediate(v *view, copies *intermediates, obtained func(*modelsync.Attempt, error, bool)) {
	s := v.state
	commit, limit := r.commit, time.Duration(s.Config.WarmupTime)*time.Millisecond
	definition := v.definition()
	definition.Checkpoint = definition.Checkpoint.Recorded(commit)
	redefined := r.engine.redefined(definition)
	if redefined {
		r.engine.trainer = nil
	}
	r.store.Forget(0, 0) // later rounds do not continue from there
	copied, _ := copies.Find(commit.Digest)
	a := r.models.Begin(modelsync.Request{
		Definition: definition, Trainer: r.engine.trainer, Redefined: redefined, Running: true,
		Timeout: commitTimeout << (r.tries / 2),
		Peers:   r.holders, Copy: copied.Memory, Time: limit,
	})
	start(r.engine, core.Load{From: s.Model.Checkpoint}, func(ctx context.Context) failure {
		limited, cancel := r.engine.tasks.WithTimeout(ctx, limit)
		defer cancel()
		return failure{a.Run(limited), ctx.Err() != nil}
	}, func(f failure) { obtained(a, f.err, f.cancelled) }, nil)
}

// obtained handles the result of obtainIntermediate.
func (r *rejoin) obtained(m *modelsync.Model, copies *intermediates, err error, cancelled bool) {
	switch {
	case cancelled:
	case err != nil:
		if r.tries++; r.tries%2 == 1 { // give the asked members time to prepare it
			r.notBefore = r.engine.tasks.Now().Add(intermediatePauses[r.tries/2])
		}
		r.report.log.Info("intermediate checkpoint of the running epoch unavailable", "step", r.commit.Step, "will_retry", r.tries < maxIntermediateTries, "err", err)
	default:
		copies.add(m)
	}
}

// holders returns randomly chosen members that reported an intermediate checkpoint.
func (v *view) holders(step uint32) []identity.ID {
	ids := v.drawn(func(c *coordinator.Client) bool { return c.HoldsEarlier == step })
	return ids[:min(len(ids), askedHolders)]
}

// quorum is the replica value that a quorum of a round's witnesses signed.
type quorum struct {
	after uint32   // newest step that the replica includes
	said  [32]byte // replica value, bound to head
	head  [32]byte // hash of the log's head at the round's start
}

// is reports whether a replica hash matches the value that the quorum signed.
func (q *quorum) is(replica [32]byte) bool { return tally.ReplicaAt(replica, q.head) == q.said }

// quorum returns the value of the newest quorum of the epoch.
func (v *view) quorum(lag uint32) (q quorum, ok bool) {
	e := &v.state.Epoch
	for _, r := range slices.Backward(e.Rounds) {
		if r.Step < e.StartStep {
			break
		}
		count := make(map[[32]byte]int)
		for k := range r.Witnesses {
			said := r.Witnesses[k].Replica
			if count[said]++; count[said] >= int(r.WitnessesNeeded) {
				return quorum{after: max(r.Step, e.StartStep-1+lag) - lag, said: said, head: v.startOf(r.Step).Hash}, true
			}
		}
	}
	return q, false
}

// replay gets the counted results up to the step of a quorum's value from peers, and applies them if
// they lead to that value. If the client has already reached the step, replay only requests the
// replica hash.
func (r *rejoin) replay(v *view, q quorum, peers []identity.ID, limit time.Duration) {
	epoch, trainer, until := r.epoch, r.engine.trainer, q.after
	plan := modelsync.ReplayPlan{
		From: beganWith(epoch, r.model), Start: epoch.startStep, ColdSteps: r.engine.prepared.coldSteps,
		After: min(r.step, until), Until: until, Hash: r.hash, Peers: peers, Wanted: q.is,
	}
	if until > r.step {
		r.models.Held = nil
	}
	start(r.engine, core.Replay{From: epoch.checkpoint, Until: until}, func(ctx context.Context) (f followed) {
		ctx, cancel := r.engine.tasks.WithTimeout(ctx, limit)
		defer cancel()
		f.Replayed, f.err = r.models.Follow(ctx, trainer, plan)
		return f
	}, func(f followed) {
		r.report.total.ModelReceived += f.Fetched
		r.cameTo(v.state.Progress.Step, until, f.Replayed, f.err)
	}, func(f followed) {
		r.report.total.ModelReceived += f.Fetched
		r.store.Drop(f.Blobs...)
	})
}

// followed is the result of modelsync.Models.Follow.
type followed struct {
	modelsync.Replayed
	err error
}

// cameTo updates the progress of the trainer. now is the step of the running round.
func (r *rejoin) cameTo(now, until uint32, got modelsync.Replayed, err error) {
	switch {
	case err != nil && until <= r.step:
		r.notBefore = r.engine.tasks.Now().Add(modelPause)
	case err != nil:
		r.store.Drop(got.Blobs...)
		r.model, r.notBefore = nil, r.engine.tasks.Now().Add(modelPause)
		if r.commit.Step != 0 {
			r.tries++
		} else {
			r.add(r.epoch.term(now))
		}
		r.report.log.Warn("cannot rejoin the running epoch", "step", until, "will_retry", !r.tooMany(r.epoch.term(now)), "err", err)
	default:
		r.step, r.hash, r.before = until, got.Hash, got.Before
		if len(got.Rounds) == 0 && until >= r.epoch.startStep {
			r.before = [32]byte{} // only the hash after the step was requested
		}
		r.auditor.ForgetMomentum(now)
		r.auditor.ForgetRounds()
		for _, round := range got.Rounds {
			r.store.Remember(round)
		}
		if len(got.Rounds) > 0 {
			r.report.log.Info("applied the counted results of the running epoch; optimizer reset", "step", until, "bytes", got.Fetched)
		}
	}
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
