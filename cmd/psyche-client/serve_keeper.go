package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

const (
	lookEvery  = time.Minute   // interval of checks of a closed run, or of the current run
	asideEvery = time.Hour     // interval of checks of a run whose address now has a different server, if there are other runs
	idleLimit  = 6 * time.Hour // maximum idle time of a waiting run while another run trains

	firstRestart = 5 * time.Second // pause before a client is restarted; it doubles with each consecutive exit
	longestPause = 10 * time.Minute
	endsInARow   = 4                // consecutive exits of a run's clients before other runs get a turn
	longLife     = 10 * time.Minute // a client that ran this long starts a new count of consecutive exits
	politeEnd    = 10 * time.Minute // time for a client to leave a run in favour of another run
)

// keeper keeps a machine in one of several runs.
type keeper struct {
	runs      []*servedRun
	patience  time.Duration
	look      func(context.Context, *servedRun) outlook
	start     func(*servedRun) (*child, error)
	random    *rand.Rand
	impatient <-chan struct{} // closed when a client has to end at once
	logger    *slog.Logger
}

// run returns nil when no run is left, or the cause of ctx when ctx ends.
func (k *keeper) run(ctx context.Context) error {
	for context.Cause(ctx) == nil {
		r, err := k.next(ctx)
		if err != nil {
			return err
		}
		if r == nil {
			return k.verdict()
		}
		if err := k.stay(ctx, r); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// next waits until a run is open, and returns the first open run. It returns nil if no run can ever be
// open again.
func (k *keeper) next(ctx context.Context) (*servedRun, error) {
	for {
		var soonest time.Time
		for _, r := range k.runs {
			if !r.final && !time.Now().Before(r.notBefore) && k.isOpen(ctx, r) {
				return r, nil
			}
			if r.aside == "" && (soonest.IsZero() || r.notBefore.Before(soonest)) {
				soonest = r.notBefore
			}
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
		}
		if soonest.IsZero() {
			return nil, nil
		}
		if err := pause.For(ctx, time.Until(soonest)); err != nil {
			return nil, err
		}
	}
}

// isOpen checks whether a run is open, and logs changes.
func (k *keeper) isOpen(ctx context.Context, r *servedRun) bool {
	seen := k.look(ctx, r)
	switch {
	case ctx.Err() != nil:
		return false
	case seen.prospect == isOpen:
		r.said, r.aside, r.doings = "", "", seen.doings
		return true
	case seen.prospect == isLater, seen.prospect == isStranger && r.met:
		r.aside = ""
		if r.said != seen.reason {
			r.said = seen.reason
			k.logger.Warn("this run is not open now; checking again every minute", "run", r.joins.RunID, "because", seen.reason)
		}
		r.notBefore = time.Now().Add(k.around(lookEvery))
		return false
	}
	r.notBefore = time.Now().Add(k.around(asideEvery))
	if r.aside != seen.reason {
		k.putAside(r, seen.reason, seen.prospect == isOver, seen.prospect != isStranger)
	}
	return false
}

// putAside stops trying a run and logs the reason: permanently, or until its server is back at the
// link's address.
func (k *keeper) putAside(r *servedRun, reason string, isOver, isFinal bool) {
	r.aside, r.over, r.final = reason, isOver, isFinal
	switch {
	case isOver:
		k.logger.Info("this run is over", "run", r.joins.RunID, "because", reason)
	case isFinal:
		k.logger.Error("this run will not be tried again; fix the problem and restart this command", "run", r.joins.RunID, "because", reason)
	default:
		k.logger.Error("this run cannot be joined with this link; checking again every hour while there are other runs", "run", r.joins.RunID, "because", reason)
	}
}

// verdict returns an error that lists the runs that could not be joined, or nil if all runs are over.
func (k *keeper) verdict() error {
	var wrong []string
	for _, r := range k.runs {
		if !r.over {
			wrong = append(wrong, fmt.Sprintf("%s (run %s): %s", r.given, r.joins.RunID, r.aside))
		}
	}
	if len(wrong) > 0 {
		return errors.New("no run is left to join: " + strings.Join(wrong, "; "))
	}
	k.logger.Info("all runs are over", "runs", len(k.runs))
	return nil
}

// stay takes part in a run until it is over or closed, or until its clients end too often and there
// are other runs. It returns an error only if ctx ends.
func (k *keeper) stay(ctx context.Context, r *servedRun) error {
	for {
		began := time.Now()
		end, left := k.live(ctx, r)
		lived := time.Since(began)
		switch err := context.Cause(ctx); {
		case err != nil:
			return err
		case left:
			r.notBefore = time.Now().Add(lookEvery)
			return nil
		case end.code == exitUsage:
			k.putAside(r, "its client reported a wrong command line or input; see the messages above", false, true)
			return nil
		case end.code == exitHostFault:
			k.putAside(r, "its server provably lied; the messages above name the evidence", false, true)
			return nil
		case end.code == 0:
			k.putAside(r, "its client reached the end of the run", true, true)
			return nil
		}
		if lived >= longLife {
			r.failures = 0
		}
		r.failures++
		wait := k.backOff(r.failures)
		r.notBefore = time.Now().Add(wait)
		k.logger.Warn("the client exited before its run ended", "run", r.joins.RunID, "after", lived.Round(time.Second), "because", end.String(), "retry_in", wait.Round(time.Second))
		if r.failures >= endsInARow && k.others(r) {
			return nil
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
		if !k.isOpen(ctx, r) {
			return nil
		}
	}
}

// live starts a client and returns its result. left is true if the keeper ended the client, because
// its run was closed or idle for too long and another run is open.
func (k *keeper) live(ctx context.Context, r *servedRun) (end ending, left bool) {
	client, err := k.start(r)
	if err != nil {
		return ending{code: exitFailure, text: err.Error()}, false
	}
	k.logger.Info("a client takes part", "run", r.joins.RunID, "pid", client.pid)
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	w := watch{k: k, run: r, idle: time.Now(), before: r.doings}
	for {
		select {
		case <-client.ended:
			return client.end, false
		case <-ctx.Done():
			k.logger.Info("the client leaves the run; a second interrupt ends it at once", "run", r.joins.RunID)
			client.leave(nil, k.impatient)
			return client.end, false
		case <-looks.C:
			if other, reason := w.look(ctx); other != nil {
				k.logger.Warn("the client moves to another open run", "run", r.joins.RunID, "because", reason, "for", other.joins.RunID)
				client.leave(time.After(politeEnd), k.impatient)
				return client.end, true
			}
		}
	}
}

// watch is the recent state of the current run.
type watch struct {
	k      *keeper
	run    *servedRun
	closed time.Time // start of the time in which it was not open; zero: it is open
	idle   time.Time // start of the time in which it was idle
	before doings    // at the last change, with the highest number of clients seen
}

// look returns another run to switch to, and the reason: the current run was closed for too long,
// or waited for members for even longer without any change while the other run trains.
func (w *watch) look(ctx context.Context) (other *servedRun, reason string) {
	if !w.k.others(w.run) {
		return nil, ""
	}
	seen, now := w.k.look(ctx, w.run), time.Now()
	switch seen.prospect {
	case isOpen:
		w.closed = time.Time{}
		if d := seen.doings; d.runs || d.since(w.before) {
			w.idle, w.before = now, doings{step: d.step, clients: max(d.clients, w.before.clients)}
		}
		if now.Sub(w.idle) < idleLimit {
			return nil, ""
		}
		return w.k.better(ctx, w.run, func(d doings) bool { return d.runs }), "it waits for members and has been idle for " + idleLimit.String()
	case isLater, isStranger:
		if w.closed.IsZero() {
			w.closed = now
		}
		if now.Sub(w.closed) < w.k.patience {
			return nil, ""
		}
		return w.k.better(ctx, w.run, func(doings) bool { return true }), seen.reason
	}
	w.closed = time.Time{} // a client ends by itself in a run that is over
	return nil, ""
}

// others reports whether there is another run to take part in, now or later.
func (k *keeper) others(r *servedRun) bool {
	for _, other := range k.runs {
		if other != r && other.aside == "" {
			return true
		}
	}
	return false
}

// better returns another open run whose progress satisfies wanted.
func (k *keeper) better(ctx context.Context, r *servedRun, wanted func(doings) bool) *servedRun {
	for _, other := range k.runs {
		if other != r && !other.final && !time.Now().Before(other.notBefore) && k.isOpen(ctx, other) && wanted(other.doings) {
			return other
		}
	}
	return nil
}

// backOff returns the pause after a number of consecutive exits.
func (k *keeper) backOff(ends int) time.Duration {
	wait := firstRestart
	for range ends - 1 {
		wait = min(2*wait, longestPause)
	}
	return k.around(wait)
}

// around returns a random duration from the upper half of d, so that machines that lost the same
// server do not all return at once.
func (k *keeper) around(d time.Duration) time.Duration {
	return d - time.Duration(k.random.Int64N(int64(cmp.Or(d/2, 1))))
}
