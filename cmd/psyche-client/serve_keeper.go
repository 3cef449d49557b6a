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
	lookEvery  = time.Minute   // between looks at a run that is not open, or at the one that is taken part in
	asideEvery = time.Hour     // at one in whose place another server answered, while there are others
	idleLimit  = 6 * time.Hour // in which nothing happens in a run that waits, while another one trains

	firstRestart = 5 * time.Second // before a client is started again, which doubles with each end in a row
	longestPause = 10 * time.Minute
	endsInARow   = 4                // of clients of a run, then others have their turn
	longLife     = 10 * time.Minute // of a client, after which its end is the first in a row
	politeEnd    = 10 * time.Minute // that a client has to leave a run for another one
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

// run returns when no run is left, or the cause of ctx when that ends.
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

// next returns the first run that is open, as soon as there is one; nil when none will ever be.
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

// isOpen looks at a run, and says what is new about it.
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

// putAside says that a run is not tried any more: for good, or until its server is where the link says.
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

// verdict is what is left to say when no run is left.
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

// stay takes part in a run until it is over or not open any more, or its clients end too often and there are others.
// It returns an error only when ctx ends.
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
		case end.code == exitLie:
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
		k.logger.Warn("the client exited before its run ended", "run", r.joins.RunID, "after", lived.Round(time.Second), "because", end.String(), "again_in", wait.Round(time.Second))
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

// live starts a client and returns how it ended, and whether it was made to, because its run was not open for long, or
// nothing happened in it for longer, and another one is open.
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

// watch is how the run that is taken part in has been of late.
type watch struct {
	k      *keeper
	run    *servedRun
	closed time.Time // since when it has not been open; zero: it is
	idle   time.Time // since when nothing has happened in it
	before doings    // what had, with the most clients of all looks
}

// look returns another run to go to, and why: this one is not open for too long, or waits for members and nothing has
// happened for still longer, while the other one trains.
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
	w.closed = time.Time{} // who is in a run that is over ends by itself
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

// better returns another run that is open and does what is wanted.
func (k *keeper) better(ctx context.Context, r *servedRun, wanted func(doings) bool) *servedRun {
	for _, other := range k.runs {
		if other != r && !other.final && !time.Now().Before(other.notBefore) && k.isOpen(ctx, other) && wanted(other.doings) {
			return other
		}
	}
	return nil
}

// backOff is how long to wait after a number of ends in a row.
func (k *keeper) backOff(ends int) time.Duration {
	wait := firstRestart
	for range ends - 1 {
		wait = min(2*wait, longestPause)
	}
	return k.around(wait)
}

// around draws from the upper half of a time, so that machines which lost the same server do not come back at once.
func (k *keeper) around(d time.Duration) time.Duration {
	return d - time.Duration(k.random.Int64N(int64(cmp.Or(d/2, 1))))
}
