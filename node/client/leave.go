package client

import (
	"log/slog"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/keep"
)

// leaving is the graceful leave of a client. It stops training, applies the counted results that
// are available, reports the model that it holds, and withdraws. until is the time limit.
type leaving struct {
	run      *view
	rounds   *roundStates
	engine   *engine
	models   *modelStates
	actions  *submitter
	log      *slog.Logger
	saves    bool                   // the client has a folder for checkpoints
	finalize func(step uint32) bool // applies the results of finished rounds up to a step

	since, until time.Time     // zero: the client stays
	copied       time.Duration // time of the end of the newest copy, relative to since
	said         time.Duration // time of the newest log line about a delay, relative to since; zero: none
}

// Copying, hashing and writing a large model takes longer than a client otherwise needs to leave. If
// such work is in progress, a leaving client waits for as long as a slow machine needs, which
// processes slowHash bytes per second, but at most longestLeave. It logs this every leaveReminder.
const (
	slowHash      = 64 << 20
	longestLeave  = time.Minute
	leaveReminder = 5 * time.Second
)

func (l *leaving) begun() bool { return !l.until.IsZero() }

// awaitsOutcome reports whether the client still waits for the outcome of a round that it has
// witnessed. The second half of the time to leave is reserved for reporting the model.
func (l *leaving) awaitsOutcome() bool {
	return l.engine.tasks.Now().Sub(l.since) < l.until.Sub(l.since)/2
}

// begin begins to leave.
func (l *leaving) begin(limit time.Duration) {
	l.since = l.engine.tasks.Now()
	l.until = l.since.Add(limit)
	l.models.copies.Leaving = true
	l.engine.CancelTraining(none)
	l.engine.CancelRecomputation(true)
	if l.run.isMember() {
		l.log.Info("leaving: this client stops training and reports its model; a second Ctrl-C ends it at once", "limit", limit)
	}
}

// over reports whether nothing is left to do before this client withdraws.
func (l *leaving) over() bool {
	s := l.run.state
	if s == nil || l.run.hostFault != nil || !l.run.isMember() || l.late() && !l.worthWaiting() {
		return true
	}
	switch s.RunState {
	case coordinator.Warmup:
		return !l.run.onlyHolder()
	case coordinator.RoundTrain, coordinator.RoundWitness:
		return l.saidInRound()
	case coordinator.Cooldown:
		return l.saidInCooldown()
	default:
		return true
	}
}

// late reports whether the time limit is over, so that no new work starts.
func (l *leaving) late() bool { return !l.engine.tasks.Now().Before(l.until) }

// worthWaiting reports whether the client should stay after its time limit: it is still copying,
// hashing or writing a model, or has one to report. The extra time is in proportion to the size of
// the model, and ends longestLeave after the start. worthWaiting also logs that the client waits.
func (l *leaving) worthWaiting() bool {
	copies, passed := &l.models.copies, l.engine.tasks.Now().Sub(l.since)
	_, copying := l.engine.Work().(core.Snapshot)
	copying = copying || l.models.snapshotter.lent != nil
	limit := longestLeave
	if copying { // the number of bytes is known afterwards
		l.copied = passed
	} else {
		limit = min(limit, l.copied+max(l.until.Sub(l.since), time.Duration(copies.Bytes()/slowHash)*time.Second))
	}
	if !copying && copies.Settled() && !l.toSay() || passed >= limit {
		return false
	}
	if l.said == 0 || passed-l.said >= leaveReminder {
		l.said = passed
		l.log.Info("leaving: the model is still being copied, hashed or written for the other members; a second Ctrl-C ends this client at once",
			"bytes", copies.Bytes(), "for", passed.Round(time.Second), "limit", limit)
	}
	return true
}

// toSay reports whether this client has a model that it has not reported.
func (l *leaving) toSay() bool {
	s, m := l.run.state, l.models.Held
	me, ok := s.Member(l.run.myself())
	if !ok {
		return false
	}
	if last := s.Progress.Step - 1; s.RunState == coordinator.Cooldown {
		return m != nil && m.Step == last && me.Report.Step != last
	}
	_, more := l.models.copies.Unreported(s, me)
	return more
}

// saidInRound reports the newest model that includes all counted results, and returns true when
// nothing is left to do. If this client has sent its proof of the running round, it first waits for
// the outcome of that round.
func (l *leaving) saidInRound() bool {
	s, copies := l.run.state, &l.models.copies
	r, step := l.rounds.replica, s.Progress.Step
	me, ok := s.Member(l.run.myself())
	switch {
	case !ok || r == nil || r.closing:
		return true
	case l.late():
		return false // only work in progress is completed
	case l.hasWitnessed(step) && l.awaitsOutcome():
		return false
	case r.step+1 < step:
		l.finalize(step - 1)
		return l.rounds.replica == nil
	case r.step < s.Epoch.StartStep, max(me.Report.Step, s.Epoch.Commit.Step) >= r.step:
		return copies.Settled()
	case !copies.Busy() && !copies.Has(r.step) && l.engine.Idle():
		copies.takeNow(l.run, l.engine, r.step, func(err error) {
			l.log.Warn("leaving without reporting this client's model", "step", r.step, "err", err)
			l.until = l.engine.tasks.Now()
		})
	}
	return false
}

// saidInCooldown reports the epoch's model and, if there is a folder, writes it to the disk.
func (l *leaving) saidInCooldown() bool {
	s, copies, m := l.run.state, &l.models.copies, l.models.Held
	me, ok := s.Member(l.run.myself())
	last := s.Progress.Step - 1
	if !ok || l.rounds.replica == nil && (m == nil || m.Step != last) {
		return true
	}
	if m == nil || m.Step != last {
		return false
	}
	if l.saves && !copies.Has(last) && !l.late() && m.Snapshot.Tensors != nil {
		copies.take(last, m.Snapshot, s)
	}
	return me.Report.Step == last && copies.Settled()
}

// hasWitnessed reports whether this client sent its proof of a round.
func (l *leaving) hasWitnessed(step uint32) bool {
	round := l.rounds.of[step]
	if round == nil {
		return false
	}
	index, takesPart := round.Round.MemberIndex(l.run.myself())
	return takesPart && (l.actions.answered("witness", step) ||
		slices.ContainsFunc(round.Round.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == index }))
}

// onlyHolder reports whether this client is the only member with the model that an epoch starts from,
// and other members are waiting for the model.
func (v *view) onlyHolder() bool {
	s := v.state
	me, ok := s.Member(v.myself())
	if !ok || !s.Model.Checkpoint.FromPeers() || !me.HoldsModel && !slices.Contains(s.Epoch.Ready, me.ID) {
		return false
	}
	others := false
	for i := range s.Epoch.Clients {
		c := &s.Epoch.Clients[i]
		if c.State != coordinator.Healthy || v.is(*c) {
			continue
		}
		if c.HoldsModel || slices.Contains(s.Epoch.Ready, c.ID) {
			return false
		}
		others = true
	}
	return others
}

// holdings are the models that this client can load by itself.
type holdings struct {
	run    *view
	models *modelStates
	saver  *keep.Saver
}

// checkpoint reports whether this client can load the run's checkpoint by itself: its parts are
// still in memory, independent of the trainer's weights, or on its disk.
func (h *holdings) checkpoint() bool {
	c := h.run.state.Model.Checkpoint
	return c.FromPeers() && (h.models.Shared(c.Digest) != nil || h.models.copies.Holds(c.Digest)) || h.saver.Holds(c)
}

// newest returns the newest model that the run recorded and this client holds, or zero.
func (h *holdings) newest() coordinator.Recorded {
	s := h.run.state
	c := s.Model.Checkpoint
	switch {
	case !c.FromPeers():
		return coordinator.Recorded{}
	case h.checkpoint():
		return coordinator.Recorded{Step: c.Step, Digest: c.Digest}
	}
	saved, _ := h.saver.Newest(s)
	for _, r := range slices.Backward(s.Earlier) {
		if r.Step > saved.Step && (h.models.copies.Holds(r.Digest) || h.models.Shared(r.Digest) != nil) {
			return r
		}
	}
	return saved
}

// moreThan reports whether this pending client holds a newer model of the run than the run knows.
// The run may have recorded it since this client joined. told is the run's checkpoint at that time.
func (h *holdings) moreThan(waits *coordinator.Client, told coordinator.Checkpoint) bool {
	return !waits.HoldsModel && told != h.run.state.Model.Checkpoint && h.newest().Step > waits.HoldsEarlier
}
