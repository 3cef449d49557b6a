package core

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of a return to the rounds of an epoch.
type (
	// Rejoin advances the return of a member without a replica. The caller repeats it after every other
	// event in a round.
	Rejoin struct {
		Trainer
		Lag     uint32                         // the run's apply_lag
		Follows func(step uint32) bool         // reports whether the member tallies the epoch's round after a step
		Leads   func(after, until uint32) bool // reports whether its tallies decide all rounds of the epoch after one step, up to another
	}

	// Replayed is the result of a Replay.
	Replayed struct {
		Until        uint32   // as in the Replay
		Hash, Before [32]byte // replica hashes after Until, and after the step before
		Rounds       int      // rounds whose results were applied
		Err          error
	}

	// SitDown takes the seat in the running round back, if the member has a replica but no seat.
	SitDown struct{ Replica *Replica }
)

// Reports about a return.
type (
	// TakenUnavailable means that the member cannot get an intermediate checkpoint.
	TakenUnavailable struct {
		Step    uint32
		Retries bool // the member will try again
		Err     error
	}

	// CannotRejoin means that results did not lead to the replica of a quorum.
	CannotRejoin struct {
		Step    uint32
		Retries bool // the member will try again in this term
		Err     error
	}
)

func (Rejoin) event()   {}
func (Replayed) event() {}
func (SitDown) event()  {}

func (TakenUnavailable) report() {}
func (CannotRejoin) report()     {}

const (
	maxRejoins    = 5                    // attempts to return to a running epoch from its first model
	maxTakenTries = 2 * len(takenPauses) // attempts before that to start from an intermediate checkpoint, two for each checkpoint

	// takenTimeout is the time limit of the first request for a manifest. It is short, so that
	// silent dishonest members cost little time. It doubles for later attempts, in case honest
	// members need longer.
	takenTimeout = time.Second
)

// takenPauses are the pauses between the two attempts to get an intermediate checkpoint. In
// the pause, a holder can read the checkpoint from its disk. If a holder has replaced the
// checkpoint by a newer one, later attempts request the newer one.
var takenPauses = [...]time.Duration{600 * time.Millisecond, 1200 * time.Millisecond, 4800 * time.Millisecond}

// returning is a member's progress in its return to the rounds of an epoch. The member starts from the
// epoch's newest intermediate checkpoint. If there is none, or it is not available, it starts from the
// model that the epoch started with. Then it applies the results counted since that model.
type returning struct {
	epoch        Epoch
	model        *Model               // model that it started from
	taken        coordinator.Recorded // intermediate checkpoint being tried, or started from
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
// as zero, which would mean that the member has had no replica in this epoch.
func (f *failures) add(term uint32) {
	if f.term != term {
		*f = failures{min(f.failed, 1), term}
	}
	f.failed++
}

// tooMany reports whether the member waits for the next term, or for the next epoch.
func (f *failures) tooMany(term uint32) bool { return f.failed >= maxRejoins && f.term == term }

// term returns the current term of the epoch.
func (c *common) term() uint32 { return EpochOf(c.state).term(c.state.Progress.Step) }

// possible reports whether a member without a replica can still get one in this epoch.
func (r *returning) possible(c *common) bool {
	s := c.state
	if s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness || r.epoch == EpochOf(s) && r.tooMany(c.term()) {
		return false
	}
	return c.isMember() || s.MayReturn(c.ID)
}

// maySit reports whether a client can take its seat back.
func (r *returning) maySit(c *common, replica *Replica) bool {
	return replica.follows() && !c.isMember() && c.state.MayReturn(c.ID) && !r.tooMany(c.term())
}

// lost restarts the return after the member lost its replica, unless that happens too often.
func (r *returning) lost(c *common) {
	if c.state == nil {
		return
	}
	epoch := EpochOf(c.state)
	r.into(c, epoch)
	c.Jobs.End(Return)
	*r = returning{epoch: epoch, failures: r.failures}
	r.add(c.term())
}

// into resets the progress for another epoch.
func (r *returning) into(c *common, epoch Epoch) {
	if r.epoch != epoch {
		c.Jobs.End(Return)
		*r = returning{epoch: epoch}
	}
}

// cancelLoad cancels the load of a model that the member does not need any more.
func (r *returning) cancelLoad(c *common, replica *Replica) {
	wanted, s := coordinator.Checkpoint{}, c.state
	if s.RunState == coordinator.Warmup && c.isMember() || replica == nil && r.possible(c) || s.RunState == coordinator.Finished && !ClosedEarly(s) {
		wanted = s.Model.Checkpoint
	}
	c.Jobs.cancelLoad(wanted)
}

// look gets the model of the running round.
func (r *returning) look(c *common, l *loading, e Rejoin) {
	if !r.possible(c) {
		return
	}
	r.into(c, EpochOf(c.state))
	if !c.Jobs.Idle() || c.now.Before(r.notBefore) {
		return
	}
	if r.step < r.first && !e.Leads(r.step, r.first) { // a tally is missing
		r.step, r.hash, r.before = r.first, [32]byte{}, [32]byte{}
	}
	if (r.model == nil || r.step == r.first) && !r.begin(c, l, e.Trainer) { // nothing was replayed yet
		return
	}
	if r.knows() && e.Follows(r.step) { // tallies cover the following rounds
		c.ready.Enter = &Entry{r.step, r.hash, r.before}
		return
	}
	q, ok := c.quorum(e.Lag)
	if ok && (q.Step > r.step || r.asksForHash() && e.Leads(q.Step, r.step)) {
		c.ready.Next = Replay{From: r.epoch.Checkpoint, After: min(r.step, q.Step), Until: q.Step, Hash: r.hash, Quorum: q}
	}
}

// begin gets the model that the return starts from, and sets the optimizer up for it. It reports
// whether that is complete. The member gets an intermediate checkpoint from its own copy, or from an
// older checkpoint and the results counted since then, or from members that hold it. The model is
// accepted only with the digest that a quorum reported.
func (r *returning) begin(c *common, l *loading, t Trainer) (complete bool) {
	taken := c.state.Epoch.Commit
	switch {
	case r.begins(t.Held):
	case taken.Step == 0 || r.tries >= maxTakenTries:
		if r.taken = (coordinator.Recorded{}); !t.loaded(c) {
			l.load(c, t)
			return false
		}
	default:
		again := r.tries%2 == 1 && r.taken.Step != 0 // the same members may have it ready now
		if !again {
			r.taken = taken
		}
		w := Load{From: c.state.Model.Checkpoint, Taken: r.taken, Rebuild: t.Redefined, Again: again, Limit: c.modelSyncTime(), Answer: takenTimeout << (r.tries / 2)}
		w.Sources = l.sources(c, w.Wanted(), t.Redefined, true)
		c.ready.Next = w
		return false
	}
	if !t.Prepared {
		c.ready.Next = Prepare{}
		return false
	}
	r.from(t)
	return true
}

// from starts from the trainer's model: an intermediate checkpoint, whose replica hash is unknown, or
// the epoch's first model.
func (r *returning) from(t Trainer) {
	switch m := t.Held; {
	case r.model != nil && *r.model == *m:
	case r.begins(m):
		r.model, r.first, r.step, r.hash, r.before = m, m.Step, m.Step, [32]byte{}, [32]byte{}
	default:
		before := r.epoch.StartStep - 1
		r.model, r.first, r.step, r.hash, r.before = m, before, before, t.Start, t.Start
	}
}

// begins reports whether a model is the intermediate checkpoint being tried.
func (r *returning) begins(m *Model) bool {
	return m != nil && r.taken.Step != 0 && m.Digest == r.taken.Digest
}

// knows reports whether the replica hash after the reached step is known.
func (r *returning) knows() bool { return r.hash != [32]byte{} }

// asksForHash reports whether to request the replica hash of a quorum even if no result has to be
// replayed to reach it. From that hash, the member can compute the following hashes with the outcomes
// of the rounds in its tallies. Otherwise it would have to wait for the next quorum, which may in turn
// wait for this member. A member that lost its replica in this epoch does not need the hash, because
// its tallies suffice.
func (r *returning) asksForHash() bool { return !r.knows() && r.failed == 0 }

// quorum returns the value of the newest quorum of the epoch.
func (c *common) quorum(lag uint32) (q Quorum, ok bool) {
	e := &c.state.Epoch
	for _, round := range slices.Backward(e.Rounds) {
		if round.Step < e.StartStep {
			break
		}
		count := make(map[[32]byte]int)
		for k := range round.Witnesses {
			said := round.Witnesses[k].Replica
			if count[said]++; count[said] >= int(round.WitnessesNeeded) {
				return Quorum{max(round.Step, e.StartStep-1+lag) - lag, round.Step, said}, true
			}
		}
	}
	return q, false
}

// obtained handles the result of a Load of an intermediate checkpoint.
func (r *returning) obtained(c *common, e Obtained) {
	if e.Taken.Step == 0 || e.Fault == NoFault || e.Fault == Cancelled {
		return
	}
	if r.tries++; r.tries%2 == 1 { // give the asked members time to prepare it
		r.notBefore = c.now.Add(takenPauses[min(r.tries/2, len(takenPauses)-1)])
	}
	c.report(TakenUnavailable{r.taken.Step, r.tries < maxTakenTries, e.Err})
}

// replayed updates the progress after a replay. If a replay with results failed, the trainer's weights
// cannot be used any more.
func (r *returning) replayed(c *common, e Replayed) {
	if e.Err == nil {
		r.step, r.hash, r.before = e.Until, e.Hash, e.Before
		if e.Rounds == 0 && e.Until >= r.epoch.StartStep {
			r.before = [32]byte{} // only the hash after the step was requested
		}
		return
	}
	r.notBefore = c.now.Add(modelPause)
	if e.Until <= r.step {
		return
	}
	term := r.epoch.term(c.state.Progress.Step)
	if r.model = nil; r.taken.Step != 0 {
		r.tries++
	} else {
		r.add(term)
	}
	c.report(CannotRejoin{e.Until, !r.tooMany(term), e.Err})
}
