package client

import (
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
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

// rejoin is a client's progress in its return to the rounds of an epoch. The client starts from the
// epoch's newest intermediate checkpoint. If there is none, or it is not available, it starts from the
// model that the epoch started with. Then it applies the results counted since that model.
type rejoin struct {
	epoch        core.Epoch
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

// possible reports whether a client can still get a replica in this epoch. has reports whether it has
// one.
func (r *rejoin) possible(v *view, has bool) bool {
	s := v.state
	if has || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness || r.epoch == v.epoch() && r.tooMany(v.term()) {
		return false
	}
	return v.isMember() || s.MayReturn(v.myself())
}

// mayTakeSeat reports whether a client can take its seat back. follows reports whether it has a replica of
// an epoch with further rounds.
func (r *rejoin) mayTakeSeat(v *view, follows bool) bool {
	return follows && !v.isMember() && v.state.MayReturn(v.myself()) && !r.tooMany(v.term())
}

// again restarts the return after the client lost its replica, unless that happens too often.
func (r *rejoin) again(epoch core.Epoch, term uint32, jobs *core.Jobs) {
	r.into(epoch, jobs)
	jobs.End(core.Return)
	*r = rejoin{epoch: epoch, failures: r.failures}
	r.add(term)
}

// into resets the progress for another epoch.
func (r *rejoin) into(epoch core.Epoch, jobs *core.Jobs) {
	if r.epoch != epoch {
		jobs.End(core.Return)
		*r = rejoin{epoch: epoch}
	}
}

// from starts from a model that the trainer is prepared for: an intermediate checkpoint, whose
// replica hash is unknown, or the epoch's first model.
func (r *rejoin) from(m *modelsync.Model) {
	switch {
	case r.model == m:
	case r.begins(m):
		r.model, r.first, r.step, r.hash, r.before = m, m.Step, m.Step, [32]byte{}, [32]byte{}
	default:
		start, before := tally.StartReplica(m.Digest), r.epoch.StartStep-1
		r.model, r.first, r.step, r.hash, r.before = m, before, before, start, start
	}
}

// begins reports whether a model is the intermediate checkpoint being tried.
func (r *rejoin) begins(m *modelsync.Model) bool {
	return m != nil && r.commit.Step != 0 && m.Digest == r.commit.Digest
}

// knows reports whether the replica hash after the reached step is known.
func (r *rejoin) knows() bool { return r.hash != [32]byte{} }

// asksForHash reports whether to request the replica hash of a quorum even if no result has to be
// replayed to reach it. From that hash, this client can compute the following hashes with the outcomes
// of the rounds in its tallies. Otherwise it would have to wait for the next quorum, which may in turn
// wait for this client. A client that lost its replica in this epoch does not need the hash, because
// its tallies suffice.
func (r *rejoin) asksForHash() bool { return !r.knows() && r.failed == 0 }

// obtained handles the result of an attempt to get the epoch's intermediate checkpoint.
func (r *rejoin) obtained(m *modelsync.Model, copies *intermediates, err error, cancelled bool) {
	switch {
	case cancelled:
	case err != nil:
		if r.tries++; r.tries%2 == 1 { // give the asked members time to prepare it
			r.notBefore = copies.tasks.Now().Add(intermediatePauses[r.tries/2])
		}
		copies.log.Info("intermediate checkpoint of the running epoch unavailable", "step", r.commit.Step, "will_retry", r.tries < maxIntermediateTries, "err", err)
	default:
		copies.add(m)
	}
}

// came updates the progress after a replay up to the step until. running is the step of the current round.
// lost means that the trainer's weights cannot be used any more.
func (r *rejoin) came(now time.Time, running, until uint32, got modelsync.Replayed, err error) (lost bool) {
	if err == nil {
		r.step, r.hash, r.before = until, got.Hash, got.Before
		if len(got.Rounds) == 0 && until >= r.epoch.StartStep {
			r.before = [32]byte{} // only the hash after the step was requested
		}
		return false
	}
	r.notBefore = now.Add(modelPause)
	if until <= r.step {
		return false
	}
	if r.model = nil; r.commit.Step != 0 {
		r.tries++
	} else {
		r.add(r.epoch.Term(running))
	}
	return true
}

// modelPause is the pause between two attempts to get a model that no peer provided.
const modelPause = time.Second
